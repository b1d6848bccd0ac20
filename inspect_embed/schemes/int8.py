"""LLM.int8: each number in a byte of its own, with a scale for each row.

Source: bitsandbytes, nn.Linear8bitLt: weight int8 (rows, columns), SCB float32 (rows), the largest absolute value of each
row; int8_vectorwise_dequant for the arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspect_embed.schemes import Module, PackedRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "LLM.int8"


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The tensor's own shape where row scales called SCB lie beside bytes; else None."""
    weight, scales = module.weight, module.beside.get("SCB") or module.beside.get("weight.SCB")
    if weight.encoding.name != "I8" or scales is None or scales.shape != weight.shape[:1]:
        return None
    return weight.shape


def open_rows(module: Module) -> PackedRows | None:
    """Bytes times the row's largest value, over 127."""
    weight, scales = module.weight, module.beside.get("SCB") or module.beside.get("weight.SCB")
    if scales is None or len(weight.shape) != 2 or not scales.encoding.readable:
        return None

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        row_scales = module.array(scales, start, stop)[:, None]
        product: NDArray[np.float32] = module.array(weight, start, stop) * row_scales.astype(np.float32)
        return product * np.float32(7.874015718698502e-3)

    return PackedRows(NAME, *weight.shape, (scales,), read)
