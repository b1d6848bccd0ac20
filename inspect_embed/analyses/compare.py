"""What changed between two checkpoints, or along a series of them, token by token?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from inspect_embed.checkpoint import Checkpoint, TableFacts
from inspect_embed.errors import AnalysisError
from inspect_embed.query import find_query
from inspect_embed.report import Report, Result
from inspect_embed.table import EmbeddingTable, TokenLabels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from inspect_embed.numerics.alignment import Alignment
    from inspect_embed.numerics.all_pairs import AllNearest

    Floats = NDArray[np.floating[Any]]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Float64s = NDArray[np.float64]

SPACES = ("measure", "same", "different")
LEAST_COSINE = 0.1
"""Two tables share coordinates where their rows' mean cosine, centred, is above this, above twice 1 / width (a random
rotation of few dimensions can come near the identity by chance), and above the spread of chance."""
SPREADS = 5.0
LEAST_SHARED = 3
SHOWN_NEIGHBORS = 3

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Row:
    """A row and the token that names it."""

    id: int
    token: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Do the two tables share their coordinates? `decided_by`: "widths", "measurement" or "caller".

    `matched`: mean cosine of a token's two rows, centred. `shuffled`, `spread`: mean and standard deviation of the
    same over all other ways to pair the rows. None where the widths differ.
    """

    same: bool
    decided_by: str
    reason: str
    matched: float | None
    shuffled: float | None
    spread: float | None


@dataclass(frozen=True, slots=True)
class Neighborhoods:
    """How much of each token's neighbourhood is the same in both: mean share of its k nearest.

    `by_chance`: the share that unrelated tables would have in common. `n_whole`: tokens whose neighbours are the
    same, in any order; `n_lost`: tokens that keep none. `kept`: tokens that keep 0, 1, ... k of their neighbours.
    """

    k: int
    n: int
    mean: float
    by_chance: float
    n_whole: int
    n_lost: int
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenChange:
    """A token's row in both tables.

    `cosine`, `distance` and `relative_distance` (over the length in the first) are None where coordinates differ,
    NaN where they are undefined. `overlap`: share of its neighbours that are the same; None where they were not
    compared. `neighbors_a`, `neighbors_b`: the nearest few.
    """

    id_a: int
    id_b: int
    token: str
    length_a: float
    length_b: float
    cosine: float | None
    distance: float | None
    relative_distance: float | None
    overlap: float | None
    neighbors_a: tuple[str, ...]
    neighbors_b: tuple[str, ...]


@dataclass(frozen=True)
class Comparison(Result):
    """Two tables, compared over the tokens that both have; `changes`: the most changed of them, most changed first.

    `n_shared`: tokens of both; `n_compared`: those of them whose rows are finite in both; `n_unchanged`: whose rows
    hold the same numbers, and `cosines`: percentiles (0 to 100) of the cosine of a token's two rows; both None where
    coordinates differ.
    """

    a: str
    b: str
    table_a: TableFacts
    table_b: TableFacts
    n_shared: int
    n_compared: int
    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    coordinates: Verdict
    n_unchanged: int | None
    cosines: tuple[float, ...] | None
    linear_cka: float
    procrustes_residual: float
    neighborhoods: Neighborhoods | None
    changes: tuple[TokenChange, ...]
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """What is shared and what changed, then the tokens that changed most."""
        from inspect_embed.analyses._compare_shown import describe

        return describe(self)


@dataclass(frozen=True, slots=True)
class PairCosines:
    """The cosine of two tokens in each checkpoint of a series; NaN where undefined."""

    a: str
    b: str
    cosines: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One checkpoint of a series, held against the last.

    `step`: the number that ends its name, else its place. Lengths of the rows: quartiles. `matched`: mean cosine of a
    token's row and its last row, both centred (None where widths differ). `overlap`: mean share of neighbours in
    common with the last.
    """

    checkpoint: str
    step: int
    n_shared: int
    length_first_quartile: float
    length_median: float
    length_third_quartile: float
    matched: float | None
    linear_cka: float
    overlap: float | None


@dataclass(frozen=True)
class SeriesComparison(Result):
    """A series of checkpoints along its steps, each held against the last."""

    table: str
    k: int
    stages: tuple[Stage, ...]
    pairs: tuple[PairCosines, ...]
    overlap_by_chance: float | None
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """A line for each step; figures of the pairs' cosines, the overlap and the lengths along the steps."""
        from inspect_embed.analyses._compare_shown import describe_series

        return describe_series(self)


