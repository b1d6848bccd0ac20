"""numpy's archive: `vectors`, `ids` and `tokens`, row by row; `coordinates`, `neighbors` and `distances` where asked for.

Nothing in it is an object: `numpy.load(path)` reads it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from inspect_embed.outputs import Part
from inspect_embed.report import Report


def parts(report: Report, path: Path) -> Mapping[Path, Part]:
    """The one file."""
    return {path: partial(_write, report)}


def _write(report: Report, file: BinaryIO) -> None:
    import numpy as np

    # A copy in C order, so that the file holds rows whatever the array was cut from.
    copies = {name: np.array(values, order="C", copy=True) for name, values in report.arrays.items()}
    np.savez(file, allow_pickle=False, **copies)
