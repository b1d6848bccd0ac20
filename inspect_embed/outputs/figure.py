"""Figures for slides and papers: PNG, SVG, PDF.

Drawn with matplotlib's Figure objects alone: no window, no global state. Text is drawn as it is, never read as
a formula; SVG and PDF keep it as text. The same report gives the same bytes on the same machine.
"""

from __future__ import annotations

import io
import logging
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from inspect_embed.errors import OutputError
from inspect_embed.outputs import PLAIN, Drawing, Style
from inspect_embed.outputs._lettering import Lettering
from inspect_embed.outputs._placing import choose_labelled, place_labels
from inspect_embed.outputs._themes import MARKERS, THEMES, Theme
from inspect_embed.report import Bars, Block, Heatmap, Lines, Report, Scatter

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox
    from numpy.typing import NDArray

SUFFIXES = (".png", ".svg", ".pdf")

_SLIDE_HEIGHT_INCHES = 7.5
"""A slide is 13.33 x 7.5 inches, so that text has the sizes that it has on the slide, in points."""
_TITLE, _AXIS, _TICK, _LEGEND, _SMALL_PRINT = 26, 18, 14, 16, 11
_DRAWING = (
    *("axes", "figure.", "font.", "grid.", "hatch.", "image.", "legend.", "lines.", "mathtext.", "patch."),
    *("path.", "pdf.", "polaraxes.", "savefig.", "scatter.", "svg.", "text.", "xtick.", "ytick."),
)
"""Settings of matplotlib that change what is drawn."""
_MANY_POINTS = 5000
_MOST_CELLS_WRITTEN = 14
_MOST_TICKS = 40
_WIDEST_CELL = 2.0
_MOST_LABELLED = 300
_MOST_STEMS = 80
_MOST_IN_COLUMN = 14
_WIDEST_COLUMN = 0.18
_LEFT, _RIGHT = 0.05, 0.97


def render(report: Report, suffix: str, style: Style = PLAIN) -> bytes:
    """A figure of the report as a file's content; OutputError where it has none."""
    content = draw(report, suffix, style).content
    assert isinstance(content, bytes)
    return content


def draw(report: Report, suffix: str, style: Style = PLAIN) -> Drawing:
    """A figure of the report, and notes on what could not be drawn as it is."""
    block = choose_figure(report, style.view)
    with _own_settings(style):
        page = _Page(block, style)
        _DRAWN[type(block)](page, block)
        page.write_small_print(getattr(block, "caption", ""))
        return Drawing(page.save(suffix), (*page.lettering.notes, *page.notes))


def choose_figure(report: Report, view: str | None) -> Block:
    """The figure of this name, or the first; OutputError where there is none."""
    figures = report.figures
    if not figures:
        raise OutputError(
            "This answer has no figure.",
            "Give a name that ends in .txt, .md, .json or .csv; `project` and `similarity` draw.",
        )
    if view is not None and view not in figures:
        raise OutputError(f"This answer has no figure {view!r}.", f"It has {', '.join(figures)}.")
    return figures[view] if view is not None else next(iter(figures.values()))