def compare(
    a: Checkpoint,
    b: Checkpoint,
    *,
    table: str = "input",
    tensor: str | None = None,
    space: str = "measure",
    k: int = 10,
    neighbors: bool = True,
    top: int | None = 20,
    progress: Progress | None = None,
) -> Comparison:
    """What changed between two checkpoints, token by token?

    Tokens are matched by their bytes, whatever their ids. Where the tables share coordinates (a fine-tune, a later
    step, another encoding), each token's two rows are compared; where they do not, cosines between them mean nothing
    and are refused, and what does not depend on coordinates is left: neighbourhoods, linear CKA, the residual of the
    best rotation. Which it is, is measured (`space`: "measure"), or said ("same", "different").

    `k`: size of a neighbourhood, by cosine, among the tokens compared; `neighbors=False` leaves them out. `top`: how
    many of the most changed tokens are listed, None for all: by cosine, or where coordinates differ by overlap.

    Cost: a few passes over both tables; with `neighbors`, the square of the number of tokens times the width, twice.
    Errors: AnalysisError where fewer than three tokens are shared, or where "same" is said of different widths.

    >>> steps = "checkpoints/bigram/steps/"
    >>> found = compare(open_checkpoint(steps + "step-00300"), open_checkpoint(steps + "step-03000"))
    >>> found.coordinates.same
    True
    """
    if space not in SPACES:
        raise ValueError(f"space must be one of {SPACES}, not {space!r}")
    import numpy as np

    from inspect_embed.numerics.alignment import measure_alignment

    pair = _match(a, b, table, tensor)
    if space == "same" and pair.a.width != pair.b.width:
        raise AnalysisError(
            f"Raw cosines between {a.location} and {b.location} mean nothing: their rows are {pair.a.width} and "
            f"{pair.b.width} wide.",
            "Leave --same-space out: neighbourhoods, linear CKA and the best rotation are compared instead.",
        )
    aligned = measure_alignment(pair.blocks)
    verdict = _judge(aligned, pair, space)
    overlap, nearest = None, None
    if neighbors:
        nearest = _find_neighborhoods(pair, k, progress)
        overlap = nearest[2]
    changes, n_unchanged, cosines = _list_changes(pair, verdict.same, overlap, nearest, top)
    n = len(pair.ids_a)
    neighborhoods = None
    if overlap is not None and nearest is not None and nearest[0].shape[1]:
        used = overlap[~np.isnan(overlap)]
        size = nearest[0].shape[1]
        neighborhoods = Neighborhoods(
            size,
            len(used),
            float(used.mean()),
            size / (len(used) - 1),
            int(np.count_nonzero(used == 1)),
            int(np.count_nonzero(used == 0)),
            tuple(np.bincount(np.rint(used * size).astype(np.int64), minlength=size + 1).tolist()),
        )
    return Comparison(
        a.location,
        b.location,
        TableFacts.of(pair.a),
        TableFacts.of(pair.b),
        pair.n_shared,
        n,
        tuple(Row(id_, pair.b.labels.text(id_)) for id_ in pair.added),
        tuple(Row(id_, pair.a.labels.text(id_)) for id_ in pair.removed),
        verdict,
        n_unchanged,
        cosines,
        aligned.linear_cka,
        aligned.procrustes_residual,
        neighborhoods,
        changes,
        tuple(dict.fromkeys(pair.notes)),
    )


