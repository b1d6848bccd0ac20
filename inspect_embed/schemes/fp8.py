"""8-bit floats with scales: of the whole tensor, of each row, or of each block.

They count as they lie, and the table itself multiplies them; only the scheme's name is told here.

Source: transformers, integrations/finegrained_fp8.py: weight F8_E4M3 (rows, columns), weight_scale_inv F32 (rows / 128,
columns / 128, rounded up); compressed-tensors, float-quantized: weight_scale of one number, or (rows, 1).
"""

from __future__ import annotations

from inspect_embed.schemes import Module, PackedRows

NAME = "FP8"


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The tensor's own shape where it holds 8-bit floats; else None."""
    return module.weight.shape if module.weight.encoding.name.startswith("F8") else None


def open_rows(module: Module) -> PackedRows | None:
    """None: an encoding that can be read needs no unpacking."""
    return None
