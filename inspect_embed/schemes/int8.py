"""LLM.int8: each number in a byte of its own, with a scale for each row.

Source: bitsandbytes, Linear8bitLt: weight int8 (rows, columns), SCB float32 (rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inspect_embed.formats import TensorEntry

NAME = "LLM.int8"


def logical_shape(
    weight: TensorEntry, beside: Mapping[str, TensorEntry], config: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """The tensor's own shape where row scales called SCB lie beside bytes; else None."""
    scales = beside.get("SCB") or beside.get("weight.SCB")
    if weight.encoding.name != "I8" or scales is None or scales.shape != weight.shape[:1]:
        return None
    return weight.shape