@contextmanager
def _own_settings(style: Style) -> Iterator[None]:
    """matplotlib's own defaults and ours, whatever the user's matplotlibrc says; restored afterwards."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    # A home that cannot be written is no trouble of the reader's: a temporary folder serves.
    logger.setLevel(logging.ERROR)
    try:
        import matplotlib

        colours = THEMES[style.theme]
        plain = {key: value for key, value in matplotlib.rcParamsDefault.items() if key.startswith(_DRAWING)}
        ours = {
            "text.parse_math": False,
            "text.color": colours.text,
            "axes.labelcolor": colours.text,
            "axes.edgecolor": colours.faint,
            "axes.facecolor": "none",
            "axes.labelsize": _AXIS,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "grid.color": colours.faint,
            "xtick.color": colours.muted,
            "ytick.color": colours.muted,
            "xtick.labelsize": _TICK,
            "ytick.labelsize": _TICK,
            "svg.fonttype": "none",
            "svg.hashsalt": "inspect-embed",
            "pdf.fonttype": 42,
        }
        settings: dict[Any, Any] = {**plain, **ours}
        with matplotlib.rc_context(settings):
            yield
    finally:
        logger.setLevel(level)


class _Page:
    """A figure under way: title above, small print below, the drawing between.

    `notes` say what its reader is to be told beside what the small print says.
    """

    def __init__(self, block: Block, style: Style) -> None:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.style = style
        self.theme: Theme = THEMES[style.theme]
        self.notes: list[str] = []
        self.small_print: list[str] = []
        self.lettering = Lettering(_texts(block))
        matplotlib.rcParams["font.family"] = self.lettering.families
        dpi = style.height / _SLIDE_HEIGHT_INCHES
        self.figure: Figure = Figure(
            figsize=(style.width / dpi, _SLIDE_HEIGHT_INCHES),
            dpi=dpi,
            facecolor=self.theme.background,
        )
        FigureCanvasAgg(self.figure)
        self.top = 0.95
        self.bottom = 0.165
        self.right = _RIGHT
        self._write_title(getattr(block, "title", ""))

    def _write_title(self, title: str) -> None:
        if not title:
            return
        shown = self.lettering.spell(title)
        text = self.figure.text(_LEFT, self.top, shown, size=_TITLE, va="top")
        width = self._width_of(text)
        if width > _RIGHT - _LEFT:
            text.set_fontsize(max(_AXIS, _TITLE * (_RIGHT - _LEFT) / width))
        self.top -= 0.085

    def write_legend(self, handles: Sequence[Any], names: Sequence[str]) -> None:
        """Names of the groups, in a column at the right, or in rows under the title where they are many or long."""
        shown = [self.lettering.spell(name) for name in names]
        options: dict[str, Any] = {
            "frameon": False,
            "fontsize": _LEGEND if len(shown) <= 12 else _SMALL_PRINT,
            "handletextpad": 0.4,
            "columnspacing": 1.4,
            "borderpad": 0,
        }
        if len(shown) <= _MOST_IN_COLUMN:
            column = self.figure.legend(
                handles,
                shown,
                loc="upper right",
                bbox_to_anchor=(_RIGHT + 0.01, self.top),
                labelspacing=0.6,
                **options,
            )
            width = self._width_of(column)
            if width <= _WIDEST_COLUMN:
                self.right -= width + 0.01
                return
            column.remove()
        for columns in range(min(len(shown), 8), 0, -1):
            row = self.figure.legend(
                handles,
                shown,
                loc="upper left",
                bbox_to_anchor=(_LEFT - 0.004, self.top + 0.012),
                ncols=columns,
                labelspacing=0.3,
                **options,
            )
            if columns == 1 or self._width_of(row) <= _RIGHT - _LEFT:
                break
            row.remove()
        self.top -= (0.05 if len(shown) <= 12 else 0.036) * -(-len(shown) // columns) + 0.01

    def write_small_print(self, caption: str) -> None:
        """The caption and what was noted while drawing, at the foot, in lines that fit."""
        said = " · ".join(
            filter(
                None,
                [self.lettering.spell(caption) if caption else "", *self.small_print],
            )
        )
        if self.lettering.n_replaced:
            said += f" · {self.lettering.n_replaced:,} shown by id, for want of a font"
        if not said:
            return
        for size in (_SMALL_PRINT, 0.85 * _SMALL_PRINT):
            text = self.figure.text(
                _LEFT, 0.028, said, size=size, color=self.theme.muted, va="bottom", linespacing=1.35
            )
            fits = int(len(said) * (_RIGHT - _LEFT) / max(self._width_of(text), 0.01))
            lines = textwrap.wrap(said, max(20, min(fits, len(said))), break_on_hyphens=False)
            text.set_text("\n".join(lines[:3]))
            if len(lines) <= 2:
                return
            if size == _SMALL_PRINT:
                text.remove()

    def add_axes(self, left: float, right: float | None = None) -> Any:
        """Axes between title and small print."""
        right = self.right if right is None else right
        return self.figure.add_axes((left, self.bottom, right - left, self.top - self.bottom))

    def save(self, suffix: str) -> bytes:
        """The figure as a file's content, without dates or versions in it."""
        metadata: dict[str, dict[str, Any]] = {
            ".png": {"Software": "inspect-embed"},
            ".svg": {"Creator": "inspect-embed", "Date": None},
            ".pdf": {
                "Creator": "inspect-embed",
                "Producer": "inspect-embed",
                "CreationDate": None,
            },
        }
        content = io.BytesIO()
        self.figure.savefig(
            content,
            format=suffix.removeprefix("."),
            dpi=self.figure.dpi,
            metadata=metadata[suffix],
            facecolor="none" if self.style.transparent else self.theme.background,
        )
        return content.getvalue()

    def _width_of(self, artist: Any) -> float:
        """Its width as drawn, as a share of the page's."""
        renderer = self.figure.canvas.get_renderer()  # type: ignore[attr-defined]
        return float(artist.get_window_extent(renderer).width / self.figure.bbox.width)


