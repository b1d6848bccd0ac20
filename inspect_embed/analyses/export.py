"""Which rows go to another program, with their ids, their tokens, their places on a map and their neighbours?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inspect_embed.checkpoint import Checkpoint, TableFacts
from inspect_embed.errors import AnalysisError, NotOneTokenError, TokenError
from inspect_embed.query import find_query
from inspect_embed.report import Block, Fact, Facts, Note, Report, Result
from inspect_embed.table import EmbeddingTable, TokenLabels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

MAPS = ("pca", "tsne")
_MAP_NAMES = {"pca": "PCA", "tsne": "t-SNE"}


@dataclass(frozen=True)
class Written(Result):
    """What was written: the record of an export without its arrays. `map` is None where no map was asked for."""

    checkpoint: str
    table: TableFacts
    n_rows: int
    width: int
    map: str | None
    neighbors: int
    to: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """The files, a line each, after what they hold."""
        what = ["vectors", "ids", "tokens"]
        what += [f"a map ({_MAP_NAMES[self.map]})"] if self.map is not None else []
        what += [f"{self.neighbors} neighbours of each"] if self.neighbors else []
        facts = (
            Fact("rows", self.n_rows, ",d", f"{self.width:,} wide"),
            Fact("with", ", ".join(what)),
            *(Fact("written", file) for file in self.files),
        )
        blocks: tuple[Block, ...] = (Facts(facts), *map(Note, self.notes))
        return Report(f"{self.checkpoint}: rows of the {self.table}, for {self.to}", self, blocks)


@dataclass(frozen=True)
class Export(Result):
    """Rows of a table, ready to be written for another program.

    `vectors` (n, width), float32 or float64, as stored; `ids` their rows; `tokens` as people read them.
    `coordinates` (n, 2) on the `map`, NaN for rows that are zero or not finite; None without a map. `neighbors` (n, k)
    and `distances` (n, k): for each row the places, counted from 0, of its nearest among the rows exported, and
    1 - cosine; -1 and NaN for rows that have no direction; None where none were asked for.
    """

    checkpoint: str
    table: TableFacts
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    vectors: Floats
    map: str | None
    coordinates: Floats | None
    neighbors: NDArray[np.int64] | None
    distances: NDArray[np.float64] | None
    notes: tuple[str, ...] = ()

    def written(self, to: str, files: Sequence[str]) -> Written:
        """The record of what was written to these files."""
        n_rows, width = self.vectors.shape
        most = 0 if self.neighbors is None else self.neighbors.shape[1]
        return Written(
            self.checkpoint, self.table, n_rows, width, self.map, most, to, tuple(files), self.notes
        )

    def report(self) -> Report:
        """The arrays, and the facts on them."""
        import numpy as np

        arrays: dict[str, Any] = {
            "vectors": self.vectors,
            "ids": np.array(self.ids, np.int64),
            "tokens": list(self.tokens),
        }
        if self.coordinates is not None:
            arrays["coordinates"] = self.coordinates
        if self.neighbors is not None:
            arrays["neighbors"] = self.neighbors
            arrays["distances"] = self.distances
        shown = self.written("other programs", ()).report()
        return Report(shown.title, shown.result, shown.blocks, arrays=arrays)


def export(
    checkpoint: Checkpoint,
    words: Sequence[str] = (),
    *,
    first: int | None = None,
    grep: str | None = None,
    table: str = "input",
    tensor: str | None = None,
    with_map: str | None = None,
    neighbors: int = 0,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Export:
    """Which rows go to another program?

    `words`, the tokens that the regular expression `grep` matches (the `first` of them), the `first` rows that a token
    names; with none of these, every row that a token names. A row goes once. Rows are exported as they are, zero
    or not finite ones too.

    `with_map`: "pca" or "tsne", fitted on the rows exported. `neighbors`: how many of the nearest, by cosine, are
    found for each row among those exported, at the cost of n x n cosines.

    Errors: TokenError, TableError, AnalysisError.

    >>> found = export(open_checkpoint("checkpoints/toy"), ["·red", "·blue"])
    >>> found.tokens, found.vectors.shape
    (('·red', '·blue'), (2, 128))
    """
    if with_map is not None and with_map not in MAPS:
        raise ValueError(f"with_map is None or one of {MAPS}, not {with_map!r}")
    opened = checkpoint.table(table, tensor)
    notes: list[str] = [*opened.notes]
    rows = _choose(opened, words, first, grep, notes)
    vectors = _gather(opened, rows)
    n_broken = len(rows) - len(_sound_places(vectors))
    if n_broken:
        notes.append(
            f"{n_broken:,} of the rows {'is' if n_broken == 1 else 'are'} zero or not finite; they are written as they are."
        )
    coordinates = None if with_map is None else _draw(vectors, with_map, seed, progress)
    near, distances = _find_neighbors(vectors, neighbors) if neighbors else (None, None)
    text = opened.labels.text
    return Export(
        checkpoint.location,
        TableFacts.of(opened),
        tuple(rows),
        tuple(map(text, rows)),
        vectors,
        with_map,
        coordinates,
        near,
        distances,
        tuple(dict.fromkeys(notes)),
    )


def _choose(
    table: EmbeddingTable, words: Sequence[str], first: int | None, grep: str | None, notes: list[str]
) -> list[int]:
    """The rows asked for, each once, in the order asked for."""
    import numpy as np

    rows: list[int] = []
    for word in words:
        try:
            query = find_query(table, word)
        except NotOneTokenError as error:
            raise NotOneTokenError(
                str(error), "A row of the table goes out for each word: ask for its pieces."
            ) from None
        rows += query.rows
        notes += query.notes
    if grep is not None:
        if not isinstance(table.labels, TokenLabels) or table.labels.vocabulary is None:
            raise TokenError("--grep needs a vocabulary, and this table has none.", "Ask by id: id:477.")
        matches = [token.id for token in table.labels.vocabulary.grep(grep) if token.id < table.n_rows]
        if not matches:
            raise TokenError(f"No token matches {grep!r}.", "`tokens --grep` tries patterns.")
        rows += matches[:first]
    elif first is not None or not rows:
        rows += np.flatnonzero(table.labels.named(table.n_rows))[:first].tolist()
    return list(dict.fromkeys(rows))


def _gather(table: EmbeddingTable, rows: Sequence[int]) -> Floats:
    """The vectors of these rows: one by one where they are few, in one pass over the table where they are many."""
    import numpy as np

    if len(rows) <= table.n_rows // 4:
        return table.rows(rows)
    table.rows([row for row in rows if row >= table.n_rows])  # says which row there is not
    wanted = np.array(rows, np.int64)
    order = np.argsort(wanted, kind="stable")
    ascending = wanted[order]
    out = np.empty((len(rows), table.width), table.rows([]).dtype)
    for start, block in table.blocks():
        low, high = np.searchsorted(ascending, [start, start + len(block)])
        out[order[low:high]] = block[ascending[low:high] - start]
    return out


def _sound_places(vectors: Floats) -> NDArray[np.int64]:
    """Which of the rows have a direction."""
    import numpy as np

    from inspect_embed.numerics.vectors import has_direction, row_norms

    return np.flatnonzero(has_direction(row_norms(vectors)))


def _draw(vectors: Floats, method: str, seed: int, progress: Callable[[str], None] | None) -> Floats:
    """Where the rows stand on a map; NaN for those that have no place on one."""
    import numpy as np

    from inspect_embed.numerics import projection

    sound = _sound_places(vectors)
    n, width = len(sound), vectors.shape[1]
    X: Floats = vectors[sound].astype(projection.working_dtype(n, width))
    if n < 3 or width < 2 or not np.ptp(X, axis=0).any():
        raise AnalysisError(
            "A map needs three rows or more that differ, and two columns or more.",
            "Export more rows, or leave --with-map out.",
        )
    if method == "pca":
        drawn = projection.fit_pca(X, 2, seed=seed).apply(X)
    else:
        if n >= projection.MANY:
            if progress is not None:
                progress(f"t-SNE of {n:,} points: this takes minutes")
            if width > projection.REDUCED_WIDTH:
                X = projection.fit_pca(X, projection.REDUCED_WIDTH, seed=seed).apply(X)
        drawn, _ = projection.tsne(X, 2, projection.choose_perplexity(n), seed, progress)
    coordinates = np.full((len(vectors), 2), np.nan)
    coordinates[sound] = drawn
    return coordinates


class _Rows:
    """The exported rows as a table that can be searched."""

    def __init__(self, vectors: Floats) -> None:
        self._vectors = vectors
        self.n_rows, self.width = vectors.shape

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        for start in range(0, self.n_rows, 1024):
            yield start, self._vectors[start : start + 1024]

    def rows(self, ids: NDArray[np.integer[Any]]) -> Floats:
        found: Floats = self._vectors[ids]
        return found


def _find_neighbors(vectors: Floats, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each row, the places of its nearest among these rows, and 1 - cosine; -1 and NaN for rows without direction."""
    import numpy as np

    from inspect_embed.numerics.all_pairs import find_all_nearest

    found = find_all_nearest(_Rows(vectors), k)
    shape = len(vectors), found.ids.shape[1]
    ids, distances = np.full(shape, -1, np.int64), np.full(shape, np.nan)
    ids[found.rows], distances[found.rows] = found.ids, 1 - found.scores
    return ids, distances
