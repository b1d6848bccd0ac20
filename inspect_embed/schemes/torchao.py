"""torchao, whole numbers of 8 bits: each in a byte of its own, with a scale and a zero for each row or group.

Source: torchao, quantization/quantize_/workflows/int8 (Int8Tensor), as its safetensors support names the parts:
_weight_qdata int8 (rows, columns), _weight_scale and _weight_zero_point (rows, groups).
"""

from __future__ import annotations

from inspect_embed.schemes import Module, PackedRows

NAME = "torchao"


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The tensor's own shape where scales of its rows lie beside bytes; else None."""
    weight, scales = module.weight, module.beside.get("_weight_scale")
    if not weight.name.endswith("._weight_qdata") or weight.encoding.name != "I8" or scales is None:
        return None
    return weight.shape if scales.shape[:1] == weight.shape[:1] else None


def open_rows(module: Module) -> PackedRows | None:
    """None: tables are not packed so."""
    return None