def _texts(block: Block) -> Iterator[str]:
    """Every text of a block that will be drawn."""
    for name in ("title", "caption", "x_label", "y_label", "z_label", "value_label"):
        if text := getattr(block, name, ""):
            yield text
    for name in ("labels", "groups", "row_labels", "column_labels"):
        yield from dict.fromkeys(getattr(block, name, ()))
    for series in getattr(block, "series", ()):
        yield series.name


def _draw_scatter(page: _Page, block: Scatter) -> None:
    import numpy as np

    flat = not len(block.z)
    positions = np.array([block.x, block.y] if flat else [block.x, block.y, block.z], float).T
    n = len(positions)
    groups = list(block.groups) or [""] * n
    names = list(dict.fromkeys(groups))
    grouped = [name for name in names if name]
    if grouped:
        page.write_legend(*_legend_of_groups(page.theme, grouped))
    axes = page.add_axes(left=0.085) if flat else _add_space(page, positions)
    if block.path:
        axes.plot(*positions.T, color=page.theme.muted, linewidth=1.2, alpha=0.6, zorder=1.5)
    if not flat and n <= _MOST_STEMS and not block.path:
        floor = axes.get_zlim()[0]
        for x, y, z in positions:
            axes.plot(
                (x, x),
                (y, y),
                (floor, z),
                color=page.theme.faint,
                linewidth=1,
                zorder=1,
                clip_on=False,
            )
    for name in names:
        members = positions[[group == name for group in groups]]
        colour, marker = _look_of(page.theme, grouped, name)
        more = {} if flat else {"depthshade": False}
        axes.scatter(
            *members.T,
            s=_size_of_points(n),
            color=colour,
            marker=marker,
            edgecolors=page.theme.background if n <= _MOST_LABELLED else "none",
            linewidths=0.8 if n <= _MOST_LABELLED else 0,
            alpha=1.0 if n <= 300 else 0.45,
            rasterized=n > _MANY_POINTS,
            zorder=2,
            clip_on=flat,
            **more,
        )
    axes.set_xlabel(page.lettering.spell(block.x_label), labelpad=4 if flat else 12)
    axes.set_ylabel(page.lettering.spell(block.y_label), labelpad=4 if flat else 12)
    if flat:
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.06)
        axes.grid(True, linewidth=0.8)
        axes.tick_params(length=0)
    else:
        axes.set_zlabel(page.lettering.spell(block.z_label), labelpad=8)
        _fit_space(page, axes, _shape_of_space(positions))
    _label_points(page, axes, positions, block)


def _add_space(page: _Page, positions: NDArray[np.float64]) -> Any:
    """Three axes, seen from above and aside."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator
    from mpl_toolkits.mplot3d import Axes3D  # noqa: F401 (its import makes the projection known)

    axes: Any = page.figure.add_axes((0, 0, 1, 1), projection="3d")
    axes.set_box_aspect(_shape_of_space(positions))
    axes.view_init(elev=20, azim=-60)
    for axis, values in zip((axes.set_xlim, axes.set_ylim, axes.set_zlim), positions.T, strict=True):
        room = 0.06 * (np.ptp(values) or 1.0)
        axis(values.min() - room, values.max() + room)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((0, 0, 0, 0))
        axis.line.set_color(page.theme.muted)
        axis.set_major_locator(MaxNLocator(4))
        axis.set_ticklabels([])
    for label in (axes.xaxis.label, axes.yaxis.label, axes.zaxis.label):
        label.set_fontsize(_TICK)
    return axes


def _shape_of_space(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lengths along the axes are drawn alike, but for an axis that would be very short."""
    import numpy as np

    ranges = np.ptp(positions, axis=0)
    return np.asarray(np.maximum(ranges / (ranges.max() or 1.0), 0.5))


