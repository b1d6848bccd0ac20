"""What does the first layer of the model read for this text?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inspect_embed.checkpoint import Checkpoint, TableFacts, shape_text
from inspect_embed.errors import AnalysisError, TokenError
from inspect_embed.report import Block, Column, Fact, Facts, Grid, Note, Report, Result, Value
from inspect_embed.table import EmbeddingTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_COLUMNS = 5
_ADDED = ("learned", "sinusoidal")


@dataclass(frozen=True, slots=True)
class PlacedToken:
    """A token of the text at its place (from 1): its row, its position's row and their sum."""

    place: int
    id: int
    token: str
    position_row: int | None
    token_vector: tuple[float, ...]
    position_vector: tuple[float, ...] | None
    sum: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class WordOrder:
    """The text read backwards, against the text: largest difference of any number.

    `mean_of_tokens`: between the means of the token rows; `sums`: between the two sequences of sums, place by
    place of the same token; None where nothing is added.
    """

    mean_of_tokens: float
    sums: float | None


@dataclass(frozen=True)
class Embedded(Result):
    """A text as the first layer reads it: three arrays of one shape."""

    checkpoint: str
    table: TableFacts
    position_table: TableFacts | None
    text: str
    shape: tuple[int, int]
    scale: float | None
    tokens: tuple[PlacedToken, ...]
    order: WordOrder
    additions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """The first numbers of each array, token by token."""
        shape = shape_text(self.shape)
        added = self.position_table is not None
        facts = [Fact("token rows", shape, remark=f"from the {self.table}")]
        if self.position_table is not None:
            facts.append(Fact("position rows", shape, remark=f"from the {self.position_table}"))
            last = (
                "what the first layer reads"
                if not self.additions
                else "before what the notes name is done to it"
            )
            facts.append(Fact("their sum", shape, remark=last))
        shown = min(_COLUMNS, self.shape[1])
        numbers = (Column(str(n), "+.4f") for n in range(shown))
        heads = (Column("place", "d"), Column("id", "d"), Column("token"), *numbers)
        blocks: list[Block] = [Facts(tuple(facts))]
        names = ("token rows", "position rows", "sum") if added else ("token rows",)
        for name in names:
            rows: list[tuple[Value, ...]] = [
                (t.place, t.id, t.token, *(_vector_of(t, name)[:shown])) for t in self.tokens
            ]
            blocks.append(Grid(heads, rows, f"{name}, the first {shown} of {self.shape[1]} columns"))
        blocks.append(Facts(tuple(self._order_facts()), "The same tokens in the opposite order"))
        sheet_heads = ("array", "place", "id", "token", *map(str, range(self.shape[1])))
        sheet = Grid(
            tuple(map(Column, sheet_heads)),
            [(name, t.place, t.id, t.token, *_vector_of(t, name)) for name in names for t in self.tokens],
        )
        title = f"{self.checkpoint}: {len(self.tokens)} tokens"
        return Report(title, self, (*blocks, *map(Note, self.notes)), sheet)

    def _order_facts(self) -> list[Fact]:
        facts = [
            Fact(
                "mean of the token rows changes by",
                self.order.mean_of_tokens,
                ".4f",
                "a mean knows no order: without positions, word order is lost",
            )
        ]
        if self.order.sums is not None:
            facts.append(
                Fact(
                    "sums change by up to", self.order.sums, ".4f", "each token now carries its place with it"
                )
            )
        return facts


