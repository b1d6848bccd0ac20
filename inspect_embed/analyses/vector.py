"""What numbers stand in a token's row?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspect_embed.checkpoint import Checkpoint, TableFacts
from inspect_embed.query import find_query
from inspect_embed.report import Block, Column, Fact, Facts, Grid, Note, Report, Result

LARGEST = 5
"""How many of the largest entries are named."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One number of a row."""

    column: int
    value: float


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its numbers (the first ones where fewer were asked for), its length, its largest entries by size.

    `id` and `token` are None where a word of several tokens stands for the mean of their rows.
    """

    query: str
    id: int | None
    token: str | None
    width: int
    length: float
    mean: float
    largest: tuple[Entry, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Vectors(Result):
    """Rows of one table."""

    checkpoint: str
    table: TableFacts
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """Each row's facts and numbers; the sheet has a line for each row."""
        blocks: list[Block] = []
        for row in self.rows:
            name = row.query if row.id is None else f"{row.token} (id {row.id})"
            largest = ", ".join(f"{entry.value:+.4f} in column {entry.column}" for entry in row.largest)
            facts = (
                Fact("numbers", row.width, ",d"),
                Fact("length", row.length, ".4f", "the root of the sum of squares"),
                Fact("mean", row.mean, "+.4f"),
                Fact("largest", largest),
            )
            blocks.append(Facts(facts, name))
            if row.values:
                blocks.append(_lines_of_numbers(row))
        heads = (
            "query",
            "id",
            "token",
            "length",
            *range(max((len(row.values) for row in self.rows), default=0)),
        )
        sheet = Grid(
            tuple(Column(str(head)) for head in heads),
            [(row.query, row.id, row.token, row.length, *row.values) for row in self.rows],
        )
        return Report(f"{self.checkpoint}: {self.table}", self, (*blocks, *map(Note, self.notes)), sheet)


def vector(
    checkpoint: Checkpoint,
    words: Sequence[str],
    *,
    table: str = "input",
    tensor: str | None = None,
    mean: bool = False,
    first: int | None = None,
) -> Vectors:
    """What numbers stand in these words' rows?

    All of each row's numbers, or the `first` ones, exactly as stored (float32 widened to float64).

    >>> vector(open_checkpoint("checkpoints/toy"), ["·Lily"]).rows[0].width
    128
    """
    import numpy as np

    from inspect_embed.numerics.vectors import row_norms

    opened = checkpoint.table(table, tensor)
    rows: list[Row] = []
    notes: list[str] = list(opened.notes)
    for word in words:
        query = find_query(opened, word, mean)
        stored = opened.rows(query.rows).astype(np.float64)
        values = stored[0] if len(stored) == 1 else np.asarray(query.weights) @ stored
        sizes = np.where(np.isnan(values), -1.0, np.abs(values))
        order = np.argsort(-sizes, kind="stable")[:LARGEST]
        with np.errstate(invalid="ignore", over="ignore"):
            average = float(values.mean())
        rows.append(
            Row(
                word,
                query.id,
                query.token,
                len(values),
                float(row_norms(values[None])[0]),
                average,
                tuple(Entry(int(column), float(values[column])) for column in order),
                tuple(values[:first].tolist()),
            )
        )
        notes += query.notes
        if not np.isfinite(values).all():
            notes.append(f"{word}: {int((~np.isfinite(values)).sum()):,} of its numbers are not finite.")
    notes.append("A single column has no meaning of its own: only the whole row has, beside other rows.")
    return Vectors(checkpoint.location, TableFacts.of(opened), tuple(rows), tuple(dict.fromkeys(notes)))


def _lines_of_numbers(row: Row, per_line: int = 8) -> Grid:
    lines: list[tuple[int | float | None, ...]] = []
    per_line = max(1, min(per_line, len(row.values)))
    for start in range(0, len(row.values), per_line):
        some = row.values[start : start + per_line]
        lines.append((start, *some, *(None,) * (per_line - len(some))))
    heads = (Column(f"+{n}" if n else "", "+.4f") for n in range(per_line))
    return Grid((Column("column", "d"), *heads), lines)
