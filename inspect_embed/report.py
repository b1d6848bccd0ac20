"""The neutral blocks that an answer is shown with; every output format is made from them.

An analysis computes a record (its result) and describes it as a `Report`. Values in blocks are numbers and
strings, never numbers rendered as text: how many digits are shown is said beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple

Value = str | int | float | bool | None


class Column(NamedTuple):
    """A column of a grid: its heading, and how its numbers are shown (a format specification)."""

    name: str
    spec: str = ""


class Note(NamedTuple):
    """A sentence worth knowing."""

    text: str


class Fact(NamedTuple):
    """A named value, how it is shown, and a word on it."""

    name: str
    value: Value
    spec: str = ""
    remark: str = ""


class Facts(NamedTuple):
    """Named values, one a line."""

    facts: tuple[Fact, ...]
    title: str = ""


class Grid(NamedTuple):
    """Rows of values under headings."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Value]]
    title: str = ""


class Series(NamedTuple):
    """A line: a name, and its points; `low` and `high` bound a band around it where they are given."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over a common axis."""

    series: tuple[Series, ...]
    x_label: str
    y_label: str
    title: str = ""
    x_log: bool = False
    y_log: bool = False
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Labelled points; `groups` names each point's group ("" for none).

    `neighbors` lists the points that are truly nearest to each, nearest first, as (point, distance), where the
    points are a map of something wider; `path` joins the points in order.
    """

    x: Sequence[float]
    y: Sequence[float]
    labels: Sequence[str]
    x_label: str
    y_label: str
    title: str = ""
    z: Sequence[float] = ()
    z_label: str = ""
    groups: Sequence[str] = ()
    ids: Sequence[int] = ()
    caption: str = ""
    path: bool = False
    neighbors: Sequence[Sequence[tuple[int, float]]] = ()


@dataclass(frozen=True, slots=True)
class Heatmap:
    """A matrix of values under row and column labels; None or NaN where undefined."""

    values: Sequence[Sequence[float | None]]
    row_labels: Sequence[str]
    column_labels: Sequence[str]
    value_label: str
    title: str = ""
    low: float | None = None
    high: float | None = None
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Named parts of a whole, as bars."""

    labels: Sequence[str]
    values: Sequence[float]
    value_label: str
    title: str = ""
    spec: str = ",.1f"
    caption: str = ""


Block = Note | Facts | Grid | Lines | Scatter | Heatmap | Bars


@dataclass(frozen=True, slots=True)
class Report:
    """An answer, ready to be written.

    `blocks` are shown in order; `sheet` is the one table that CSV holds, with every row at full precision;
    `figures` are what a figure file shows, the first unless another is asked for by its key; `arrays` what a
    file of arrays holds, by name: numbers, or texts that belong to their rows.
    """

    title: str
    result: Any
    blocks: tuple[Block, ...] = ()
    sheet: Grid | None = None
    figures: dict[str, Block] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        return "".join(_html(self))


class Result:
    """What every analysis returns: a frozen dataclass that can describe itself."""

    def report(self) -> Report:
        """This result in blocks."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()


def translate(report: Report, change: Callable[[str], str]) -> Report:
    """The same report with every text in its blocks, sheet and title changed; the result stays as it is."""

    def walk(item: Any) -> Any:
        if isinstance(item, str):
            return change(item)
        if isinstance(item, Column):
            return item._replace(name=change(item.name))
        if isinstance(item, Fact):
            return item._replace(name=change(item.name), value=walk(item.value), remark=change(item.remark))
        if isinstance(item, tuple) and hasattr(item, "_make"):
            return item._make(map(walk, item))
        if isinstance(item, list | tuple):
            return type(item)(map(walk, item))
        if is_dataclass(item) and not isinstance(item, type):
            return replace(item, **{part.name: walk(getattr(item, part.name)) for part in fields(item)})
        return item

    return replace(report, title=change(report.title), blocks=walk(report.blocks), sheet=walk(report.sheet))


def show(value: Value, spec: str = "") -> str:
    """A value as people read it: "undefined" for NaN, nothing for None; `.2 %` shows the fraction 0.3102 as 31.02 %."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value != value:
        return "undefined"
    if isinstance(value, str):
        return printable(value)
    text = f"{100 * value:{spec[:-2]}f} %" if spec.endswith(" %") else format(value, spec)
    # A rounded negative zero says nothing that a zero does not.
    return text.removeprefix("-") if text.startswith("-") and not text.strip("-0., %") else text


def printable(text: str) -> str:
    r"""The same text in one line that steers no terminal: a character that cannot be seen is its escape (`\n`, `\x1b`)."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def _html(report: Report) -> Iterator[str]:
    from html import escape

    yield f"<h4>{escape(report.title)}</h4>"
    for block in report.blocks:
        if isinstance(block, Note):
            yield f"<p>{escape(block.text)}</p>"
        elif isinstance(block, Facts):
            yield f"<h5>{escape(block.title)}</h5><table>" if block.title else "<table>"
            for fact in block.facts:
                value = escape(show(fact.value, fact.spec))
                yield f"<tr><th>{escape(fact.name)}</th><td>{value}</td><td>{escape(fact.remark)}</td></tr>"
            yield "</table>"
        elif isinstance(block, Grid):
            yield f"<h5>{escape(block.title)}</h5><table>" if block.title else "<table>"
            yield "<tr>" + "".join(f"<th>{escape(column.name)}</th>" for column in block.columns) + "</tr>"
            for row in block.rows:
                cells = (show(value, column.spec) for value, column in zip(row, block.columns, strict=True))
                yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
            yield "</table>"
