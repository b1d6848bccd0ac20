"""ModelOpt's NVFP4: 4-bit floats in pairs, with a scale for each 16 of them and one for all of these.

weight U8 (rows, columns / 2), the lower half of a byte first; weight_scale F8_E4M3 (rows, columns / 16); weight_scale_2
F32, by which the scales are multiplied.

Source: NVIDIA TensorRT Model Optimizer, torch/quantization/qtensor/nvfp4_tensor.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspect_embed.schemes import Module, PackedRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "NVFP4"
_GROUP = 16


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """Twice as many columns as bytes, where scales for each 16 numbers lie beside them; else None."""
    weight, scales = module.weight, module.beside.get("weight_scale")
    if weight.encoding.name != "U8" or scales is None or "weight_scale_2" not in module.beside:
        return None
    columns = 2 * (weight.shape or (0,))[-1]
    fits = scales.shape == (*weight.shape[:-1], columns // _GROUP) and columns % _GROUP == 0
    return (*weight.shape[:-1], columns) if fits else None


def open_rows(module: Module) -> PackedRows | None:
    """Number times scale times the scale of scales, in float32."""
    shape, scales, whole = (
        logical_shape(module),
        module.beside["weight_scale"],
        module.beside["weight_scale_2"],
    )
    if shape is None or len(shape) != 2 or scales.encoding.name != "F8_E4M3":
        return None
    if whole.encoding.name != "F32" or whole.n_elements != 1:
        return None

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        from inspect_embed.numerics.bits import E2M1, unpack_pairs

        values = E2M1[unpack_pairs(module.array(module.weight, start, stop), high_first=False)]
        with np.errstate(over="ignore", invalid="ignore"):
            factor = module.array(scales, start, stop).astype(np.float32) * module.array(whole).ravel()[0]
            product = values.reshape(stop - start, -1, _GROUP) * factor[:, :, None]
        flat: NDArray[np.float32] = product.reshape(stop - start, -1)
        return flat

    return PackedRows(NAME, *shape, (scales, whole), read)
