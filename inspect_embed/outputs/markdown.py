"""Markdown: tables that a document takes as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from inspect_embed.report import Bars, Facts, Grid, Note, Report, Value, printable, show

SUFFIXES = (".md", ".markdown")
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~$&!]|:(?=[\w+-]+:))")
"""What Markdown reads as more than itself; a colon where it begins the name of a picture, `:smile:`."""
_LIST_MARK = re.compile(r"^(\d*)([-+=.)])")


def render(report: Report) -> str:
    """The report as Markdown (GitHub's tables)."""
    parts = [f"**{_escape(report.title)}**"] if report.title else []
    parts += ["\n".join(lines) for lines in map(list, map(_lines, report.blocks)) if lines]
    return "\n\n".join(parts) + "\n"


def _lines(block: object) -> Iterator[str]:
    if isinstance(block, Note):
        yield f"> {_escape_line(block.text)}"
    elif isinstance(block, Facts):
        facts = [[fact.name, show(fact.value, fact.spec), fact.remark] for fact in block.facts]
        yield from _table(block.title, ["", "", ""], [False, False, False], facts)
    elif isinstance(block, Grid):
        numeric = [_is_numeric([row[place] for row in block.rows]) for place in range(len(block.columns))]
        rows = [
            [show(value, column.spec) for value, column in zip(row, block.columns, strict=True)]
            for row in block.rows
        ]
        yield from _table(block.title, [column.name for column in block.columns], numeric, rows)
    elif isinstance(block, Bars):
        parts = [
            [label, format(value, block.spec)]
            for label, value in zip(block.labels, block.values, strict=True)
        ]
        yield from _table(block.title, ["", block.value_label], [False, True], parts)


def _table(title: str, headings: list[str], numeric: list[bool], rows: list[list[str]]) -> Iterator[str]:
    if title:
        yield _escape_line(title)
        yield ""
    yield "| " + " | ".join(map(_escape, headings)) + " |"
    yield "|" + "|".join("---:" if right else "---" for right in numeric) + "|"
    for row in rows:
        yield "| " + " | ".join(map(_escape, row)) + " |"


def _is_numeric(values: list[Value]) -> bool:
    return all(value is None or isinstance(value, int | float) for value in values)


def _escape(text: str) -> str:
    """Every mark that Markdown would read is escaped: tokens are shown as they are."""
    return _MARKS.sub(r"\\\1", printable(text))


def _escape_line(text: str) -> str:
    """A line of its own, which must not become an item of a list, or a rule under the line before."""
    return _LIST_MARK.sub(r"\1\\\2", _escape(text))
