"""compressed-tensors: whole numbers in 32-bit words or in bytes, or 4-bit floats in pairs, with scales beside them.

"pack-quantized": weight_packed I32 (rows, columns x bits / 32, rounded up), lowest bits first and across the borders of
words, each number raised by 2^(bits - 1); weight_shape holds the shape; weight_scale (rows, groups) or (rows, 1);
weight_zero_point, where there is one, packed along the rows: (rows x bits / 32, groups).
"int-quantized" and "naive-quantized": weight I8 (rows, columns), weight_scale of one number, (rows, 1) or (rows, groups).
"nvfp4-pack-quantized": weight_packed U8 (rows, columns / 2), weight_scale F8_E4M3 (rows, columns / 16), and
weight_global_scale, by which the scales are divided; "mxfp4-pack-quantized": weight_scale (rows, columns / 32), powers
of two as bytes with a bias of 127. The lower half of a byte comes first.

Source: compressed-tensors, compressors/pack_quantized, naive_quantized, nvfp4 and mxfp4, and
quantization/lifecycle/forward_helpers.py (_dequantize).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inspect_embed.formats import TensorEntry
from inspect_embed.schemes import Module, PackedRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "compressed-tensors"
BITS = range(1, 9)
_PAIRS = ("U8", "I8")


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The shape that a packed weight stands for; None where it is not packed in one of these ways.

    The shape is read where the writer noted it, and follows from the scales and the config elsewhere.
    """
    weight, scales = module.weight, module.beside.get("weight_scale")
    if scales is None or len(weight.shape) < 2:
        return None
    if weight.name.endswith("weight_packed"):
        if weight.encoding.name == "I32":
            return _words_shape(module, scales)
        if weight.encoding.name in _PAIRS and _group_of_pairs(weight, scales) is not None:
            return (*weight.shape[:-1], 2 * weight.shape[-1])
        return None
    return weight.shape if weight.encoding.name == "I8" and _group_width(weight.shape, scales) else None


def open_rows(module: Module) -> PackedRows | None:
    """Number less zero, times scale, rounded as the encoding of the scales rounds."""
    shape, scales = logical_shape(module), module.beside["weight_scale"]
    if shape is None or len(shape) != 2:
        return None
    if module.weight.encoding.name in _PAIRS and module.weight.name.endswith("weight_packed"):
        return _open_pairs(module, scales, shape)
    group = _group_width(shape, scales)
    if not scales.encoding.readable or group is None:
        return None
    zeros, order = module.beside.get("weight_zero_point"), module.beside.get("weight_g_idx")
    bits = 8
    if module.weight.encoding.name == "I32":
        found = _bits(module.weight.shape[-1], shape[1])
        if len(found) != 1 or order is not None:
            return None
        bits = found[0]
    if zeros is not None and not _fits_zeros(zeros, scales, bits, shape[0]):
        return None
    return _open_numbers(module, scales, shape, bits, group)


def _open_numbers(
    module: Module, scales: TensorEntry, shape: tuple[int, ...], bits: int, group: int
) -> PackedRows:
    n_rows, width = shape
    zeros = module.beside.get("weight_zero_point")
    packed = module.weight.encoding.name == "I32"
    kept: list[NDArray[np.float32]] = []

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        from inspect_embed.numerics.bits import round_to, unpack_bits

        lying = module.array(module.weight, start, stop)
        lift = np.float32(1 << (bits - 1) if packed else 0)
        numbers = (unpack_bits(lying, bits, width) if packed else lying).astype(np.float32) - lift
        groups = np.arange(width) // group
        factor = _read_rows(module, scales, start, stop)[:, groups]
        if zeros is not None and packed and zeros.encoding.name == "I32":
            if not kept:
                whole = unpack_bits(np.ascontiguousarray(module.array(zeros).T), bits, n_rows).T
                kept.append(whole.astype(np.float32) - lift)
            numbers -= kept[0][start:stop][:, groups]
        elif zeros is not None:
            numbers -= _read_rows(module, zeros, start, stop)[:, groups]
        with np.errstate(over="ignore", invalid="ignore"):
            return round_to(scales.encoding.name, numbers * factor)

    beside = (scales,) if zeros is None else (scales, zeros)
    return PackedRows(f"{NAME}, {bits} bits", n_rows, width, beside, read)


