"""Numbers as text, with as many digits as tell them from their neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def write_numbers(rows: Any, separator: str) -> Iterator[str]:
    """Each row of an array (n, d) as a line: the shortest decimals that read back to the same numbers."""
    import numpy as np

    for start in range(0, len(rows), 256):
        # numpy writes the shortest decimals of its own types; Python's floats would show those of a double.
        block = np.asarray(rows[start : start + 256]).astype("U32")
        yield from map(separator.join, block.tolist())
