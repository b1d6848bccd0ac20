"""MXFP4 as GPT-OSS is published: 4-bit floats in pairs, 16 bytes to a block, with a power of two for each block.

X_blocks U8 (..., blocks, 16), the lower half of a byte first, and X_scales U8 (..., blocks), exponents with a bias of 127.

Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.2; transformers, integrations/mxfp4.py
(convert_moe_packed_tensors).
"""

from __future__ import annotations

from inspect_embed.schemes import Module, PackedRows

NAME = "MXFP4"
_BLOCK = 32
_BYTES = ("U8", "F8_E8M0")


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """32 numbers for each block of 16 bytes, where blocks have scales beside them; else None.

    The shape is that in which the numbers lie: the model multiplies by its transpose.
    """
    weight, scales = module.weight, module.beside.get("scales")
    if not weight.name.endswith("_blocks") or weight.encoding.name != "U8" or scales is None:
        return None
    if len(weight.shape) < 2 or weight.shape[-1] * 2 != _BLOCK:
        return None
    if scales.shape != weight.shape[:-1] or scales.encoding.name not in _BYTES:
        return None
    return (*weight.shape[:-2], weight.shape[-2] * _BLOCK)


def open_rows(module: Module) -> PackedRows | None:
    """None: experts lie so, and no table of rows."""
    return None