def embed(checkpoint: Checkpoint, text: str, *, tensor: str | None = None) -> Embedded:
    """What does the first layer read for this text?

    Cuts the text into n tokens (no special tokens are added) and gives three arrays (n, width): the token rows, times
    the family's scale where it has one; the position rows; and their sum. The position rows are there
    where positions are learned or sinusoidal and stored in the file. AnalysisError for a text longer than the
    position table.

    >>> embed(open_checkpoint("checkpoints/toy"), "Lily saw Max").shape
    (3, 128)
    """
    import numpy as np

    table = checkpoint.table("input", tensor)
    if checkpoint.vocabulary is None:
        raise TokenError(
            f"{checkpoint.location} has no tokenizer that can be read, so a text cannot be cut.",
            "Name one with --tokenizer PATH.",
        )
    ids = list(checkpoint.vocabulary.cut(text))
    if not ids:
        raise TokenError("The text is empty: it has no tokens.", "Give a text of one word or more.")
    found = checkpoint.found
    notes = [*table.notes, *found.input_additions]
    scale = found.input_scale
    token_rows = table.rows(ids).astype(np.float64) * (1.0 if scale is None else scale)
    positions, table_rows = _positions(checkpoint, table, len(ids), notes)
    sums = None if positions is None else token_rows + positions
    placed = tuple(
        PlacedToken(
            place + 1,
            row,
            table.labels.text(row),
            None if table_rows is None else table_rows[place],
            tuple(token_rows[place].tolist()),
            None if positions is None else tuple(positions[place].tolist()),
            None if sums is None else tuple(sums[place].tolist()),
        )
        for place, row in enumerate(ids)
    )
    position_facts = TableFacts.of(checkpoint.table("position")) if positions is not None else None
    return Embedded(
        checkpoint.location,
        TableFacts.of(table),
        position_facts,
        text,
        (len(ids), table.width),
        scale,
        placed,
        _turn_round(token_rows, positions),
        found.input_additions,
        tuple(dict.fromkeys(notes)),
    )


def _positions(
    checkpoint: Checkpoint, table: EmbeddingTable, n: int, notes: list[str]
) -> tuple[NDArray[np.float64] | None, list[int] | None]:
    """Rows of the first n positions and their numbers, where positions are added to tokens."""
    import numpy as np

    found = checkpoint.found
    kinds = " and ".join(found.position_kinds)
    if not kinds:
        notes.append(
            "The kind of positions is not known, and so not whether anything is added to the token rows."
        )
        return None, None
    if not any(kind in _ADDED for kind in found.position_kinds):
        notes.append(f"Positions are {kinds}: nothing is added to the token rows before the first layer.")
        return None, None
    if not found.positions:
        notes.append(
            f"Positions are {kinds}, and this file holds no table of them: the token rows alone are shown."
        )
        return None, None
    positions = checkpoint.table("position")
    first = found.positions[0].first_used_row
    usable = positions.n_rows - first
    if n > usable:
        raise AnalysisError(
            f"The text is {n:,} tokens, and {positions.tensor.name} has {usable:,} positions: "
            f"a learned table has no row beyond its length.",
            f"Give a text of {usable:,} tokens or fewer.",
        )
    if positions.width != table.width:
        notes.append(
            f"Position rows are {positions.width:,} wide and token rows {table.width:,}: the model projects one of "
            f"them first, so no sum is shown."
        )
        return None, None
    rows = list(range(first, first + n))
    return positions.rows(rows).astype(np.float64), rows


def _turn_round(tokens: NDArray[Any], positions: NDArray[Any] | None) -> WordOrder:
    import numpy as np

    backwards = tokens[::-1]
    # Sorted before they are summed, so that rounding does not depend on the order either.
    means = [np.sort(rows, axis=0).mean(axis=0) for rows in (tokens, backwards)]
    with np.errstate(invalid="ignore"):
        mean_change = float(np.abs(means[0] - means[1]).max())
        if positions is None:
            return WordOrder(mean_change, None)
        change = (tokens + positions) - (backwards + positions)[::-1]
        return WordOrder(mean_change, float(np.abs(change).max()))


def _vector_of(token: PlacedToken, name: str) -> tuple[float, ...]:
    vector = {
        "token rows": token.token_vector,
        "position rows": token.position_vector,
        "sum": token.sum,
    }[name]
    return vector or ()