def _open_pairs(module: Module, scales: TensorEntry, shape: tuple[int, ...]) -> PackedRows | None:
    n_rows, width = shape
    group = _group_of_pairs(module.weight, scales)
    whole = module.beside.get("weight_global_scale")
    powers = scales.encoding.name in ("U8", "F8_E8M0")
    if group is None or not (powers or scales.encoding.readable):
        return None
    if not powers and (whole is None or whole.encoding.name != "F32" or whole.n_elements != 1):
        return None

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        from inspect_embed.numerics.bits import E2M1, round_to, unpack_pairs

        values = E2M1[unpack_pairs(module.array(module.weight, start, stop).view(np.uint8), high_first=False)]
        factor = _read_powers(module, scales, start, stop) if powers else module.array(scales, start, stop)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if whole is not None and not powers:
                factor = factor / module.array(whole).ravel()[0]
            product = values.reshape(stop - start, -1, group) * factor[:, :, None].astype(np.float32)
        return round_to("BF16", product.reshape(stop - start, width))

    beside = (scales,) if whole is None else (scales, whole)
    return PackedRows(f"{NAME}, {'MXFP4' if powers else 'NVFP4'}", n_rows, width, beside, read)


def _read_powers(module: Module, scales: TensorEntry, start: int, stop: int) -> NDArray[np.float32]:
    import numpy as np

    row = scales.n_bytes // scales.shape[0]
    data = np.frombuffer(module.tensors.read(scales, start * row, stop * row), np.uint8)
    return np.ldexp(np.float32(1), data.astype(np.int32) - 127).reshape(stop - start, -1)


def _read_rows(module: Module, entry: TensorEntry, start: int, stop: int) -> NDArray[Any]:
    """Rows start to stop of scales (rows, groups); those of scales that all rows share."""
    import numpy as np

    if entry.n_elements == 1:
        return module.array(entry).astype(np.float32).reshape(1, 1)
    return module.array(entry, start, stop).astype(np.float32).reshape(stop - start, -1)


def _words_shape(module: Module, scales: TensorEntry) -> tuple[int, ...] | None:
    weight = module.weight
    stated: tuple[int, ...] | None = module.ask_once("shape", lambda: module.whole_numbers("weight_shape"))
    words = weight.shape[-1]
    if stated and stated[:-1] == weight.shape[:-1] and _bits(words, stated[-1]):
        return stated
    found = set()
    for bits, group in _stated_widths(module):
        columns, rest = divmod(32 * words, bits)
        if group > 0 and scales.shape[:-1] == weight.shape[:-1]:
            grouped = scales.shape[-1] * group
            if bits in _bits(words, grouped):
                found.add(grouped)
        elif rest == 0 and scales.n_elements in (1, *weight.shape[:1]):
            found.add(columns)
    return (*weight.shape[:-1], found.pop()) if len(found) == 1 else None


def _stated_widths(module: Module) -> list[tuple[int, int]]:
    """Bits and width of a group (-1 for whole rows) of the weights, as the config tells them."""
    groups = module.quantisation.get("config_groups")
    found = []
    for said in groups.values() if isinstance(groups, Mapping) else ():
        weights = said.get("weights") if isinstance(said, Mapping) else None
        if (
            isinstance(weights, Mapping)
            and type(weights.get("num_bits")) is int
            and weights["num_bits"] in BITS
        ):
            size = weights.get("group_size")
            found.append((weights["num_bits"], size if type(size) is int and size > 0 else -1))
    return found


def _bits(words: int, columns: int) -> list[int]:
    """The widths of numbers at which so many columns take so many words."""
    return [bits for bits in BITS if columns > 0 and words == -(-columns * bits // 32)]


def _group_width(shape: tuple[int, ...], scales: TensorEntry) -> int | None:
    """How many columns share a scale, where scales are those of the whole, of rows, or of groups of a row."""
    if scales.n_elements == 1:
        return shape[-1]
    if scales.shape in (shape[:1], (*shape[:-1], 1)):
        return shape[-1]
    if len(scales.shape) == len(shape) and scales.shape[:-1] == shape[:-1] and scales.shape[-1]:
        width, rest = divmod(shape[-1], scales.shape[-1])
        return width if rest == 0 and width else None
    return None


def _group_of_pairs(weight: TensorEntry, scales: TensorEntry) -> int | None:
    if scales.shape[:-1] != weight.shape[:-1] or not scales.shape:
        return None
    columns = 2 * weight.shape[-1]
    return next((size for size in (16, 32) if size * scales.shape[-1] == columns), None)


def _fits_zeros(zeros: TensorEntry, scales: TensorEntry, bits: int, n_rows: int) -> bool:
    if zeros.encoding.name == "I32":
        return len(scales.shape) == 2 and zeros.shape == (-(-n_rows * bits // 32), scales.shape[1])
    return zeros.encoding.name == "I8" and zeros.shape == scales.shape
