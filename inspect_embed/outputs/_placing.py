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
) -> int:
    """Write texts beside the labelled points; returns how many found no room.

    `over` and `under` are axes before and behind the points whose data are pixels: texts go over, lines from
    text to point go under. points (n, 2) in those pixels; `texts`, one for each labelled point. Tried in turn:
    large before small, lines that cross nothing before lines that do.
    """
    import numpy as np

    # The most crowded points choose first.
    own = points[list(labelled)]
    order = np.argsort(_room(own), kind="stable")
    sizes = next(sizes for most, sizes in _SIZES if len(labelled) <= most)
    attempts = [
        (sizes[0], True, True),
        *((size, True, False) for size in sizes),
        (sizes[-1], False, False),
    ]
    obstacles = points if len(points) <= _OBSTACLES else own
    best: tuple[int, float, bool, bool] | None = None
    for attempt in attempts:
        dropped, drawn, lines = _try(over, own[order], [texts[i] for i in order], obstacles, *attempt)
        if best is None or dropped < best[0]:
            best = (dropped, *attempt)
        if not dropped:
            break
        for text in drawn:
            text.remove()
    else:
        assert best is not None
        dropped, drawn, lines = _try(over, own[order], [texts[i] for i in order], obstacles, *best[1:])
    for text in drawn:
        text.set_color(text_colour)
    for (x0, x1), (y0, y1) in lines:
        if np.hypot(x1 - x0, y1 - y0) > _SHORT_LINE:
            under.plot((x0, x1), (y0, y1), color=line_colour, linewidth=0.9)
    return dropped


def _try(
    over: Axes,
    points: Float64s,
    texts: Sequence[str],
    obstacles: Float64s,
    size: float,
    uncrossed: bool,
    uncovered: bool,
) -> tuple[int, list[Any], list[Any]]:
    """One attempt: how many labels were dropped, the texts drawn, and the ends of the lines to their points."""
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
            max_distance=0.2,
            nbr_candidates=300,
            draw_all=False,
            avoid_crossing_label_lines=uncrossed,
            avoid_label_lines_overlap=uncovered,
        )
    kept: list[Any] = [text for text in drawn if text is not None]
    own_lines: list[Any] = [line for line in drawn_lines if line is not None]
    for line in own_lines:
        line.remove()
    return (
        len(drawn) - len(kept),
        kept,
        [line[:2] for line in lines if line is not None],
    )


def _room(points: Float64s) -> Float64s:
    """How far the third nearest point is from each."""
    import numpy as np

    apart = np.hypot(*(points[:, None] - points[None]).T)
    return np.asarray(np.sort(apart, axis=1)[:, min(3, len(points) - 1)])
