"""A map as one page that needs no network: pan, zoom, hover, and search for a token and its true neighbours.

The page is `_map_page.html`; the points go into it as JSON, in ASCII, so that nothing a token holds can end the script
that carries it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from inspect_embed.errors import OutputError
from inspect_embed.outputs import PLAIN, Drawing, Style
from inspect_embed.outputs._themes import THEMES, Theme
from inspect_embed.report import Report, Scatter

SUFFIXES = (".html", ".htm")

_DIGITS = 5


def render(report: Report, suffix: str = ".html", style: Style = PLAIN) -> str:
    """The report's map as a page; OutputError where it has none."""
    maps = {key: block for key, block in report.figures.items() if isinstance(block, Scatter)}
    if style.view in maps:
        block = maps[style.view]
    elif maps:
        block = next(iter(maps.values()))
    else:
        raise OutputError(
            "This answer has no map of points, so it cannot be written as a page.",
            "`project` makes maps; -o with a name that ends in .png, .svg, .pdf or .md writes other answers.",
        )
    template = files("inspect_embed.outputs").joinpath("_map_page.html").read_text(encoding="utf-8")
    page = template.replace("/*light*/", _css(THEMES["light"])).replace("/*dark*/", _css(THEMES["dark"]))
    before, after = page.split("<!--data-->")
    # Texts of the user's go in last: none of them can be taken for a place to fill.
    before = before.replace("<!--title-->", escape(block.title or report.title))
    return before + _as_script(_describe(block)) + after


def draw(report: Report, suffix: str, style: Style = PLAIN) -> Drawing:
    """The same; every label is in the page, so that there is nothing to tell."""
    return Drawing(render(report, suffix, style))


def _describe(block: Scatter) -> dict[str, Any]:
    """What the page knows of the points. Groups are numbered; -1 is none."""
    n = len(block.x)
    names = [name for name in dict.fromkeys(block.groups) if name]
    number = {name: place for place, name in enumerate(names)}
    return {
        "title": block.title,
        "caption": block.caption,
        "axes": [
            block.x_label,
            block.y_label,
            *([block.z_label] if len(block.z) else []),
        ],
        "coordinates": [_short(values) for values in (block.x, block.y, block.z) if len(values)],
        "labels": list(block.labels) or [str(place) for place in range(n)],
        "ids": list(block.ids),
        "groups": names,
        "group": [number.get(name, -1) for name in block.groups] or [-1] * n,
        "neighbors": [[point for point, _ in nearest] for nearest in block.neighbors],
        "distances": [_short(distance for _, distance in nearest) for nearest in block.neighbors],
        "path": block.path,
    }


def _short(values: Iterable[float]) -> list[float]:
    """Enough digits for a screen, at any zoom."""
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def _as_script(data: dict[str, Any]) -> str:
    """JSON in ASCII without a character that HTML reads."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _css(theme: Theme) -> str:
    parts = {
        "background": theme.background,
        "text": theme.text,
        "muted": theme.muted,
        "faint": theme.faint,
        **{f"group-{place}": colour for place, colour in enumerate(theme.palette)},
    }
    return " ".join(f"--{name}: {colour};" for name, colour in parts.items())
