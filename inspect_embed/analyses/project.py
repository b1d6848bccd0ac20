"""Where do these tokens lie, seen in two or three dimensions, and how far can the picture be trusted?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inspect_embed.checkpoint import Checkpoint, TableFacts
from inspect_embed.errors import LISTED, AnalysisError, OptionError, TokenError, shorten
from inspect_embed.query import find_query
from inspect_embed.report import (
    Block,
    Column,
    Fact,
    Facts,
    Grid,
    Note,
    Report,
    Result,
    Scatter,
)
from inspect_embed.table import EmbeddingTable, TokenLabels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating]
    Ids = NDArray[np.int64]

METHODS = ("pca", "tsne", "umap")
FITS = ("shown", "table")
ALL_COMPARED = 5000
"""Points up to which every point's nearest are found; of more, some points stand for all, unless all are asked for."""
SHOWN_IN_TEXT = 200
LITTLE = 1 / 3
"""The share of neighbours kept below which a map is said to mislead."""
_NAMES = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
_AXES = {"pca": "PC", "tsne": "t-SNE", "umap": "UMAP"}
_AXIS_LETTERS = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A point that is near to another in the full space: its id, and the distance there."""

    id: int
    distance: float


@dataclass(frozen=True, slots=True)
class Point:
    """A token on the map.

    `id` is None where the point is the mean of several tokens. `kept`: the share of its nearest points in the full
    space that are also among its nearest on the map, in [0, 1]; None where it was not looked at.
    """

    id: int | None
    token: str
    group: str
    coordinates: tuple[float, ...]
    kept: float | None
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True, slots=True)
class Faithfulness:
    """How far the map can be trusted.

    `share`: for the points looked at, the mean share of their `k` nearest points in the full space that are also
    among their `k` nearest on the map; in [0, 1]. `by_chance`: what a map drawn by lot would come to. `n_points`: how
    many points were looked at.
    """

    k: int
    share: float
    by_chance: float
    n_points: int


@dataclass(frozen=True)
class Projection(Result):
    """A map of tokens.

    `explained`: for PCA, the share of the variance along each axis, of the rows that it was fitted on; empty for
    others. `perplexity` and `seed` are None where the method has none. `library` drew the map. `reduced_to`: how many
    principal components t-SNE or UMAP read in place of the vectors, None where they read the vectors themselves.
    """

    checkpoint: str
    table: TableFacts
    method: str
    library: str
    dims: int
    fit: str
    center: bool
    normalize: bool
    perplexity: float | None
    seed: int | None
    reduced_to: int | None
    n_points: int
    explained: tuple[float, ...]
    faithfulness: Faithfulness
    points: tuple[Point, ...]
    title: str
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """Facts, then the coordinates; the map itself is the figure."""
        letters = _AXIS_LETTERS[: self.dims]
        facts = [
            Fact("method", _NAMES[self.method], remark=self._how()),
            Fact("points", self.n_points, ",d"),
            *(
                Fact(
                    f"variance along {letter}",
                    share,
                    ".1 %",
                    "of that of the rows fitted on",
                )
                for letter, share in zip(letters, self.explained, strict=False)
            ),
            Fact("neighbours kept", self.faithfulness.share, ".1 %", self._trust()),
        ]
        grouped = any(point.group for point in self.points)
        columns = (
            Column("id", "d"),
            Column("token"),
            *((Column("group"),) if grouped else ()),
            *(Column(letter, "+.4f") for letter in letters),
        )
        rows = [
            (
                point.id,
                point.token,
                *((point.group,) if grouped else ()),
                *point.coordinates,
            )
            for point in self.points
        ]
        shown = ""
        if len(rows) > SHOWN_IN_TEXT:
            shown = f"the first {SHOWN_IN_TEXT} of {len(rows):,} points (-o FILE.csv writes them all)"
        sheet = Grid(
            tuple(map(Column, ("id", "token", "group", *letters, "kept"))),
            [(p.id, p.token, p.group, *p.coordinates, p.kept) for p in self.points],
        )
        blocks: list[Block] = [Facts(tuple(facts)), Grid(columns, rows[:SHOWN_IN_TEXT], shown)]
        return Report(
            f"{self.checkpoint}: {self.title}, in the {self.table}",
            self,
            (*blocks, *map(Note, self.notes)),
            sheet,
            {"map": self._scatter()},
            {
                "coordinates": [point.coordinates for point in self.points],
                "ids": [-1 if point.id is None else point.id for point in self.points],
                "tokens": [point.token for point in self.points],
                "groups": [point.group for point in self.points],
            },
        )

    def _scatter(self) -> Scatter:
        place = {point.id: at for at, point in enumerate(self.points) if point.id is not None}
        letters = list(zip(*(point.coordinates for point in self.points), strict=True))
        names = [
            f"{_AXES[self.method]} {axis + 1}"
            + (f" ({100 * self.explained[axis]:.1f} % of variance)" if self.explained else "")
            for axis in range(self.dims)
        ]
        ids = [point.id for point in self.points]
        return Scatter(
            letters[0],
            letters[1],
            [point.token for point in self.points],
            names[0],
            names[1],
            self.title,
            z=letters[2] if self.dims == 3 else (),
            z_label=names[2] if self.dims == 3 else "",
            groups=[point.group for point in self.points] if any(p.group for p in self.points) else (),
            ids=[id_ for id_ in ids if id_ is not None] if None not in ids else (),
            caption=f"{self.checkpoint} · {self.table} · {_NAMES[self.method]}, {self._how()} · {self._trust()}",
            path=self.table.role == "position",
            neighbors=[
                [(place[near.id], near.distance) for near in point.neighbors if near.id in place]
                for point in self.points
            ]
            if any(point.neighbors for point in self.points)
            else (),
        )

    def _how(self) -> str:
        """The method's choices, in words."""
        prepared = [
            "the table's mean taken away" * self.center,
            "rows scaled to length 1" * self.normalize,
            f"on {self.reduced_to} principal components" * (self.reduced_to is not None),
        ]
        if self.method == "pca":
            said = [
                f"fitted on the {'rows shown' if self.fit == 'shown' else 'whole table'}",
                *prepared,
            ]
        else:
            perplexity = f"perplexity {self.perplexity:.3g}" if self.perplexity is not None else ""
            said = [perplexity, f"seed {self.seed}", f"by {self.library}", *prepared]
        return ", ".join(filter(None, said))

    def _trust(self) -> str:
        """The share of neighbours kept, in words."""
        found = self.faithfulness
        looked_at = "" if found.n_points == self.n_points else f", by {found.n_points:,} of the points"
        return (
            f"of the {found.k} nearest points in {self.table.shape[-1]} dimensions, {_percent(found.share)} are among "
            f"the {found.k} nearest on the map (by chance: {_percent(found.by_chance)}){looked_at}"
        )


