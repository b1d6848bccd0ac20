"""MLX: rows of small numbers in 32-bit words, with a scale (and mostly a bias) for each group of a row.

Source: mlx.core.quantize: w (rows, columns) becomes words (rows, columns x bits / 32), and scales and biases
(rows, columns / group_size); the modes mxfp4, mxfp8 and nvfp4 have scales of one byte and no biases. config.json holds
group_size, bits and mode under "quantization", for the whole model and for modules that depart from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from inspect_embed.encodings import ENCODINGS
from inspect_embed.formats import TensorEntry
from inspect_embed.schemes import Module, PackedRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "MLX"
BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (16, 32, 64, 128)
_WORD_BITS = 32
_FLOAT_MODES = {(4, 32): "mxfp4", (4, 16): "nvfp4", (8, 32): "mxfp8"}
"""Modes without biases, by bits and size of a group."""


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The shape that these words stand for; None where they are not MLX's, or the size of a group is not known.

    Bits are inferred from the shapes, so that layers of different widths, which a config need not list, come out
    right.
    """
    weight, scales = module.weight, module.beside.get("scales")
    if weight.encoding.name != "U32" or scales is None or len(weight.shape) < 2:
        return None
    if len(scales.shape) != len(weight.shape) or scales.shape[:-1] != weight.shape[:-1]:
        return None
    words, groups = weight.shape[-1], scales.shape[-1]
    for group_size in _group_sizes(module):
        columns = groups * group_size
        bits, rest = divmod(_WORD_BITS * words, columns or 1)
        if columns and rest == 0 and bits in BITS:
            return (*weight.shape[:-1], columns)
    return None


def open_rows(module: Module) -> PackedRows | None:
    """Scale times number, plus bias, rounded as the encoding of the scales rounds."""
    shape, scales, biases = logical_shape(module), module.beside["scales"], module.beside.get("biases")
    if shape is None or len(shape) != 2:
        return None
    if biases is None:
        return _open_floats(module, scales, shape)
    if biases.shape != scales.shape:
        return None
    if not scales.encoding.readable or biases.encoding != scales.encoding:
        return None
    width, groups = shape[1], scales.shape[1]
    bits = _WORD_BITS * module.weight.shape[1] // width

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        from inspect_embed.numerics.bits import round_to, unpack_bits

        words = module.array(module.weight, start, stop)
        numbers = unpack_bits(words, bits, width).reshape(stop - start, groups, -1)
        factor, offset = (module.array(entry, start, stop)[:, :, None] for entry in (scales, biases))
        name = scales.encoding.name
        with np.errstate(over="ignore", invalid="ignore"):
            product = round_to(name, numbers.astype(np.float32) * factor)
            return round_to(name, product + offset).reshape(stop - start, width)

    return PackedRows(f"{NAME}, {bits} bits", *shape, (scales, biases), read)


def _open_floats(module: Module, scales: TensorEntry, shape: tuple[int, ...]) -> PackedRows | None:
    """The rows of a mode whose numbers are floats: their products with the scales are exact."""
    width, groups = shape[1], scales.shape[1]
    bits = _WORD_BITS * module.weight.shape[1] // width
    mode = _FLOAT_MODES.get((bits, width // groups))
    if mode is None or scales.encoding.name != "U8":
        return None

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        from inspect_embed.numerics.bits import E2M1, unpack_pairs

        lying = module.array(module.weight, start, stop).view(np.uint8)
        values = E2M1[unpack_pairs(lying, high_first=False)] if bits == 4 else _read_e4m3(lying)
        factor = module.array(scales, start, stop)
        sizes = (
            _read_e4m3(factor) if mode == "nvfp4" else np.ldexp(np.float32(1), factor.astype(np.int32) - 127)
        )
        with np.errstate(invalid="ignore"):
            product = values.reshape(stop - start, groups, -1) * sizes.reshape(stop - start, groups, 1)
        flat: NDArray[np.float32] = product.reshape(stop - start, width)
        return flat

    return PackedRows(f"{NAME}, {mode}", shape[0], width, (scales,), read)


def _read_e4m3(patterns: NDArray[np.uint8]) -> NDArray[np.float32]:
    import numpy as np

    flat = ENCODINGS["F8_E4M3"].decode(memoryview(patterns.tobytes()))
    return np.asarray(flat, np.float32).reshape(patterns.shape)


def _group_sizes(module: Module) -> Iterator[int]:
    """What the config says of this module, then of the whole model."""
    config = module.config
    for said in (config.get("quantization"), config.get("quantization_config"), config):
        if isinstance(said, Mapping):
            for inner in (said.get(module.path), said):
                size = _size(inner)
                if size is not None:
                    yield size


def _size(said: Any) -> int | None:
    size = said.get("group_size") if isinstance(said, Mapping) else None
    return size if type(size) is int and size in GROUP_SIZES else None