def compare_series(
    checkpoints: Sequence[Checkpoint],
    pairs: Sequence[tuple[str, str]] = (),
    *,
    table: str = "input",
    tensor: str | None = None,
    k: int = 10,
    neighbors: bool = True,
    progress: Progress | None = None,
) -> SeriesComparison:
    """When do embeddings form? Checkpoints of one training, in order, each held against the last.

    For each: the cosines of `pairs` of words, quartiles of the rows' lengths, the mean cosine of a token's row and
    its last row, linear CKA and the overlap of neighbourhoods with the last. Cost: that of `compare` for each.

    >>> from pathlib import Path
    >>> steps = [open_checkpoint(path) for path in sorted(Path("checkpoints/bigram/steps").iterdir())]
    >>> compare_series(steps, [("cat", "dog")]).pairs[0].cosines[-1] > 0.9
    True
    """
    if len(checkpoints) < 2:
        raise ValueError("a series has two checkpoints or more")
    import numpy as np

    from inspect_embed.numerics.alignment import measure_alignment
    from inspect_embed.numerics.vectors import has_direction

    last = checkpoints[-1]
    stages = []
    notes: list[str] = []
    chance = None
    found_before: dict[bytes, AllNearest] = {}
    for place, (checkpoint, step) in enumerate(
        zip(checkpoints, _steps([c.location for c in checkpoints]), strict=True)
    ):
        pair = _match(checkpoint, last, table, tensor)
        aligned = measure_alignment(pair.blocks)
        overlap = None
        if neighbors:
            share = _part(progress, place, len(checkpoints))
            shares = _find_neighborhoods(pair, k, share, found_before)[2]
            used = shares[~np.isnan(shares)]
            overlap = float(used.mean()) if len(used) else None
            chance = min(k, len(used) - 1) / (len(used) - 1) if len(used) > 1 else None
        norms = pair.a.norms[pair.ids_a]
        norms = norms[has_direction(norms)] if has_direction(norms).any() else np.array([np.nan])
        first, median, third = np.quantile(norms, [0.25, 0.5, 0.75]).tolist()
        matched = aligned.coordinates.matched if aligned.coordinates is not None else None
        stages.append(
            Stage(
                checkpoint.location,
                step,
                pair.n_shared,
                first,
                median,
                third,
                matched,
                aligned.linear_cka,
                overlap,
            )
        )
        notes += pair.notes
    found = tuple(
        PairCosines(one, other, tuple(_cosine(c, table, tensor, one, other) for c in checkpoints))
        for one, other in pairs
    )
    return SeriesComparison(table, k, tuple(stages), found, chance, tuple(dict.fromkeys(notes)))


def _cosine(checkpoint: Checkpoint, table: str, tensor: str | None, one: str, other: str) -> float:
    from inspect_embed.numerics.vectors import cosine

    opened = checkpoint.table(table, tensor)
    rows = opened.rows([find_query(opened, word).rows[0] for word in (one, other)])
    return cosine(rows[0], rows[1])


def _steps(names: Sequence[str]) -> list[int]:
    """The numbers that end the names, where all have one and they rise; else places from 1."""
    ends = [re.search(r"(\d+)\D*$", PurePath(name).name) for name in names]
    steps = [int(end[1]) for end in ends if end]
    if len(steps) == len(names) and all(x < y for x, y in pairwise(steps)):
        return steps
    return list(range(1, len(names) + 1))


