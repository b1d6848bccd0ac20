"""The questions that this project answers: one file a question, records in, records out.

An analysis takes an opened checkpoint and returns a frozen record that can describe itself in blocks; it never
prints and never parses.
"""

from __future__ import annotations

ANALYSES = (
    "info",
    "tokens",
    "vector",
    "embed",
    "similarity",
    "neighbors",
    "params",
    "project",
    "positions",
    "health",
    "compare",
    "export",
)
"""The modules of this package, one a question."""
