"""MLX: rows of small integers in 32-bit words, with a scale (and mostly a bias) for each group of a row.

Source: mlx.core.quantize: w (rows, columns) becomes words (rows, columns x bits / 32), and scales and biases
(rows, columns / group_size); config.json holds group_size and bits under "quantization", for the whole model and
for modules that depart from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inspect_embed.formats import TensorEntry

NAME = "MLX"
BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (16, 32, 64, 128)
_WORD_BITS = 32


def logical_shape(
    weight: TensorEntry, beside: Mapping[str, TensorEntry], config: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """The shape that these words stand for; None where they are not MLX's, or the size of a group is not known.

    Bits are inferred from the shapes, so that layers of different widths, which a config need not list, come out
    right.
    """
    scales = beside.get("scales")
    if weight.encoding.name != "U32" or scales is None or len(weight.shape) < 2:
        return None
    if len(scales.shape) != len(weight.shape) or scales.shape[:-1] != weight.shape[:-1]:
        return None
    words, groups = weight.shape[-1], scales.shape[-1]
    for group_size in _group_sizes(config, weight.name.rpartition(".")[0]):
        columns = groups * group_size
        bits, rest = divmod(_WORD_BITS * words, columns or 1)
        if columns and rest == 0 and bits in BITS:
            return (*weight.shape[:-1], columns)
    return None


def _group_sizes(config: Mapping[str, Any], module: str) -> Iterator[int]:
    """What the config says of this module, then of the whole model."""
    for said in (config.get("quantization"), config.get("quantization_config"), config):
        if isinstance(said, Mapping):
            for inner in (said.get(module), said):
                size = inner.get("group_size") if isinstance(inner, Mapping) else None
                if type(size) is int and size in GROUP_SIZES:
                    yield size
