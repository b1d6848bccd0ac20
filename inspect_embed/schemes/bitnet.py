"""BitNet: four numbers of -1, 0 and 1 to a byte, and one scale for the whole matrix.

weight U8 (rows / 4, columns): the lowest two bits of all bytes are the first quarter of the rows, each raised by one.

Source: transformers, integrations/bitnet.py (pack_weights, BitLinear).
"""

from __future__ import annotations

from inspect_embed.schemes import Module, PackedRows

NAME = "BitNet"
_ROWS = 4


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """Four times as many rows as bytes, where the config says that the model is packed so; else None."""
    weight, scale = module.weight, module.beside.get("weight_scale")
    if module.quantisation.get("quant_method") != "bitnet" or weight.encoding.name != "U8":
        return None
    if scale is None or scale.n_elements != 1 or len(weight.shape) != 2:
        return None
    return _ROWS * weight.shape[0], weight.shape[1]


def open_rows(module: Module) -> PackedRows | None:
    """None: tables are not packed so."""
    return None