# Which rows are compared


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two tables, and the rows of the tokens that both have and that are finite in both, at the same places."""

    a: EmbeddingTable
    b: EmbeddingTable
    ids_a: Ints
    ids_b: Ints
    n_shared: int
    added: list[int]
    removed: list[int]
    notes: list[str]

    def blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """The rows of both, some at a time."""
        step = max(1, (1 << 18) // max(self.a.width, self.b.width))
        for start in range(0, len(self.ids_a), step):
            part = slice(start, start + step)
            yield self.a.rows(self.ids_a[part]), self.b.rows(self.ids_b[part])


def _match(a: Checkpoint, b: Checkpoint, role: str, tensor: str | None) -> _Pair:
    import numpy as np

    table_a, table_b = a.table(role, tensor), b.table(role, tensor)
    notes = [*table_a.notes, *table_b.notes]
    matched, added, removed = _match_tokens(table_a, table_b, notes)
    if len(matched) < LEAST_SHARED:
        raise AnalysisError(
            f"{a.location} and {b.location} have {len(matched)} tokens in common: there is nothing to compare.",
            "Compare checkpoints whose vocabularies overlap, or name tokenizers with --tokenizer.",
        )
    ids = np.array(matched, np.int64)
    finite = np.isfinite(table_a.norms[ids[:, 0]]) & np.isfinite(table_b.norms[ids[:, 1]])
    if not finite.all():
        notes.append(
            f"{np.count_nonzero(~finite):,} shared tokens have a row that is not finite and were left out."
        )
    if np.count_nonzero(finite) < LEAST_SHARED:
        raise AnalysisError(
            f"Too few tokens have finite rows in both {a.location} and {b.location}.",
            "`inspect-embed health` shows which rows are broken.",
        )
    ids = ids[finite]
    return _Pair(table_a, table_b, ids[:, 0].copy(), ids[:, 1].copy(), len(matched), added, removed, notes)


def _match_tokens(
    a: EmbeddingTable, b: EmbeddingTable, notes: list[str]
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Pairs of ids of the same token, by the first one's id; ids that only b has, and that only a has."""
    words_a = a.labels.vocabulary if isinstance(a.labels, TokenLabels) else None
    words_b = b.labels.vocabulary if isinstance(b.labels, TokenLabels) else None
    if words_a is None or words_b is None:
        if a.n_rows != b.n_rows:
            raise AnalysisError(
                f"{a.tensor.name} has {a.n_rows:,} rows and {b.tensor.name} {b.n_rows:,}, and not both have a "
                f"tokenizer: nothing tells which rows belong together.",
                "Name a tokenizer with --tokenizer PATH.",
            )
        notes.append("Not both have a tokenizer: rows were matched by id.")
        return [(row, row) for row in range(a.n_rows)], [], []
    matched: list[tuple[int, int]] = []
    by_bytes = words_b.ids_of_bytes
    for data, ids in words_a.ids_of_bytes.items():
        # Several tokens can be the same bytes: they are matched in the order of their ids.
        matched += zip(
            [id_ for id_ in ids if id_ < a.n_rows],
            [id_ for id_ in by_bytes.get(data, ()) if id_ < b.n_rows],
            strict=False,
        )
    matched.sort()
    in_a, in_b = {x for x, _ in matched}, {y for _, y in matched}
    added = [id_ for id_ in words_b.ids() if id_ < b.n_rows and id_ not in in_b]
    removed = [id_ for id_ in words_a.ids() if id_ < a.n_rows and id_ not in in_a]
    return matched, added, removed


def _judge(aligned: Alignment, pair: _Pair, space: str) -> Verdict:
    """Do the tables share coordinates?"""
    found = aligned.coordinates
    if found is None:
        reason = (
            f"Rows are {pair.a.width} and {pair.b.width} wide: the tables have different coordinates, and cosines "
            f"between them mean nothing."
        )
        return Verdict(False, "caller" if space == "different" else "widths", reason, None, None, None)
    measured = (
        "the rows of one of them do not vary"
        if isnan(found.matched)
        else f"a token's two rows have a mean cosine of {found.matched:.3f} after centring, rows paired at random "
        f"{found.shuffled:.3f} with a standard deviation of {found.spread:.3f}"
    )
    numbers = (found.matched, found.shuffled, found.spread)
    if space != "measure":
        said = "share their coordinates" if space == "same" else "have different coordinates"
        return Verdict(
            space == "same", "caller", f"As was said, the tables {said}; measured: {measured}.", *numbers
        )
    least = max(LEAST_COSINE, 2.0 / pair.a.width, found.shuffled + SPREADS * found.spread)
    if found.matched > least:
        return Verdict(True, "measurement", f"The tables share their coordinates: {measured}.", *numbers)
    return Verdict(
        False,
        "measurement",
        f"No common coordinates can be measured, and cosines between the tables mean nothing: {measured}. "
        f"--same-space overrules this.",
        *numbers,
    )


