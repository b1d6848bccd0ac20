"""GPTQ: columns of small whole numbers in 32-bit words, with a scale and a zero for each group of inputs.

A matrix (rows, columns) lies transposed: qweight (columns x bits / 32, rows), scales (groups, rows), qzeros (groups,
rows x bits / 32), and g_idx (columns), the group of each column. AutoRound and GPTQModel write the same layout. The
first form of the files stores each zero less one; "gptq_v2", and AutoRound where it does not name gptq, store it as it is.

Source: AutoGPTQ and GPTQModel, nn_modules/qlinear (the layout; dequantize_weight) and utils/model.py
(convert_gptq_v1_to_v2_format_module); AutoRound, export_to_autoround/export.py (packing_format).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inspect_embed.errors import DamagedFileError
from inspect_embed.formats import TensorEntry
from inspect_embed.schemes import Module, PackedRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "GPTQ"
BITS = (2, 3, 4, 5, 6, 7, 8)
_WORDS = ("I32", "U32")
_PLANAR = "gptq_p"
"""A layout in which the bits of a number lie apart."""


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The shape (rows, columns) that these words stand for; None where the shapes are not those of GPTQ."""
    bits = _bits(module)
    if bits is None:
        return None
    words, rows = module.weight.shape
    order = module.beside.get("g_idx")
    if order is not None and len(order.shape) == 1 and -(-order.shape[0] * bits // 32) == words:
        return rows, order.shape[0]
    return rows, 32 * words // bits


def open_rows(module: Module) -> PackedRows | None:
    """Scale times number less zero, with the scale and the zero of the column's group."""
    bits, shape, scales = _bits(module), logical_shape(module), module.beside["scales"]
    zeros, order = module.beside["qzeros"], module.beside.get("g_idx")
    said = module.quantisation
    if (
        bits is None
        or shape is None
        or not scales.encoding.readable
        or said.get("checkpoint_format") == _PLANAR
    ):
        return None
    n_rows, width = shape
    kept: list[tuple[NDArray[np.int16], NDArray[np.float32], NDArray[np.int64]]] = []

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        from inspect_embed.numerics.bits import round_to, unpack_bits

        if not kept:
            offsets = _read_zeros(module.array(zeros), bits, n_rows, said)
            kept.append((offsets, module.array(scales), _read_groups(module, order, width)))
        offsets, factors, groups = kept[0]
        columns = np.ascontiguousarray(module.array(module.weight)[:, start:stop].T)
        numbers = unpack_bits(columns, bits, width).astype(np.int16)
        numbers -= offsets[:, start:stop].T[:, groups]
        with np.errstate(over="ignore", invalid="ignore"):
            product = factors[:, start:stop].T[:, groups] * numbers
        return round_to(scales.encoding.name, product)

    beside = (scales, zeros) if order is None else (scales, zeros, order)
    return PackedRows(f"{NAME}, {bits} bits", n_rows, width, beside, read)


def _bits(module: Module) -> int | None:
    weight, scales, zeros = module.weight, module.beside.get("scales"), module.beside.get("qzeros")
    if (
        scales is None
        or zeros is None
        or weight.encoding.name not in _WORDS
        or zeros.encoding.name not in _WORDS
    ):
        return None
    if not len(weight.shape) == len(scales.shape) == len(zeros.shape) == 2:
        return None
    words, rows = weight.shape
    groups = scales.shape[0]
    if scales.shape[1] != rows or zeros.shape[0] != groups or not rows or not groups:
        return None
    fitting = [bits for bits in BITS if zeros.shape[1] == -(-rows * bits // 32) and 32 * words >= bits]
    said = module.quantisation.get("bits")
    if said in fitting:
        return int(said)
    return fitting[0] if len(fitting) == 1 else None


def _stores_less_one(said: Mapping[str, Any]) -> bool:
    if said.get("quant_method") == "auto-round":
        packing = str(said.get("packing_format", said.get("backend", "auto_round:auto_gptq")))
        return "gptq" in packing and "gptqmodel" not in packing
    return bool(said.get("checkpoint_format") != "gptq_v2")


def _read_zeros(words: NDArray[Any], bits: int, n_rows: int, said: Mapping[str, Any]) -> NDArray[np.int16]:
    """The zero of each group and row: (groups, rows)."""
    import numpy as np

    from inspect_embed.numerics.bits import unpack_bits

    less_one = _stores_less_one(said)
    if less_one and 32 % bits == 0 and said.get("quant_method") != "auto-round":
        # Whole words are moved by one in each of their parts, borrowing from the next part below nought.
        ones = sum(1 << at for at in range(0, 32, bits))
        words, less_one = words.view(np.uint32) + np.uint32(ones), False
    return unpack_bits(words, bits, n_rows).astype(np.int16) + np.int16(less_one)


def _read_groups(module: Module, order: TensorEntry | None, width: int) -> NDArray[np.int64]:
    import numpy as np

    groups = module.beside["scales"].shape[0]
    if order is None:
        return np.arange(width) // -(-width // groups)
    held = module.array(order).astype(np.int64)
    if held.min(initial=0) < 0 or held.max(initial=0) >= groups:
        raise DamagedFileError(
            f"{order.name} names groups that {module.beside['scales'].name} does not have: it has {groups:,}.",
            "Fetch the file again.",
        )
    return held