def _fit_space(page: _Page, axes: Any, shape: NDArray[np.float64]) -> None:
    """Size and place the space so that it, its ticks and its names fill what is left of the page."""
    left, bottom, width, height = (0.02, 0.10, page.right - 0.02, page.top - 0.11)
    zoom = 1.0
    for _ in range(3):
        box = _extent_of_space(page, axes)
        zoom *= min(width / box.width, height / box.height)
        axes.set_box_aspect(shape, zoom=zoom)
    box = _extent_of_space(page, axes)
    x, y = (
        left + width / 2 - (box.x0 + box.x1) / 2,
        bottom + height / 2 - (box.y0 + box.y1) / 2,
    )
    axes.set_position((x, y, 1, 1))


def _extent_of_space(page: _Page, axes: Any) -> Bbox:
    """Where the space is drawn, with the names of its axes, in shares of the page."""
    from itertools import product

    import numpy as np
    from matplotlib.transforms import Bbox

    page.figure.draw_without_rendering()
    renderer = page.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [axis.get_tightbbox(renderer) for axis in (axes.xaxis, axes.yaxis, axes.zaxis)]
    corners = np.array(list(product(axes.get_xlim(), axes.get_ylim(), axes.get_zlim())))
    boxes.append(Bbox.null())
    boxes[-1].update_from_data_xy(_to_pixels(axes, corners))
    return Bbox.union(boxes).transformed(page.figure.transFigure.inverted())


def _label_points(page: _Page, axes: Any, positions: NDArray[np.float64], block: Scatter) -> None:
    if not len(block.labels):
        return
    page.figure.draw_without_rendering()
    left, bottom, width, height = (0.02, page.bottom, 0.96, page.top - page.bottom)
    if not len(block.z):
        left, bottom, width, height = axes.get_position().bounds
    page_width, page_height = page.figure.bbox.size
    pixels = _to_pixels(axes, positions) - [left * page_width, bottom * page_height]
    # Along a path the report chooses: points without a label stay bare.
    named = [point for point, label in enumerate(block.labels) if label]
    labelled = named if block.path else choose_labelled(pixels)
    ids: Sequence[int | None] = block.ids or [None] * len(positions)
    texts = [page.lettering.spell(block.labels[point], ids[point]) for point in labelled]
    over, under = (page.figure.add_axes((left, bottom, width, height), frameon=False) for _ in range(2))
    for layer, zorder in ((over, 5), (under, -5)):
        layer.set(
            xlim=(0, width * page_width),
            ylim=(0, height * page_height),
            xticks=[],
            yticks=[],
            zorder=zorder,
        )
    dropped = place_labels(
        over, under, pixels, labelled, texts, page.theme.text, page.theme.muted, page.theme.background
    )
    if len(labelled) < len(positions):
        over.scatter(
            pixels[labelled, 0], pixels[labelled, 1], s=26, color=page.theme.text, linewidths=0, zorder=0.5
        )
        page.small_print.append(f"{len(labelled) - dropped:,} of {len(positions):,} points labelled")
    elif dropped:
        page.small_print.append(f"{dropped:,} of {len(positions):,} labels left out for want of room")
        page.notes.append(
            f"{dropped:,} of {len(positions):,} labels found no room and were left out of the figure; "
            f"-o with a name that ends in .html shows them all."
        )


