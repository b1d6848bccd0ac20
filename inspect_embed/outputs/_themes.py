"""The colours and shapes of pictures, which colour-blind readers can tell apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by what they are for. `palette` colours groups, in order; `low`, `middle`, `high` span a heat map."""

    background: str
    text: str
    muted: str
    faint: str
    palette: tuple[str, ...]
    low: str
    middle: str
    high: str


# Source: Okabe & Ito 2008, "Color Universal Design": eight colours that colour-blind readers tell apart. Those that
# vanish on a theme's background are a shade darker or lighter there.
THEMES = {
    "light": Theme(
        background="#ffffff",
        text="#16191d",
        muted="#59616b",
        faint="#dfe3e8",
        palette=(
            "#0072b2",
            "#d55e00",
            "#009e73",
            "#cc79a7",
            "#e69f00",
            "#56b4e9",
            "#16191d",
            "#a39300",
        ),
        low="#b34700",
        middle="#f7f7f7",
        high="#005b94",
    ),
    "dark": Theme(
        background="#14171b",
        text="#f3f5f7",
        muted="#a9b2bd",
        faint="#333a42",
        palette=(
            "#56b4e9",
            "#e69f00",
            "#1fbf90",
            "#f0e442",
            "#e48bc0",
            "#f2793a",
            "#f3f5f7",
            "#4a90d9",
        ),
        low="#f2a23a",
        middle="#23272d",
        high="#5cb8ee",
    ),
}

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Shapes that go with the colours: a group is told apart by both."""
