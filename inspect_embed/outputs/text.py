"""Plain text for a terminal: aligned columns, whatever script the tokens are in."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from inspect_embed.report import Bars, Facts, Grid, Note, Report, Value, printable, show

SUFFIXES = (".txt",)
_BAR = 40


def render(report: Report) -> str:
    """The report as text that ends with a newline."""
    lines = [report.title] if report.title else []
    previous: object = None
    for block in report.blocks:
        shown = list(_lines(block))
        if shown:
            # Notes stand together; anything else is parted from what comes before it.
            apart = bool(lines) and not (isinstance(block, Note) and isinstance(previous, Note))
            lines += ["", *shown] if apart else shown
            previous = block
    return "\n".join(map(printable, lines)) + "\n"


def width_of(text: str) -> int:
    """How many columns of a terminal does this text take?"""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


def _columns_of(mark: str) -> int:
    """Two for a wide character, none for one that is drawn over the one before it."""
    if unicodedata.combining(mark) or unicodedata.category(mark) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(mark) in "WF" else 1


def _lines(block: object) -> Iterator[str]:
    if isinstance(block, Note):
        yield f"note: {block.text}"
    elif isinstance(block, Facts):
        yield from _facts(block)
    elif isinstance(block, Grid):
        yield from _grid(block)
    elif isinstance(block, Bars):
        yield from _bars(block)


def _facts(block: Facts) -> Iterator[str]:
    if block.title:
        yield block.title
    shown = [(printable(fact.name), show(fact.value, fact.spec), fact.remark) for fact in block.facts]
    names = max((width_of(name) for name, _, _ in shown), default=0)
    for name, value, remark in shown:
        yield f"{_pad(name, names)}  {value}{'   ' + remark if remark else ''}".rstrip()


def _grid(block: Grid) -> Iterator[str]:
    if block.title:
        yield block.title
    cells = [
        [show(value, column.spec) for value, column in zip(row, block.columns, strict=True)]
        for row in block.rows
    ]
    numeric = [_is_numeric(block.rows, place) for place in range(len(block.columns))]
    headings = [printable(column.name) for column in block.columns]
    widths = [max(width_of(text) for text in column) for column in zip(headings, *cells, strict=True)]
    for row in [headings, *cells]:
        padded = (_pad(text, width, right) for text, width, right in zip(row, widths, numeric, strict=True))
        yield "  ".join(padded).rstrip()


def _bars(block: Bars) -> Iterator[str]:
    if block.title:
        yield block.title
    labels = [printable(label) for label in block.labels]
    names = max(map(width_of, labels), default=0)
    largest = max(block.values, default=0) or 1
    for label, value in zip(labels, block.values, strict=True):
        bar = "#" * round(_BAR * value / largest)
        yield f"{_pad(label, names)}  {format(value, block.spec):>12}  {bar}".rstrip()


def _is_numeric(rows: Sequence[Sequence[Value]], place: int) -> bool:
    values = [row[place] for row in rows]
    return all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values
    )


def _pad(text: str, width: int, right: bool = False) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space