def _find_neighborhoods(
    pair: _Pair, k: int, progress: Progress | None, found_before: dict[bytes, AllNearest] | None = None
) -> tuple[Ints, Ints, Float64s]:
    """Each compared token's neighbours in a and in b, as places among the compared (-1 for none), and the overlap.

    `found_before` keeps what was found in b, by the rows that were compared: a series asks its last table again.
    """
    import numpy as np

    from inspect_embed.numerics.alignment import neighborhood_overlap
    from inspect_embed.numerics.all_pairs import find_all_nearest
    from inspect_embed.numerics.vectors import has_direction

    n = len(pair.ids_a)
    sound = has_direction(pair.a.norms[pair.ids_a]) & has_direction(pair.b.norms[pair.ids_b])
    found = []
    for side, (table, ids) in enumerate(((pair.a, pair.ids_a), (pair.b, pair.ids_b))):
        eligible = np.zeros(table.n_rows, bool)
        eligible[ids[sound]] = True
        key = eligible.tobytes()
        nearest = found_before.get(key) if side and found_before is not None else None
        if nearest is None:
            nearest = find_all_nearest(table, k, eligible, _part(progress, side, 2))
            if side and found_before is not None:
                found_before[key] = nearest
        place = np.full(table.n_rows, -1, np.int64)
        place[ids] = np.arange(n)
        neighbors = np.full((n, nearest.ids.shape[1]), -1, np.int64)
        neighbors[place[nearest.rows]] = place[nearest.ids]
        found.append(neighbors)
    overlap = np.full(n, np.nan)
    overlap[sound] = neighborhood_overlap(found[0][sound], found[1][sound])
    return found[0], found[1], overlap


def _part(progress: Progress | None, place: int, n: int) -> Progress | None:
    """Progress of one of n equal parts, as progress of the whole."""
    if progress is None:
        return None
    whole = progress
    return lambda done, total: whole(place * total + done, n * total)


def _list_changes(
    pair: _Pair,
    same: bool,
    overlap: Float64s | None,
    nearest: tuple[Ints, Ints, Float64s] | None,
    top: int | None,
) -> tuple[tuple[TokenChange, ...], int | None, tuple[float, ...] | None]:
    """The most changed tokens; how many rows are equal; the percentiles of the cosines."""
    import numpy as np

    from inspect_embed.numerics.alignment import row_cosines
    from inspect_embed.numerics.vectors import row_norms

    n = len(pair.ids_a)
    lengths_a, lengths_b = pair.a.norms[pair.ids_a], pair.b.norms[pair.ids_b]
    cosines, distances, equal = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, bool)
    if same:
        done = 0
        for X, Y in pair.blocks():
            part = slice(done, done + len(X))
            cosines[part] = row_cosines(X, Y)
            distances[part] = row_norms(X.astype(np.float64) - Y)
            equal[part] = (X == Y).all(axis=1)
            done += len(X)
        # Where cosines tie, or are undefined, the larger distance is the larger change.
        keys = (np.arange(n), -distances, np.where(np.isnan(cosines), 2.0, cosines))
    else:
        shares = np.full(n, 2.0) if overlap is None else np.where(np.isnan(overlap), 2.0, overlap)
        keys = (np.arange(n), np.zeros(n), shares)
    order = np.lexsort(keys)[:top]
    label_a, label_b = pair.a.labels.text, pair.b.labels.text

    def name(neighbors: Ints, ids: Ints, label: Callable[[int], str]) -> tuple[str, ...]:
        return tuple(label(int(ids[place])) for place in neighbors[:SHOWN_NEIGHBORS] if place >= 0)

    with np.errstate(divide="ignore", invalid="ignore"):
        relative = distances / lengths_a
    changes = tuple(
        TokenChange(
            int(pair.ids_a[i]),
            int(pair.ids_b[i]),
            label_a(int(pair.ids_a[i])),
            float(lengths_a[i]),
            float(lengths_b[i]),
            float(cosines[i]) if same else None,
            float(distances[i]) if same else None,
            float(relative[i]) if same else None,
            None if overlap is None else float(overlap[i]),
            () if nearest is None else name(nearest[0][i], pair.ids_a, label_a),
            () if nearest is None else name(nearest[1][i], pair.ids_b, label_b),
        )
        for i in order.tolist()
    )
    if not same:
        return changes, None, None
    defined = cosines[~np.isnan(cosines)]
    percentiles = np.percentile(defined, range(101)).tolist() if len(defined) else []
    return changes, int(np.count_nonzero(equal)), tuple(percentiles)
