"""EETQ: each number in a byte of its own, transposed and shuffled for the processor that reads it, with a scale for each row.

Source: transformers, integrations/eetq.py: weight int8 (columns, rows), weight_scales float16 (rows).
"""

from __future__ import annotations

from inspect_embed.schemes import Module, PackedRows

NAME = "EETQ"


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The tensor's own shape where scales of its last dimension lie beside bytes; else None."""
    weight, scales = module.weight, module.beside.get("weight_scales")
    if weight.encoding.name != "I8" or scales is None or len(weight.shape) != 2:
        return None
    return weight.shape if scales.shape == weight.shape[1:] else None


def open_rows(module: Module) -> PackedRows | None:
    """None: in which order the bytes lie depends on the processor."""
    return None
