"""Which rows does a query name, and which vector do they stand for?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inspect_embed.errors import AnalysisError, NotOneTokenError
from inspect_embed.table import EmbeddingTable, TokenLabels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Query:
    """A query, resolved: a weighted sum of rows.

    `text` is what was asked; `id` and `token` name the one row it stands for (None where it is a sum).
    """

    text: str
    rows: tuple[int, ...]
    weights: tuple[float, ...]
    id: int | None
    token: str | None
    notes: tuple[str, ...] = ()


def find_query(table: EmbeddingTable, text: str, mean: bool = False) -> Query:
    """Which row does this word name?

    With `mean`, a word of several tokens stands for the mean of their rows. TokenError where the word is not
    in the vocabulary, or is several tokens and `mean` was not asked for.
    """
    try:
        found = table.labels.find(text)
    except NotOneTokenError:
        if not mean or not isinstance(table.labels, TokenLabels) or table.labels.vocabulary is None:
            raise
        pieces = tuple(table.labels.vocabulary.pieces(text))
        shown = " + ".join(table.labels.text(row) for row in pieces)
        note = f"{text!r} is {len(pieces)} tokens: the mean of {shown} stands for it."
        return Query(text, pieces, (1 / len(pieces),) * len(pieces), None, None, (note,))
    return Query(text, (found.row,), (1.0,), found.row, found.label, found.notes)


def combine(queries: Iterable[tuple[float, Query]]) -> Query:
    """One query from several: word arithmetic, `a + b - c`."""
    rows: list[int] = []
    weights: list[float] = []
    notes: list[str] = []
    text = ""
    for sign, query in queries:
        text += f" {'+' if sign > 0 else '-'} {query.text}"
        rows += query.rows
        weights += [sign * weight for weight in query.weights]
        notes += query.notes
    return Query(text.removeprefix(" + ").strip(), tuple(rows), tuple(weights), None, None, tuple(notes))


def query_vectors(table: EmbeddingTable, queries: Sequence[Query]) -> NDArray[np.float64]:
    """The vectors that the queries stand for, as stored: float64 (len(queries), width).

    UnknownTokenError where a row is not in the table; AnalysisError where a row, or a sum, has no direction.
    """
    import numpy as np

    vectors: list[NDArray[np.float64]] = []
    for query in queries:
        rows = table.rows(query.rows).astype(np.float64)
        directed: NDArray[np.bool_] = np.logical_and(np.isfinite(rows).all(axis=1), rows.any(axis=1))
        for row, sound in zip(query.rows, directed, strict=True):
            if not sound:
                what = "all zeros" if not rows[query.rows.index(row)].any() else "not all finite numbers"
                raise AnalysisError(
                    f"{query.text}: row {row:,} of {table.tensor.name} is {what}, so it has no direction "
                    f"and no neighbours.",
                    "Ask for another token; `vector` shows the row itself.",
                )
        vectors.append(rows[0] if query.weights == (1.0,) else np.asarray(query.weights) @ rows)
    return np.stack(vectors) if vectors else np.empty((0, table.width))
