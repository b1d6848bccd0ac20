"""Labels beside points, so that no two of them overlap; those that find no room are left out."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Float64s = NDArray[np.float64]

MOST_LABELS = 200
"""Labels that are tried; of more points, some that lie far apart are labelled."""
_CELLS = (10, 6)
_OBSTACLES = 3000
_SIZES = ((25, (18, 16, 14)), (60, (16, 14, 12)), (MOST_LABELS, (12, 10)))
"""Up to how many labels are tried in which sizes, in points."""
_SHORT_LINE = 26.0
"""A label nearer than so many pixels needs no line to its point."""


def choose_labelled(points: Float64s) -> list[int]:
    """Which points are labelled? All of up to MOST_LABELS; of more, the middlemost of each cell of a grid.

    points (n, 2), as they lie on the page.
    """
    import numpy as np

    n = len(points)
    if n <= MOST_LABELS:
        return list(range(n))
    cells = np.array(_CELLS)
    low, high = points.min(axis=0), points.max(axis=0)
    at = (points - low) / np.where(high > low, high - low, 1.0) * cells
    cell = np.minimum(at.astype(int), cells - 1)
    off = np.abs(at - cell - 0.5).max(axis=1)
    number = cell[:, 1] * cells[0] + cell[:, 0]
    order = np.lexsort((off, number))
    _, firsts = np.unique(number[order], return_index=True)
    return sorted(order[firsts].tolist())


def place_labels(
    over: Axes,
    under: Axes,
    points: Float64s,
    labelled: Sequence[int],
    texts: Sequence[str],
    text_colour: str,
    line_colour: str,
    background: str,
) -> int:
    """Write texts beside the labelled points; returns how many found no room.

    `over` and `under` are axes before and behind the points whose data are pixels: texts go over, lines from
    text to point go under. points (n, 2) in those pixels; `texts`, one for each labelled point. Several sizes and
    manners are tried; what is kept has the fewest texts left out, the shortest lines, the largest letters.
    """
    import numpy as np

    # The most crowded points choose first.
    own = points[list(labelled)]
    order = np.argsort(_room(own), kind="stable")
    own, written = own[order], [texts[place] for place in order]
    sizes = next(sizes for most, sizes in _SIZES if len(labelled) <= most)
    alone = len(labelled) == len(points)
    manners = _MANNERS if alone else _MANNERS_AMONG_OTHERS
    options: dict[str, Any] = (
        {} if alone else {"bbox": {"fc": background, "ec": "none", "alpha": 0.6, "pad": 0.5}}
    )
    obstacles = points if len(points) <= _OBSTACLES else own
    best: tuple[float, tuple[float, dict[str, Any]]] | None = None
    for size in sizes:
        for manner in manners:
            drawn, lines = _try(over, own, written, obstacles, size, {**manner, **options})
            cost = _SMALLER * (sizes[0] - size) + _cost(drawn, lines)
            for text in drawn:
                if text is not None:
                    text.remove()
            if best is None or cost < best[0]:
                best = (cost, (size, manner))
    if best is None:
        return 0
    chosen_size, manner = best[1]
    drawn, lines = _try(over, own, written, obstacles, chosen_size, {**manner, **options})
    for text, line in zip(drawn, lines, strict=True):
        if text is not None:
            text.set_color(text_colour)
        if line is not None and _length(line) > _SHORT_LINE:
            under.plot(*line[:2], color=line_colour, linewidth=0.9)
    return sum(text is None for text in drawn)


_MANNERS: tuple[dict[str, Any], ...] = (
    {"avoid_crossing_label_lines": True, "avoid_label_lines_overlap": True, "max_distance": 0.08},
    {"avoid_crossing_label_lines": True, "avoid_label_lines_overlap": True, "max_distance": 0.2},
    {"avoid_crossing_label_lines": True, "max_distance": 0.1},
    {"avoid_crossing_label_lines": True, "max_distance": 0.2},
    {"max_distance": 0.25, "nbr_candidates": 600},
)
"""May lines cross each other, run behind a text, and how long may they be, in widths of the map?"""
_MANNERS_AMONG_OTHERS: tuple[dict[str, Any], ...] = (
    {"avoid_crossing_label_lines": True, "max_distance": 0.05},
)
"""The same, where most points have no label."""
_LEFT_OUT, _COVERED, _SMALLER, _LONG = 400.0, 25.0, 18.0, 40.0
"""What a text left out, a line behind a text, a point of size, and so many pixels of line cost."""


def _cost(drawn: Sequence[Any], lines: Sequence[Any]) -> float:
    """How bad is this attempt?"""
    from matplotlib.path import Path

    kept = [text for text in drawn if text is not None]
    ties = [line for line in lines if line is not None and _length(line) > _SHORT_LINE]
    boxes = [text.get_window_extent() for text in kept]
    to_pixels = kept[0].get_transform() if kept else None
    covered = 0
    for x, y, *_ in ties:
        path = Path(to_pixels.transform(list(zip(x, y, strict=True))))  # type: ignore[union-attr]
        # The text that a line belongs to touches its end.
        covered += max(0, sum(path.intersects_bbox(box, filled=False) for box in boxes) - 1)
    lengths = sum(max(0.0, _length(line) - _SHORT_LINE) for line in ties)
    return _LEFT_OUT * (len(drawn) - len(kept)) + _COVERED * covered + lengths / _LONG


def _length(line: Any) -> float:
    (x0, x1), (y0, y1) = line[:2]
    return float(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5)


def _try(
    over: Axes,
    points: Float64s,
    texts: Sequence[str],
    obstacles: Float64s,
    size: float,
    options: dict[str, Any],
) -> tuple[list[Any], list[Any]]:
    """One attempt: the texts drawn, and the ends of the lines from them to their points; None where there is none."""
    import textalloc

    with contextlib.redirect_stdout(io.StringIO()):  # it prints when nothing found room
        _, lines, drawn, drawn_lines = textalloc.allocate(
            over,
            points[:, 0],
            points[:, 1],
            list(texts),
            x_scatter=obstacles[:, 0],
            y_scatter=obstacles[:, 1],
            textsize=size,
            va="bottom",
            margin=0.005,
            min_distance=0.010,
            draw_all=False,
            **{"nbr_candidates": 300, **options},
        )
    own_lines: list[Any] = [line for line in drawn_lines if line is not None]
    for line in own_lines:
        line.remove()
    return drawn, lines


def _room(points: Float64s) -> Float64s:
    """How far the third nearest point is from each."""
    import numpy as np

    apart = np.hypot(*(points[:, None] - points[None]).T)
    return np.asarray(np.sort(apart, axis=1)[:, min(3, len(points) - 1)])
