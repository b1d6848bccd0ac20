"""AWQ: 4-bit numbers in 32-bit words, with a scale and a zero for each group of inputs, in one of four layouts.

"gemm": a matrix (rows, columns) lies transposed, qweight (columns, rows / 8), qzeros (groups, rows / 8), scales (groups,
rows); the eight numbers of a word belong to the rows 0, 2, 4, 6, 1, 3, 5, 7 after its first.
"gemv": qweight (rows, columns / 8), qzeros (rows, words), scales (rows, 8 x words), padded to whole words, in plain order.
"gemv_fast": qweight of 16-bit words (rows / 4, columns), scales and zeros in half precision (groups and padding, rows).
"marlin": qweight (columns / 16, rows x 2), qzeros and scales as in gemm.

Source: AutoAWQ, awq/modules/linear/gemm.py, gemv.py, gemv_fast.py, marlin.py (layouts), awq/utils/packing_utils.py
(order, dequantize_gemm). AutoRound writes the first layout, with 5, 6 and 7 bits too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inspect_embed.formats import TensorEntry
from inspect_embed.schemes import Module, PackedRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "AWQ"
BITS = (4, 5, 6, 7, 8)
_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_WORDS = ("I32", "U32")


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The shape (rows, columns) that these words stand for; None where the shapes are those of no layout of AWQ."""
    weight, scales, zeros = module.weight, module.beside.get("scales"), module.beside.get("qzeros")
    if scales is None or zeros is None or not len(weight.shape) == len(scales.shape) == len(zeros.shape) == 2:
        return None
    if 0 in weight.shape or 0 in scales.shape:
        return None
    for layout in (_gemm, _gemv, _gemv_fast, _marlin):
        shape = layout(weight, scales, zeros)
        if shape is not None:
            return shape
    return None


def open_rows(module: Module) -> PackedRows | None:
    """Number less zero, times scale, in the first layout at 4 bits; None in the others."""
    weight, scales, zeros = module.weight, module.beside["scales"], module.beside["qzeros"]
    shape = _gemm(weight, scales, zeros)
    if shape is None or weight.shape[1] * 8 != shape[0] or not scales.encoding.readable:
        return None
    n_rows, width = shape
    kept: list[NDArray[np.float32]] = []

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        from inspect_embed.numerics.bits import round_to

        first, last = start // 8, -(-stop // 8)
        inside = slice(start - 8 * first, stop - 8 * first)
        numbers = _unpack(module.array(weight)[:, first:last])[:, inside]
        offsets = _unpack(module.array(zeros)[:, first:last])[:, inside]
        if not kept:
            kept.append(module.array(scales))
        factor = kept[0][:, start:stop]
        groups = np.arange(width) // (width // len(factor))
        with np.errstate(over="ignore", invalid="ignore"):
            product = (numbers - offsets[groups]).astype(np.float32) * factor[groups]
        return np.ascontiguousarray(round_to(scales.encoding.name, product).T)

    return PackedRows(NAME, n_rows, width, (scales, zeros), read)


def _gemm(weight: TensorEntry, scales: TensorEntry, zeros: TensorEntry) -> tuple[int, int] | None:
    if weight.encoding.name not in _WORDS or zeros.encoding.name not in _WORDS:
        return None
    columns, words = weight.shape
    groups, rows = scales.shape
    fits = zeros.shape == (groups, words) and columns % groups == 0
    return (rows, columns) if fits and any(32 * words == rows * bits for bits in BITS) else None


def _gemv(weight: TensorEntry, scales: TensorEntry, zeros: TensorEntry) -> tuple[int, int] | None:
    if weight.encoding.name not in _WORDS or zeros.encoding.name not in _WORDS:
        return None
    rows, words = weight.shape
    fits = scales.shape[0] == zeros.shape[0] == rows and scales.shape[1] == 8 * zeros.shape[1]
    return (rows, 8 * words) if fits else None


def _gemv_fast(weight: TensorEntry, scales: TensorEntry, zeros: TensorEntry) -> tuple[int, int] | None:
    rows, columns = 4 * weight.shape[0], weight.shape[1]
    fits = weight.encoding.name == "I16" and scales.shape == zeros.shape and scales.shape[1] == rows
    return (rows, columns) if fits else None


def _marlin(weight: TensorEntry, scales: TensorEntry, zeros: TensorEntry) -> tuple[int, int] | None:
    if weight.encoding.name not in _WORDS or zeros.encoding.name not in _WORDS:
        return None
    groups, rows = scales.shape
    fits = weight.shape[1] == 2 * rows and zeros.shape == (groups, rows // 8) and rows % 8 == 0
    return (rows, 16 * weight.shape[0]) if fits else None


def _unpack(words: NDArray[np.integer[Any]]) -> NDArray[np.int16]:
    """Words (n, m) into the numbers of the rows that they stand for, in order: (n, 8 x m)."""
    import numpy as np

    from inspect_embed.numerics.bits import unpack_bits

    packed = unpack_bits(np.ascontiguousarray(words), 4, 8 * words.shape[1]).reshape(*words.shape, 8)
    out = np.empty(packed.shape, np.int16)
    out[..., _ORDER] = packed
    return out.reshape(len(words), -1)