def project(
    checkpoint: Checkpoint,
    words: Sequence[str] = (),
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    around: str | None = None,
    k: int = 40,
    first: int | None = None,
    grep: str | None = None,
    method: str = "pca",
    dims: int = 2,
    fit: str = "shown",
    center: bool = False,
    normalize: bool = False,
    perplexity: float | None = None,
    seed: int = 0,
    table: str = "input",
    tensor: str | None = None,
    mean: bool = False,
    title: str | None = None,
    all_neighbors: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Projection:
    """Where do these tokens lie, seen in two or three dimensions?

    What is shown: `words`; `groups` of words, by name; `around`, a word and its `k` nearest by cosine; the `first` rows;
    the tokens that the regular expression `grep` matches; with none of these, every row that a token names. A row is
    shown once, in the first group that names it. Rows that are zero or not finite are left out, and counted.

    `method`: "pca", "tsne" or "umap" (an extra). `fit`: the rows that PCA is fitted on, "shown" or "table" (all that a
    token names). `center` takes the mean of the table's named rows away first; `normalize` then scales every row to
    length 1. Distances are Euclidean, in what these two leave; with `normalize` their order is that of the cosine.
    `perplexity` is for t-SNE; unless given it is 30, or a third of the other points. From 2,000 points on, t-SNE and
    UMAP read 50 principal components. Same seed, same machine: same map.

    Faithfulness is the mean share of each point's 10 nearest (half of the others where those are 10 or fewer) in the
    full space, among the points shown, that are also among its 10 nearest on the map. Of more than 5,000 points, 500
    stand for all; with `all_neighbors` the nearest of every point are found nevertheless, at the cost of n x n
    distances.

    Errors: TokenError, TableError, OptionError, AnalysisError, MissingExtraError.

    >>> found = project(open_checkpoint("checkpoints/toy"), ["·red", "·blue", "·girl", "·boy"])
    >>> len(found.points)
    4
    """
    if method not in METHODS or fit not in FITS or dims not in (2, 3):
        raise ValueError(f"method is one of {METHODS}, fit one of {FITS}, dims 2 or 3")
    opened = checkpoint.table(table, tensor)
    chosen = _choose(opened, words, groups or {}, around, k, first, grep, mean)
    _leave_out_broken(opened, chosen)
    named = opened.labels.named(opened.n_rows)
    if method != "pca" and fit == "table":
        raise OptionError(
            f"{_NAMES[method]} is fitted on the rows it shows.",
            "Leave --fit table out.",
        )
    vectors, frame = _prepare(opened, chosen, named, center, normalize)
    n, width = vectors.shape
    if width < dims:
        raise AnalysisError(
            f"The table is {width} wide: it has no {dims} dimensions.",
            f"Ask for --dims {width}.",
        )
    _require_points(chosen, vectors, method, fit)
    notes = [*opened.notes, *_few(chosen.asides), *chosen.notes]

    from inspect_embed.numerics import projection

    explained: tuple[float, ...] = ()
    library, reduced_to = "scikit-learn", None
    if method == "pca":
        fitted_on = vectors if fit == "shown" else _table_rows(opened, named, frame, normalize)
        fitted = projection.fit_pca(fitted_on, dims, seed=seed)
        drawn = fitted.apply(vectors)
        explained = tuple(fitted.ratios.tolist())
        # Along an axis without variance every row stands at the mean.
        if fit == "shown":
            drawn[:, fitted.ratios == 0] = 0.0
    else:
        read = vectors
        if n >= projection.MANY and width > projection.REDUCED_WIDTH:
            reduced_to = projection.REDUCED_WIDTH
            read = projection.fit_pca(vectors, reduced_to, seed=seed).apply(vectors)
            notes.append(f"{n:,} points went through PCA to {reduced_to} dimensions first.")
        if method == "tsne":
            perplexity = _check_perplexity(perplexity, n)
            if progress is not None and n >= projection.MANY:
                progress(f"t-SNE of {n:,} points, perplexity {perplexity:g}")
            drawn, library = projection.tsne(read, dims, perplexity, seed, progress)
            if n > 10_000 and library == "scikit-learn":
                notes.append('openTSNE draws so many points sooner: pip install "inspect-embed[tsne]"')
        else:
            drawn, library = projection.umap(read, dims, seed), "umap-learn"
    everyone = all_neighbors or n <= ALL_COMPARED
    faithfulness, kept, nearest = _judge(vectors, drawn, everyone, progress)
    if faithfulness.share < LITTLE:
        notes.append(
            "This map keeps few neighbours: what is near on it is mostly not near in the table. "
            "`neighbors` asks the table itself."
        )
    points = _points(chosen, drawn, kept, nearest)
    return Projection(
        checkpoint.location,
        TableFacts.of(opened),
        method,
        library,
        dims,
        fit if method == "pca" else "shown",
        center,
        normalize,
        perplexity if method == "tsne" else None,
        None if method == "pca" else seed,
        reduced_to,
        n,
        explained,
        faithfulness,
        points,
        title or _name(chosen, groups or {}, around, first, table),
        tuple(dict.fromkeys(notes)),
    )


@dataclass(slots=True)
class _Chosen:
    """The points to show, as means of rows: a row alone has an id. `asides` are what looking words up had to say."""

    rows: list[tuple[int, ...]]
    ids: list[int | None]
    tokens: list[str]
    groups: list[str]
    asides: list[str]
    notes: list[str]
    asked: bool = True

    def add(
        self,
        rows: tuple[int, ...],
        id_: int | None,
        token: str,
        group: str,
        seen: set[object],
    ) -> None:
        """Adds a point, unless it is there."""
        key = rows if id_ is None else id_
        if key in seen:
            return
        seen.add(key)
        self.rows.append(rows)
        self.ids.append(id_)
        self.tokens.append(token)
        self.groups.append(group)

    def keep(self, places: Sequence[int]) -> None:
        """Leaves out all points but these."""
        for name in ("rows", "ids", "tokens", "groups"):
            values = getattr(self, name)
            setattr(self, name, [values[place] for place in places])


def _few(asides: list[str]) -> list[str]:
    """Notes on words, of which a map may have very many."""
    asides = list(dict.fromkeys(asides))
    if len(asides) <= LISTED:
        return asides
    return [
        *asides[:LISTED],
        f"There are {len(asides) - LISTED:,} more notes like these; `tokens` shows them.",
    ]


def _choose(
    table: EmbeddingTable,
    words: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    around: str | None,
    k: int,
    first: int | None,
    grep: str | None,
    mean: bool,
) -> _Chosen:
    chosen = _Chosen([], [], [], [], [], [])
    seen: set[object] = set()
    asked = [(word, name) for name, members in groups.items() for word in members]
    asked += [(word, "") for word in words]
    for word, group in asked:
        query = find_query(table, word, mean)
        chosen.add(query.rows, query.id, query.token or query.text, group, seen)
        chosen.asides += query.notes
    text = table.labels.text
    if around is not None:
        query = find_query(table, around, mean)
        chosen.asides += query.notes
        name = query.token or query.text
        chosen.add(query.rows, query.id, name, name, seen)
        for row in _nearest_rows(table, query.rows, query.weights, k):
            chosen.add((row,), row, text(row), f"nearest to {name}", seen)
    if grep is not None:
        if not isinstance(table.labels, TokenLabels) or table.labels.vocabulary is None:
            raise TokenError(
                "--grep needs a vocabulary, and this table has none.",
                "Ask by id: id:477.",
            )
        matches = [token.id for token in table.labels.vocabulary.grep(grep) if token.id < table.n_rows]
        if not matches:
            raise TokenError(f"No token matches {grep!r}.", "`tokens --grep` tries patterns.")
        for row in matches[:first]:
            chosen.add((row,), row, text(row), "", seen)
    elif first is not None or not chosen.rows:
        import numpy as np

        chosen.asked = False
        rows = np.flatnonzero(table.labels.named(table.n_rows))[:first].tolist()
        for row in rows:
            chosen.add((row,), row, text(row), "", seen)
    return chosen


def _nearest_rows(
    table: EmbeddingTable, rows: tuple[int, ...], weights: tuple[float, ...], k: int
) -> list[int]:
    import numpy as np

    from inspect_embed.numerics.search import find_nearest
    from inspect_embed.numerics.vectors import has_direction, row_norms

    vector = np.asarray(weights)[None] @ table.rows(rows).astype(np.float64)
    if not has_direction(row_norms(vector)).all():
        raise AnalysisError(
            "A row that is zero or not finite has no neighbours.",
            "Ask about another token.",
        )
    named = table.labels.named(table.n_rows)
    (nearest,), _ = find_nearest(table, vector, k, "cosine", named, [list(rows)])
    ids: list[int] = nearest.ids.tolist()
    return ids


def _leave_out_broken(table: EmbeddingTable, chosen: _Chosen) -> None:
    """Rows that are zero or not finite have no place on a map."""
    from inspect_embed.numerics.vectors import has_direction

    beyond = [row for rows in chosen.rows for row in rows if row >= table.n_rows]
    table.rows(beyond)  # says which row there is not
    if len(chosen.rows) > table.n_rows // 4:
        good_rows = has_direction(table.norms).tolist()
        sound = [all(good_rows[row] for row in rows) for rows in chosen.rows]
    else:
        from inspect_embed.numerics.vectors import row_norms

        sound = [bool(has_direction(row_norms(table.rows(rows))).all()) for rows in chosen.rows]
    broken = [token for token, good in zip(chosen.tokens, sound, strict=True) if not good]
    if broken:
        chosen.notes.append(
            f"{len(broken):,} row{'s are' if len(broken) > 1 else ' is'} zero or not finite and left out: "
            f"{shorten(broken)}."
        )
        chosen.keep([place for place, good in enumerate(sound) if good])


def _prepare(
    table: EmbeddingTable,
    chosen: _Chosen,
    named: NDArray[np.bool_],
    center: bool,
    normalize: bool,
) -> tuple[Floats, NDArray[np.float64] | None]:
    """The vectors to show (n, width), and the mean that was taken away from each row."""
    import numpy as np

    from inspect_embed.numerics.projection import working_dtype
    from inspect_embed.numerics.search import fit_frame
    from inspect_embed.numerics.vectors import has_direction

    n = len(chosen.rows)
    dtype = working_dtype(n, table.width)
    single = all(len(rows) == 1 for rows in chosen.rows)
    if single and n > table.n_rows // 4:
        vectors = _gather(table, np.array([rows[0] for rows in chosen.rows], np.int64), dtype)
    else:
        vectors = np.array(
            [table.rows(rows).astype(np.float64).mean(axis=0) for rows in chosen.rows],
            dtype,
        )
        vectors = vectors.reshape(n, table.width)
    mean = None
    if center:
        mean = fit_frame(table, named & has_direction(table.norms), 0).mean
    _place(vectors, mean, normalize)
    return vectors, mean


def _place(vectors: Floats, mean: NDArray[np.float64] | None, normalize: bool) -> None:
    """Center and scale rows where they lie; a row that the mean leaves without length stays at zero."""
    from inspect_embed.numerics.vectors import has_direction, row_norms

    if mean is not None:
        vectors -= mean.astype(vectors.dtype)
    if normalize and len(vectors):
        norms = row_norms(vectors)
        norms[~has_direction(norms)] = 1.0
        vectors /= norms[:, None].astype(vectors.dtype)


def _gather(table: EmbeddingTable, rows: Ids, dtype: type[np.floating]) -> Floats:
    """Many rows in one pass over the blocks, in the order asked for."""
    import numpy as np

    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    out = np.empty((len(rows), table.width), dtype)
    for start, block in table.blocks():
        low, high = np.searchsorted(ascending, [start, start + len(block)])
        out[order[low:high]] = block[ascending[low:high] - start]
    return out


def _table_rows(
    table: EmbeddingTable,
    named: NDArray[np.bool_],
    mean: NDArray[np.float64] | None,
    normalize: bool,
) -> Floats:
    """Every row that a token names and that has a direction, prepared as the rows shown are."""
    import numpy as np

    from inspect_embed.numerics.projection import working_dtype
    from inspect_embed.numerics.vectors import has_direction

    rows = np.flatnonzero(named & has_direction(table.norms))
    vectors = _gather(table, rows, working_dtype(len(rows), table.width))
    _place(vectors, mean, normalize)
    if len(vectors) < 3 or not np.ptp(vectors, axis=0).any():
        raise AnalysisError("The table has no three different rows to fit axes on.", "Use --fit shown.")
    return vectors


def _require_points(chosen: _Chosen, vectors: Floats, method: str, fit: str) -> None:
    """A map needs three points that are not all one; axes of the whole table can show fewer."""
    import numpy as np

    n = len(vectors)
    if n >= 1 and fit == "table":
        return
    if n < 3:
        left = "" if not any("left out" in note for note in chosen.notes) else " after rows were left out"
        raise AnalysisError(
            f"A map needs three words or more, and there {'is' if n == 1 else 'are'} {n}{left}: "
            f"fewer always lie on a line.",
            "Give another word, or place them on the table's own axes: --method pca --fit table."
            if method == "pca"
            else "Give more words; `similarity` compares two.",
        )
    if not np.ptp(vectors, axis=0).any():
        raise AnalysisError(
            f"The {n:,} rows ({shorten(chosen.tokens)}) are equal: nothing tells them apart on a map.",
            "Give other words; --fit table shows where they lie among all rows.",
        )
    n_different = len(np.unique(vectors, axis=0)) if n <= ALL_COMPARED else n
    if n_different < n:
        chosen.notes.append(
            f"{n - n_different:,} of the rows equal{'s' if n - n_different == 1 else ''} another: "
            f"such points lie on one another."
        )


def _check_perplexity(perplexity: float | None, n: int) -> float:
    from inspect_embed.numerics.projection import choose_perplexity

    if perplexity is None:
        return choose_perplexity(n)
    if not 0 < perplexity < n:
        raise OptionError(
            f"--perplexity {perplexity:g} does not fit {n} points: it must be above 0 and below {n}.",
            f"Leave it out to use {choose_perplexity(n):g}.",
        )
    return float(perplexity)


def _judge(
    vectors: Floats,
    drawn: Floats,
    everyone: bool,
    progress: Callable[[str], None] | None,
) -> tuple[Faithfulness, dict[int, float], dict[int, list[tuple[int, float]]]]:
    """Faithfulness; by point, the share of neighbours kept, and the neighbours in the full space."""
    import numpy as np

    from inspect_embed.numerics import projection

    n = len(vectors)
    if n < 2:
        return Faithfulness(0, float("nan"), float("nan"), 0), {}, {}
    k = projection.neighbors_judged(n)
    judged = np.arange(n)
    if n > ALL_COMPARED:
        judged = np.sort(np.random.default_rng(0).choice(n, projection.SAMPLED, replace=False))
    looked_up = np.arange(n) if everyone else judged
    true, distances = projection.find_nearest_points(vectors, k, looked_up, progress)
    on_map, _ = projection.find_nearest_points(drawn.astype(np.float64), k, judged)
    shares = projection.share_kept(true[np.searchsorted(looked_up, judged)], on_map)
    kept = dict(zip(judged.tolist(), shares.tolist(), strict=True))
    nearest = {
        point: list(zip(ids, apart, strict=True))
        for point, ids, apart in zip(looked_up.tolist(), true.tolist(), distances.tolist(), strict=True)
    }
    return (
        Faithfulness(k, float(shares.mean()), k / (n - 1), len(judged)),
        kept,
        nearest if everyone else {},
    )


def _points(
    chosen: _Chosen,
    drawn: Floats,
    kept: dict[int, float],
    nearest: dict[int, list[tuple[int, float]]],
) -> tuple[Point, ...]:
    ids = chosen.ids
    points = []
    for place, coordinates in enumerate(drawn.tolist()):
        near = []
        for other, distance in nearest.get(place, ()):
            id_ = ids[other]
            if id_ is not None:
                near.append(Neighbor(id_, distance))
        points.append(
            Point(
                ids[place],
                chosen.tokens[place],
                chosen.groups[place],
                tuple(coordinates),
                kept.get(place),
                tuple(near),
            )
        )
    return tuple(points)


def _percent(share: float) -> str:
    """A share with the digits that tell it from nothing."""
    return f"{100 * share:.{0 if share >= 0.1 else 1 if share >= 0.01 else 2}f} %"


def _name(
    chosen: _Chosen,
    groups: Mapping[str, Sequence[str]],
    around: str | None,
    first: int | None,
    role: str,
) -> str:
    """What the map shows, in a few words."""
    n = len(chosen.rows)
    if around is not None and not groups:
        return f"{chosen.tokens[0]} and its {n - 1:,} nearest"
    if groups and len(groups) <= 6:
        *most, last = groups
        named = f"{', '.join(most)} and {last}" if most else last
        return named[:1].upper() + named[1:]
    what = "places" if role == "position" else "tokens"
    if chosen.asked:
        return f"{n:,} {what}"
    return f"All {n:,} {what}" if first is None else f"The first {n:,} {what}"
