"""How alike are these words, pair by pair?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from inspect_embed.checkpoint import Checkpoint, TableFacts
from inspect_embed.errors import AnalysisError, shorten
from inspect_embed.query import find_query
from inspect_embed.report import Block, Column, Fact, Facts, Grid, Heatmap, Note, Report, Result
from inspect_embed.table import EmbeddingTable, TokenLabels

MOST_WORDS = 2000
"""Words whose every pair is still compared; more would fill the memory with pairs."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word, resolved; `id` is None where it stands for the mean of several tokens."""

    id: int | None
    token: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows compared. `cosine` is NaN where one has no direction, all three where one is not finite."""

    a: Word
    b: Word
    cosine: float
    dot: float
    euclidean: float


@dataclass(frozen=True, slots=True)
class Working:
    """One pair, worked through: the first columns of both rows and the sums over all columns.

    `rest_...` are the sums over the columns that are not shown.
    """

    a: Word
    b: Word
    a_values: tuple[float, ...]
    b_values: tuple[float, ...]
    products: tuple[float, ...]
    width: int
    rest_dot: float
    rest_a_squares: float
    rest_b_squares: float
    dot: float
    a_length: float
    b_length: float
    cosine: float


@dataclass(frozen=True)
class Similarity(Result):
    """Every pair of the words asked for."""

    checkpoint: str
    table: TableFacts
    words: tuple[Word, ...]
    lengths: tuple[float, ...]
    pairs: tuple[Pair, ...]
    working: Working | None = None
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """The pairs as a list, and from three words on as a grid of cosines."""
        numbers = (Column("cosine", ".4f"), Column("dot product", ".4f"), Column("distance", ".4f"))
        rows = [(p.a.token, p.b.token, p.cosine, p.dot, p.euclidean) for p in self.pairs]
        blocks: list[Block] = [Grid((Column("a"), Column("b"), *numbers), rows)]
        figures: dict[str, Block] = {}
        matrix = _matrix(self)
        if len(self.words) > 2:
            tokens = [word.token for word in self.words]
            heads = (Column("cosine"), *(Column(token, ".3f") for token in tokens))
            blocks.append(Grid(heads, [(token, *line) for token, line in zip(tokens, matrix, strict=True)]))
        title = f"{self.checkpoint}: {self.table}"
        figures["map"] = Heatmap(
            matrix,
            [word.token for word in self.words],
            [word.token for word in self.words],
            "cosine",
            "How alike the tokens' vectors are",
            low=-1.0,
            high=1.0,
            caption=title,
        )
        if self.working is not None:
            blocks += _explain(self.working)
        sheet = Grid(
            tuple(map(Column, ("a_id", "a", "b_id", "b", "cosine", "dot", "euclidean"))),
            [(p.a.id, p.a.token, p.b.id, p.b.token, p.cosine, p.dot, p.euclidean) for p in self.pairs],
        )
        return Report(title, self, (*blocks, *map(Note, self.notes)), sheet, figures)


def similarity(
    checkpoint: Checkpoint,
    words: Sequence[str],
    *,
    table: str = "input",
    tensor: str | None = None,
    mean: bool = False,
    explain: int = 0,
) -> Similarity:
    """How alike are these words?

    Every pair of the two or more words, in the order given: cosine in [-1, 1], dot product and Euclidean
    distance, in float64. A row of zeros has no direction: its cosines are NaN. With `explain`, the working of
    the first pair, shown for so many columns.

    cos(a, b) = a . b / (|a| |b|).

    >>> found = similarity(open_checkpoint("checkpoints/toy"), ["·girl", "·boy"])
    >>> 0 < found.pairs[0].cosine < 1
    True
    """
    if len(words) < 2:
        raise AnalysisError(
            f"A comparison needs two words or more; {len(words)} given.", "Give another word."
        )
    if len(words) > MOST_WORDS:
        raise AnalysisError(
            f"{len(words):,} words make {len(words) * (len(words) - 1) // 2:,} pairs, more than are shown at once.",
            f"Give {MOST_WORDS:,} words or fewer; `neighbors` asks about the whole table.",
        )
    import numpy as np

    from inspect_embed.numerics.vectors import cosine, distance, dot, row_norms

    opened = checkpoint.table(table, tensor)
    queries = [find_query(opened, word, mean) for word in words]
    # One read for each word; a mean is a weighted sum of rows.
    vectors = [
        np.asarray(query.weights) @ opened.rows(query.rows).astype(np.float64)
        if len(query.rows) > 1
        else opened.rows(query.rows)[0].astype(np.float64)
        for query in queries
    ]
    found = tuple(Word(query.id, query.token or query.text) for query in queries)
    pairs = tuple(
        Pair(found[i], found[j], cosine(a, b), dot(a, b), distance(a, b))
        for (i, a), (j, b) in combinations(enumerate(vectors), 2)
    )
    notes = [note for query in queries for note in query.notes]
    notes += _notes_on_sorts(opened, [query.id for query in queries if query.id is not None])
    undefined = sum(pair.cosine != pair.cosine for pair in pairs)
    if undefined:
        notes.append(f"{undefined:,} cosines are undefined: a row of zeros, or not finite, has no direction.")
    working = _work(found[0], found[1], vectors[0], vectors[1], explain) if explain else None
    return Similarity(
        checkpoint.location,
        TableFacts.of(opened),
        found,
        tuple(row_norms(np.stack(vectors)).tolist()),
        pairs,
        working,
        (*opened.notes, *dict.fromkeys(notes)),
    )


def _notes_on_sorts(table: EmbeddingTable, ids: Sequence[int]) -> Iterator[str]:
    """Words that begin after a space beside tokens that do not: two sorts, which training keeps apart."""
    if not isinstance(table.labels, TokenLabels) or table.labels.vocabulary is None:
        return
    tokens = [token for id_ in dict.fromkeys(ids) if (token := table.labels.vocabulary.token(id_))]
    led = [token.text for token in tokens if token.kind == "word-start"]
    bare = [token.text for token in tokens if token.kind == "inner"]
    if led and bare:
        yield f"Two sorts of token are compared: with a space before ({shorten(led)}), and without ({shorten(bare)})."


def _work(a: Word, b: Word, x: object, y: object, n: int) -> Working:
    import numpy as np

    from inspect_embed.numerics.vectors import cosine, dot, row_norms

    u, v = np.asarray(x, np.float64), np.asarray(y, np.float64)
    n = min(n, len(u))
    lengths = row_norms(np.stack([u, v]))
    return Working(
        a,
        b,
        tuple(u[:n].tolist()),
        tuple(v[:n].tolist()),
        tuple((u[:n] * v[:n]).tolist()),
        len(u),
        float(u[n:] @ v[n:]),
        float(u[n:] @ u[n:]),
        float(v[n:] @ v[n:]),
        dot(u, v),
        float(lengths[0]),
        float(lengths[1]),
        cosine(u, v),
    )


def _explain(w: Working) -> list[Block]:
    a, b, shown = w.a.token, w.b.token, len(w.a_values)
    numbered = zip(w.a_values, w.b_values, w.products, strict=True)
    rows: list[tuple[str | float, ...]] = [
        (str(column), x, y, product, x * x, y * y) for column, (x, y, product) in enumerate(numbered)
    ]
    if shown < w.width:
        rows.append((f"{shown} to {w.width - 1}", "", "", w.rest_dot, w.rest_a_squares, w.rest_b_squares))
    rows.append(("sum", "", "", w.dot, w.a_length**2, w.b_length**2))
    spec = "+.6f"
    columns = (
        Column("column"),
        Column(a, spec),
        Column(b, spec),
        Column("product", spec),
        Column(f"{a} squared", ".6f"),
        Column(f"{b} squared", ".6f"),
    )
    return [
        Grid(columns, rows, f"The working of {a} and {b}: cos(a, b) = a . b / (|a| |b|)"),
        Facts(
            (
                Fact("a . b", w.dot, ".6f", "the sum of the products"),
                Fact("|a|", w.a_length, ".6f", f"the root of the sum of squares of {a}"),
                Fact("|b|", w.b_length, ".6f", f"the root of the sum of squares of {b}"),
                Fact(
                    "cos(a, b)",
                    w.cosine,
                    ".6f",
                    f"{w.dot:.6f} / ({w.a_length:.6f} x {w.b_length:.6f})"
                    if w.cosine == w.cosine
                    else "no direction",
                ),
            )
        ),
    ]


def _matrix(found: Similarity) -> list[list[float]]:
    n = len(found.words)
    matrix = [[float("nan")] * n for _ in range(n)]
    pairs = iter(found.pairs)
    for i, j in combinations(range(n), 2):
        matrix[i][j] = matrix[j][i] = next(pairs).cosine
    for i, length in enumerate(found.lengths):
        # A row's cosine with itself is 1 where it has a direction at all.
        matrix[i][i] = 1.0 if 0 < length < float("inf") else float("nan")
    return matrix
