"""How answers are written: one file an output format.

A format offers `SUFFIXES` (the file names that mean it) and `render`, which turns a report into text or bytes.
"""

from __future__ import annotations

OUTPUTS = ("text", "json", "csv", "markdown")
"""The modules that write text, one a format."""

FIGURES: tuple[str, ...] = ()
"""The modules that draw."""
