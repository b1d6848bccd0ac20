"""Which tokens are nearest to a word?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inspect_embed.checkpoint import Checkpoint, TableFacts
from inspect_embed.errors import AnalysisError, shorten
from inspect_embed.query import Query, combine, find_query, query_vectors
from inspect_embed.report import Block, Column, Grid, Note, Report, Result
from inspect_embed.table import EmbeddingTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from inspect_embed.numerics.search import Frame, Nearest

METRICS = ("cosine", "dot", "euclidean")
_NAMES = {"cosine": "cosine", "dot": "dot product", "euclidean": "distance"}


@dataclass(frozen=True, slots=True)
class Neighbor:
    """One of the nearest rows.

    `score`: cosine, dot product, or Euclidean distance. `percentile`: 100 x the share of the rows compared that
    are strictly farther. `z`: the score's distance from the mean score, in standard deviations, nearer positive;
    NaN where all rows score alike.
    """

    rank: int
    id: int
    token: str
    score: float
    percentile: float
    z: float


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """One query and its nearest rows; `id` and `token` are None where the query is no single row."""

    query: str
    id: int | None
    token: str | None
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class Neighbors(Result):
    """The nearest rows of one table to each query."""

    checkpoint: str
    table: TableFacts
    metric: str
    results: tuple[Neighborhood, ...]
    n_compared: int
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """Each neighbourhood as a grid; the sheet holds them all."""
        score = _NAMES[self.metric]
        places = self.table.role == "position"
        columns = (
            Column("rank", "d"),
            Column("row" if places else "id", "d"),
            Column("place" if places else "token"),
            Column(score, ".4f"),
            Column("percentile", ".3f"),
            Column("z", ".2f"),
        )
        blocks: list[Block] = []
        for found in self.results:
            title = found.query if found.id is None else f"{found.token} ({columns[1].name} {found.id})"
            rows = [(n.rank, n.id, n.token, n.score, n.percentile, n.z) for n in found.neighbors]
            blocks.append(Grid(columns, rows, title))
        sheet = Grid(
            tuple(map(Column, ("query", "query_id", "rank", "id", "token", "score", "percentile", "z"))),
            [
                (found.query, found.id, n.rank, n.id, n.token, n.score, n.percentile, n.z)
                for found in self.results
                for n in found.neighbors
            ],
        )
        title = (
            f"{self.checkpoint}: nearest by {score} in the {self.table} ({self.n_compared:,} rows compared)"
        )
        return Report(title, self, (*blocks, *map(Note, self.notes)), sheet)


def neighbors(
    checkpoint: Checkpoint,
    words: Sequence[str] = (),
    *,
    k: int = 10,
    metric: str = "cosine",
    table: str = "input",
    query_table: str | None = None,
    tensor: str | None = None,
    plus: Sequence[str] = (),
    minus: Sequence[str] = (),
    mean: bool = False,
    center: bool = False,
    remove_top: int = 0,
    all_rows: bool = False,
) -> Neighbors:
    """Which tokens are nearest to each of these words?

    Every row of the table that has a direction and (unless `all_rows`) a name is compared; the query's own rows
    are left out by id. Scores are those of float64 arithmetic on all rows; ties go by id; k is cut to what exists.

    `metric`: "cosine", "dot" or "euclidean" (the score is then the distance). `table`: "input", "output" or
    "position"; `query_table` takes the query's row from another table. `plus` and `minus` are added to and
    taken from each word, or stand alone where there is none. `mean`: a word of several tokens is the mean of
    their rows. `center` takes away the mean of the rows compared and the query; `remove_top` the n leading
    principal directions besides (Mu & Viswanath 2018, "All-but-the-Top", algorithm 1).

    Cost: one pass over the table. Errors: TokenError, TableError, AnalysisError.

    >>> found = neighbors(open_checkpoint("checkpoints/toy"), ["·girl"], k=1)
    >>> found.results[0].neighbors[0].token
    '·boy'
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {METRICS}, not {metric!r}")
    if k < 1 or remove_top < 0:
        raise ValueError("k must be at least 1, and remove_top at least 0")
    searched = checkpoint.table(table, tensor)
    asked = checkpoint.table(query_table) if query_table not in (None, table) else searched
    if asked.width != searched.width:
        raise AnalysisError(
            f"Rows of {asked.tensor.name} are {asked.width} wide, those of {searched.tensor.name} "
            f"{searched.width}: they cannot be compared.",
            "The model projects one onto the other; ask each table about its own rows.",
        )
    queries = _resolve(asked, words, plus, minus, mean)
    if remove_top >= searched.width:
        raise AnalysisError(
            f"The table is {searched.width} wide: taking away {remove_top} directions leaves nothing.",
            f"Give a number below {searched.width}.",
        )
    vectors = query_vectors(asked, queries)
    notes = [note for query in queries for note in query.notes]
    found, more = _search(
        searched, queries, vectors, k, metric, (center or remove_top > 0, remove_top), all_rows
    )
    notes += more
    labels = searched.labels
    results = tuple(
        Neighborhood(query.text, query.id, query.token, tuple(_neighbors(nearest, labels.text)))
        for query, nearest in zip(queries, found, strict=True)
    )
    if asked is searched:
        notes += _notes_on_twins(searched, queries, found, metric)
    all_notes = (*searched.notes, *(asked.notes if asked is not searched else ()), *dict.fromkeys(notes))
    n_compared = max((nearest.n_compared for nearest in found), default=0)
    return Neighbors(checkpoint.location, TableFacts.of(searched), metric, results, n_compared, all_notes)