def _to_pixels(axes: Any, positions: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    if positions.shape[1] == 3:
        from mpl_toolkits.mplot3d.proj3d import proj_transform

        x, y, _ = proj_transform(*positions.T, axes.get_proj())
        positions = np.column_stack([x, y])
    return np.asarray(axes.transData.transform(positions), np.float64)


def _legend_of_groups(theme: Theme, grouped: list[str]) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    looks = [_look_of(theme, grouped, name) for name in grouped]
    handles = [
        Line2D(
            [],
            [],
            linestyle="",
            marker=marker,
            color=colour,
            markersize=11,
            markeredgewidth=0,
        )
        for colour, marker in looks
    ]
    return handles, grouped


def _look_of(theme: Theme, grouped: list[str], name: str) -> tuple[str, str]:
    """Colour and shape of a group; both start anew after eight, out of step."""
    if not name:
        return (theme.muted if grouped else theme.palette[0]), MARKERS[0]
    place = grouped.index(name)
    turn = place // len(theme.palette)
    return theme.palette[place % len(theme.palette)], MARKERS[(place + turn) % len(MARKERS)]


def _size_of_points(n: int) -> float:
    sizes = ((60, 110), (200, 60), (1000, 24), (_MANY_POINTS, 10))
    return next((size for most, size in sizes if n <= most), 4)


def _draw_heatmap(page: _Page, block: Heatmap) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    values = np.array([[np.nan if v is None else v for v in row] for row in block.values], float)
    low = float(np.nanmin(values)) if block.low is None else block.low
    high = float(np.nanmax(values)) if block.high is None else block.high
    theme = page.theme
    two_sided = low < 0 < high
    stops = [theme.low, theme.middle, theme.high] if two_sided else [theme.middle, theme.high]
    if two_sided:
        # Zero is the middle of the colours, whatever the bounds are.
        high = max(high, -low)
        low = -high
    colours = LinearSegmentedColormap.from_list("inspect-embed", stops).with_extremes(bad=theme.faint)
    page.bottom = 0.11
    axes = page.add_axes(left=_LEFT)
    picture = axes.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=low, vmax=high, aspect="auto")
    axes.tick_params(length=0, labelcolor=theme.text)
    axes.xaxis.tick_top()
    for spine in axes.spines.values():
        spine.set_visible(False)
    rows, columns = values.shape
    _name_ticks(page, axes.yaxis, block.row_labels, 0)
    _name_ticks(page, axes.xaxis, block.column_labels, 90 if columns > 16 else 40)
    _fit_heatmap(page, axes, columns / rows)
    if max(rows, columns) <= _MOST_CELLS_WRITTEN:
        size = 18 if max(rows, columns) <= 8 else 13
        for (i, j), value in np.ndenumerate(values):
            said = "–" if np.isnan(value) else f"{value:.2f}".replace("-", "−")
            colour = (
                theme.text if np.isnan(value) else _readable_on(colours((value - low) / ((high - low) or 1)))
            )
            axes.text(j, i, said, ha="center", va="center_baseline", size=size, color=colour)
    box = axes.get_position()
    bar_axes = page.figure.add_axes((box.x1 + 0.02, box.y0, 0.014, box.height))
    bar = page.figure.colorbar(picture, cax=bar_axes)
    bar.outline.set_visible(False)
    bar.set_label(page.lettering.spell(block.value_label))
    bar_axes.tick_params(length=0)
    if np.isnan(values).any():
        page.small_print.append("grey: undefined")


