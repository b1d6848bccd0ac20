"""Arrays as a safetensors file; texts that belong to their rows stand in its metadata, as JSON lists."""

from __future__ import annotations

import json

from inspect_embed.errors import OutputError
from inspect_embed.outputs import PLAIN, Drawing, Style
from inspect_embed.report import Report

SUFFIXES = (".safetensors",)


def render(report: Report, suffix: str = ".safetensors", style: Style = PLAIN) -> bytes:
    """The report's arrays as a safetensors file; OutputError where it has none."""
    if not report.arrays:
        raise OutputError("This answer holds no arrays.", "Use --format json.")
    import numpy as np
    from safetensors.numpy import save

    metadata = {"title": report.title}
    tensors = {}
    for name, values in report.arrays.items():
        array = np.asarray(values)
        if array.dtype.kind == "U":
            metadata[name] = json.dumps(array.tolist())
        else:
            # The format's writer takes the bytes as they lie: only a copy in C order is what it seems.
            tensors[name] = np.array(array, order="C", copy=True)
    return save(tensors, metadata)


def draw(report: Report, suffix: str, style: Style = PLAIN) -> Drawing:
    """The same, with nothing to tell."""
    return Drawing(render(report, suffix, style))
