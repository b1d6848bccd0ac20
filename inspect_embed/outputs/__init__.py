"""How answers are written: one file an output format.

A format offers `SUFFIXES` (the file names that mean it) and `render`, which turns a report into text or bytes. Those
of `FIGURES` offer `draw` too, which takes a style and says what could not be written as it is. Those of `EXPORTS`
offer `parts` instead: the files that another program reads, and what writes each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

OUTPUTS = ("text", "json", "csv", "markdown")
"""The modules that write text, one a format."""

FIGURES = ("figure", "html", "arrays")
"""The modules that write what no terminal shows: pictures, pages, arrays."""

EXPORTS = ("projector", "word2vec", "npz", "parquet")
"""The modules that write a report's arrays for other programs."""

Part = Callable[[BinaryIO], None]
"""What writes one file."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a picture is to look: `theme` ("light" or "dark"), `transparent` or not, and its size in pixels.

    `view` is the key of the report's figure that is drawn, the first unless it is given.
    """

    theme: str = "light"
    transparent: bool = False
    width: int = 1920
    height: int = 1080
    view: str | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, or a page, and what its reader is to be told about it."""

    content: bytes | str
    notes: tuple[str, ...] = ()


PLAIN = Style()
"""The style of a slide, where none is asked for."""