def _name_ticks(page: _Page, axis: Any, labels: Sequence[str], turned: float) -> None:
    """Names along an axis; where they are many, every so manieth."""
    step = -(-len(labels) // _MOST_TICKS)
    shown = range(0, len(labels), step)
    size = _AXIS if len(labels) <= 12 else _TICK if len(labels) <= 22 else 10
    axis.set_ticks(
        list(shown),
        [page.lettering.spell(labels[place]) for place in shown],
        fontsize=size,
    )
    if turned:
        for text in axis.get_ticklabels():
            text.set(
                rotation=turned,
                ha="center" if turned == 90 else "left",
                va="bottom",
                rotation_mode="anchor" if turned != 90 else "default",
            )
    if step > 1 and (said := f"one name in {step} shown") not in page.small_print:
        page.small_print.append(said)


def _fit_heatmap(page: _Page, axes: Any, shape: float) -> None:
    """Make room for the names, which stand outside the axes; cells are at most _WIDEST_CELL times as wide as high."""
    renderer = page.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    page.figure.draw_without_rendering()
    to_page = page.figure.transFigure.inverted()
    outer = axes.get_tightbbox(renderer).transformed(to_page)
    inner = axes.get_window_extent(renderer).transformed(to_page)
    left, top = inner.x0 - outer.x0, outer.y1 - inner.y1
    height = page.top - page.bottom - top
    across = page.figure.bbox.height / page.figure.bbox.width
    width = min(_RIGHT - 0.11 - _LEFT - left, height * shape * across * _WIDEST_CELL)
    axes.set_position((_LEFT + left, page.bottom, width, height))


def _readable_on(colour: Sequence[float]) -> str:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#111418" if luminance > 0.2 else "#ffffff"


def _draw_lines(page: _Page, block: Lines) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter

    theme = page.theme
    looks = [theme.palette[place % len(theme.palette)] for place in range(len(block.series))]
    if len(block.series) > 1:
        handles = [
            Line2D(
                [],
                [],
                color=colour,
                linewidth=4,
                linestyle="--" if series.dashed else "-",
            )
            for colour, series in zip(looks, block.series, strict=True)
        ]
        page.write_legend(handles, [series.name for series in block.series])
    axes: Axes = page.add_axes(left=0.085)
    for colour, series in zip(looks, block.series, strict=True):
        few = len(series.x) <= 25
        axes.plot(
            series.x,
            series.y,
            color=colour,
            linewidth=3,
            linestyle="--" if series.dashed else "-",
            marker="o" if few and not series.dashed else None,
            markersize=8,
        )
        if len(series.low):
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel(page.lettering.spell(block.x_label), labelpad=6)
    axes.set_ylabel(page.lettering.spell(block.y_label), labelpad=8)
    for scaled, axis in ((block.x_log, axes.xaxis), (block.y_log, axes.yaxis)):
        if scaled:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
            # matplotlib would write powers as formulas.
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axes.margins(x=0.02)
    axes.grid(True, linewidth=0.8)
    axes.tick_params(length=0)
    _make_room(page, axes)


def _make_room(page: _Page, axes: Axes) -> None:
    """Move the axes to the right where their long numbers would push the label off the page."""
    page.figure.draw_without_rendering()
    outside = 0.012 - axes.yaxis.label.get_window_extent().x0 / page.figure.bbox.width
    if outside > 0:
        left, bottom, width, height = axes.get_position().bounds
        axes.set_position((left + outside, bottom, width - outside, height))


def _draw_bars(page: _Page, block: Bars) -> None:
    theme = page.theme
    whole = sum(block.values)
    n = len(block.values)
    size = 20 if n <= 8 else 16 if n <= 12 else _SMALL_PRINT
    names = [page.lettering.spell(label) for label in block.labels]
    axes: Axes = page.add_axes(left=0.27, right=0.74)
    shares = [value / whole if whole else 0.0 for value in block.values]
    places = range(n)
    # The track behind each bar is the whole.
    axes.barh(places, [1] * n, height=0.62, color=theme.faint, linewidth=0)
    axes.barh(places, shares, height=0.62, color=theme.palette[0], linewidth=0)
    for place, (name, share, value) in enumerate(zip(names, shares, block.values, strict=True)):
        axes.text(-0.02, place, name, ha="right", va="center", size=size)
        axes.text(1.03, place, _percent(share, value), ha="left", va="center", size=size)
        axes.text(
            1.46,
            place,
            format(value, block.spec),
            ha="right",
            va="center",
            size=min(size, _TICK),
            color=theme.muted,
        )
    axes.set(xlim=(0, 1), ylim=(n - 0.4, -0.6), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if block.value_label:
        axes.text(
            1.46,
            -0.62,
            page.lettering.spell(block.value_label),
            ha="right",
            va="bottom",
            size=_TICK,
            color=theme.muted,
        )


def _percent(share: float, value: float) -> str:
    return "< 0.1 %" if value > 0 and share < 0.0005 else f"{100 * share:.1f} %"


_DRAWN: dict[type, Callable[[_Page, Any], None]] = {
    Scatter: _draw_scatter,
    Heatmap: _draw_heatmap,
    Lines: _draw_lines,
    Bars: _draw_bars,
}