def _resolve(
    table: EmbeddingTable, words: Sequence[str], plus: Sequence[str], minus: Sequence[str], mean: bool
) -> list[Query]:
    queries = [find_query(table, word, mean) for word in words]
    if not plus and not minus:
        return queries
    terms = [(1.0, find_query(table, word, mean)) for word in plus]
    terms += [(-1.0, find_query(table, word, mean)) for word in minus]
    return [combine([(1.0, query), *terms]) for query in queries] or [combine(terms)]


def _search(
    table: EmbeddingTable,
    queries: list[Query],
    vectors: NDArray[np.float64],
    k: int,
    metric: str,
    frame_wanted: tuple[bool, int],
    all_rows: bool,
) -> tuple[list[Nearest], list[str]]:
    import numpy as np

    from inspect_embed.numerics import search
    from inspect_embed.numerics.vectors import has_direction, row_norms

    named = np.ones(table.n_rows, bool) if all_rows else table.labels.named(table.n_rows)
    notes: list[str] = []
    frame: Frame | None = None
    if frame_wanted[0]:
        frame = search.fit_frame(table, named & has_direction(table.norms), frame_wanted[1])
        vectors = _apply_frame(frame, queries, vectors)
        notes.append(
            "The mean of the rows was taken away"
            + (f", and the {frame_wanted[1]} leading directions." if frame_wanted[1] else ".")
        )
    for query, vector in zip(queries, vectors, strict=True):
        if not vector.any() or not np.isfinite(vector).all():
            raise AnalysisError(f"{query.text} comes to a vector without direction.", "Ask for other words.")
    asked = vectors
    left_out = [list(query.rows) for query in queries]
    if metric != "cosine":
        # A fixed direction that has nothing to do with any token, as long as the first query.
        random = np.random.default_rng(0).standard_normal(table.width)
        asked = np.vstack([vectors, random / row_norms(random[None]) * row_norms(vectors[:1])])
        left_out = [*left_out, []]
    known = table.norms if table.norms_known else None
    found, norms = search.find_nearest(table, asked, k, metric, named, left_out, known, frame)
    table.keep_norms(norms)
    if metric != "cosine":
        *found, by_chance = found
        usual = {*by_chance.ids.tolist(), *_extreme_rows(norms, named, k, longest=metric == "dot")}
        notes += _notes_on_chance(queries, found, usual, metric)
    least = min((nearest.n_compared for nearest in found), default=0)
    if least < k:
        notes.append(f"Only {least:,} rows can be compared, so there are no {k:,} neighbours.")
    if not all_rows and (unnamed := int(np.count_nonzero(~named))):
        notes.append(f"{unnamed:,} rows without a token were left out; --all-rows takes them in.")
    if broken := int(np.count_nonzero(~has_direction(norms))):
        notes.append(f"{broken:,} rows are zero or not finite: they have no direction and were left out.")
    return found, notes


def _apply_frame(frame: Frame, queries: list[Query], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """A sum of rows is the sum of the rows seen in the frame: the mean goes once for each unit of weight."""
    import numpy as np

    return frame.apply(vectors, np.array([[sum(query.weights)] for query in queries]))


def _neighbors(nearest: Nearest, text: Callable[[int], str]) -> list[Neighbor]:
    columns = (nearest.ids, nearest.scores, nearest.percentiles, nearest.z)
    return [
        Neighbor(rank, row, text(row), score, percentile, z)
        for rank, (row, score, percentile, z) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True), 1
        )
    ]


def _notes_on_twins(
    table: EmbeddingTable, queries: list[Query], found: list[Nearest], metric: str
) -> Iterator[str]:
    """Neighbours whose rows are the query's own, number by number."""
    step = 1024
    for query, nearest in zip(queries, found, strict=True):
        # Equal rows have a cosine of exactly 1, and no distance at all.
        alike = nearest.ids if metric == "dot" else nearest.ids[nearest.scores == (metric == "cosine")]
        if query.id is None or not len(alike):
            continue
        own = table.rows([query.id])
        twins: list[int] = []
        for start in range(0, len(alike), step):
            some = alike[start : start + step]
            twins += some[(table.rows(some) == own).all(axis=1)].tolist()
        if twins:
            names = shorten(map(table.labels.text, twins))
            yield f"The same numbers as in the row of {query.token or query.text} stand in that of {names}."


def _extreme_rows(norms: NDArray[np.float64], named: NDArray[np.bool_], k: int, longest: bool) -> list[int]:
    """The k longest, or shortest, of the rows that can be answers."""
    import numpy as np

    from inspect_embed.numerics.vectors import has_direction

    rows = np.flatnonzero(named & has_direction(norms))
    order = np.argsort(norms[rows], kind="stable")
    extreme: list[int] = rows[order[::-1][:k] if longest else order[:k]].tolist()
    return extreme


def _notes_on_chance(queries: list[Query], found: list[Nearest], usual: set[int], metric: str) -> list[str]:
    """Lengths can decide dot products and distances for any query whatever: then the answer says it."""
    what = "longest" if metric == "dot" else "shortest"
    return [
        f"{query.text}: {shared} of these {len(nearest.ids)} would be near to almost any query: they are among the "
        f"{what} rows, or also nearest to a random vector. Cosine looks at directions alone."
        for query, nearest in zip(queries, found, strict=True)
        if (shared := len(usual.intersection(nearest.ids.tolist()))) * 2 > len(nearest.ids)
    ]
