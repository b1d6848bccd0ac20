"""HQQ: numbers of 1, 2, 3, 4 or 8 bits, the first part of a matrix in the upper bits and the next ones below it.

Beside W_q lie scale, zero, shape, nbits, group_size, axis and packing, each as a tensor. W_q is U8, or I32 with ten
3-bit numbers to a word; rows are filled up to whole words.

Source: HQQ, core/quantize.py (HQQLinear.state_dict), core/bitpack.py.
"""

from __future__ import annotations

import math

from inspect_embed.schemes import Module, PackedRows

NAME = "HQQ"
_PARTS = {("U8", 8): 1, ("U8", 4): 2, ("U8", 2): 4, ("U8", 1): 8, ("I32", 3): 10}
"""How many numbers share a byte or a word."""


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The shape noted beside the weight, where as many numbers fit into it; else None."""
    weight = module.weight
    if not weight.name.endswith("W_q"):
        return None
    shape = module.ask_once("shape", lambda: module.whole_numbers("shape"))
    bits = module.ask_once("bits", lambda: module.whole_numbers("nbits"))
    if not shape or not bits or min(shape) < 1:
        return None
    parts = _PARTS.get((weight.encoding.name, bits[0]))
    if parts is None or not weight.shape:
        return None
    # Only the last word of each column may be filled up.
    spare = weight.n_elements * parts - math.prod(shape)
    columns = weight.n_elements // weight.shape[0] if weight.shape[0] else 0
    return shape if 0 <= spare < parts * max(columns, 1) and (parts == 10 or spare == 0) else None


def open_rows(module: Module) -> PackedRows | None:
    """None: tables are not packed so."""
    return None
