"""The nearest neighbours of every row of a table, exactly, by blocks.

Cosines of a block of rows with a block of columns come from one matrix product in float32. The columns of the block
fall into groups; the k-th largest of the groups' maxima is a lower bound of the k-th largest cosine, so that few
cosines need to be looked at one by one. Those that could be among the first k, given the rounding of the product, are
computed again in float64: the answer is that of float64 arithmetic on all pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspect_embed.numerics.search import Rows
from inspect_embed.numerics.vectors import has_direction, row_norms

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Progress = Callable[[int, int], None]
"""Called with how many rows are done, and of how many."""

BLOCK_ROWS, BLOCK_COLUMNS, GROUPS = 512, 4096, 128
"""Rows and columns of a block at most, whose products stay in the cache; groups that its columns fall into."""
MOST_HELD = 1 << 21
"""Candidates that are held at a time; beyond them, each row keeps its first k alone."""
MOST_THREADS = 8
"""Each holds a block of products."""
_CHUNK = 1 << 17


@dataclass(frozen=True, slots=True)
class AllNearest:
    """The k nearest rows to each of m rows, nearest first.

    `rows` int64 (m,): the rows that were compared, ascending. `ids` int64 (m, k): their neighbours' rows.
    `scores` float64 (m, k): the cosines.
    """

    rows: Ints
    ids: Ints
    scores: Float64s


@dataclass(frozen=True, slots=True)
class _Directions:
    """The m rows that are compared: their lengths, and unit vectors, padded with zeros to whole blocks of columns."""

    rows: Ints
    lengths: Float64s
    units: Float32s
    block_columns: int


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Pairs that may be among the first k: row and column as places in the list of rows compared."""

    rows: Ints
    columns: Ints
    scores: NDArray[np.floating[Any]]

    def where(self, chosen: Bools | Ints) -> _Candidates:
        return _Candidates(self.rows[chosen], self.columns[chosen], self.scores[chosen])


def find_all_nearest(
    table: Rows, k: int, eligible: Bools | None = None, progress: Progress | None = None
) -> AllNearest:
    """Which k rows are nearest, by cosine, to each row of the table?

    `eligible` bool (n_rows,): the rows that are compared, all by default; rows of zero length or with a number that
    is not finite are left out besides. No row is its own neighbour; equal rows are each other's. Ties go by row. k
    is cut to the number of other rows.

    Cost: m squared times the width; memory for the m unit rows in float32, and for each thread one block of products
    and MOST_HELD candidates.
    """
    directions = _read_directions(table, eligible)
    m = len(directions.rows)
    k = max(min(k, m - 1), 0)
    ids, scores = np.empty((m, k), np.int64), np.empty((m, k))
    starts = range(0, m if k else 0, BLOCK_ROWS)

    def search(start: int) -> _Candidates:
        return _search_block(table, directions, start, min(start + BLOCK_ROWS, m), k)

    for start, found in zip(starts, _map_in_threads(search, starts), strict=True):
        stop = min(start + BLOCK_ROWS, m)
        ids[start:stop] = directions.rows[found.columns].reshape(-1, k)
        scores[start:stop] = found.scores.reshape(-1, k)
        if progress is not None:
            progress(stop, m)
    return AllNearest(directions.rows, ids, scores)


def _map_in_threads(function: Callable[[int], _Candidates], items: Sequence[int]) -> Iterator[_Candidates]:
    """The function of each item, in order, on as many threads as the matrix products would use.

    Each thread takes its products alone: so all of the work is shared out, and not the products only.
    """
    # scikit-learn brings it along.
    from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

    usual = max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)
    n_threads = min(usual, MOST_THREADS, len(items))
    if n_threads < 2:
        yield from map(function, items)
        return
    with threadpool_limits(1, user_api="blas"):
        pool = ThreadPoolExecutor(n_threads)
        try:
            yield from pool.map(function, items)
        finally:
            # Whoever interrupts does not wait for blocks that have not begun.
            pool.shutdown(cancel_futures=True)


def _read_directions(table: Rows, eligible: Bools | None) -> _Directions:
    wanted = np.ones(table.n_rows, bool) if eligible is None else eligible
    most = int(np.count_nonzero(wanted))
    rows, lengths = np.empty(most, np.int64), np.empty(most)
    # Blocks of one size, a whole number of groups each, with as little padding as that allows.
    n_blocks = max(1, -(-most // BLOCK_COLUMNS))
    columns = -(-most // (n_blocks * GROUPS)) * GROUPS
    units = np.zeros((n_blocks * columns, table.width), np.float32)
    m = 0
    for start, block in table.blocks():
        place = np.flatnonzero(wanted[start : start + len(block)])
        X = block[place].astype(np.float64)
        norms = row_norms(X)
        sound = has_direction(norms)
        n = m + int(np.count_nonzero(sound))
        rows[m:n] = start + place[sound]
        lengths[m:n] = norms[sound]
        units[m:n] = X[sound] / norms[sound, None]
        m = n
    return _Directions(rows[:m], lengths[:m], units, columns)


def _search_block(table: Rows, directions: _Directions, start: int, stop: int, k: int) -> _Candidates:
    """The first k of each row from start to stop, row by row, nearest first."""
    U, m, n = directions.units, len(directions.rows), stop - start
    columns = directions.block_columns
    # The bound on a rounded dot product of rounded unit vectors, on either side of a comparison.
    slack = np.float32(2 * (U.shape[1] + 16) * 2.0**-24)
    best = np.full((n, k), -np.inf, np.float32)
    S = np.empty((n, columns), np.float32)
    held: list[_Candidates] = []
    for first in range(0, m, columns):
        np.matmul(U[start:stop], U[first : first + columns].T, out=S)
        S[:, m - first :] = -np.inf
        own = np.arange(max(start, first), min(stop, first + columns))
        S[own - start, own - first] = -np.inf
        # Column c of the block is in group c modulo GROUPS: maxima are then taken of whole stretches of memory.
        grouped = S.reshape(n, -1, GROUPS)
        maxima = grouped.max(axis=1)
        _raise_thresholds(best, maxima)
        lower = best[:, 0] - slack
        row, group = np.nonzero(maxima >= lower[:, None])
        inside = grouped[row, :, group]
        hit, place = np.nonzero((inside >= lower[row, None]) & (inside >= -2))
        held.append(_Candidates(start + row[hit], first + place * GROUPS + group[hit], inside[hit, place]))
        if sum(len(part.rows) for part in held) > MOST_HELD:
            held = [_keep_first(table, directions, _join(held), k)]
    found = _join(held)
    last_chance = found.scores >= (best[:, 0] - slack)[found.rows - start]
    return _keep_first(table, directions, found.where(last_chance), k)


def _raise_thresholds(best: Float32s, maxima: Float32s) -> None:
    """Take these maxima (n, groups) among the k largest so far (n, k), the least of which stands first."""
    higher = np.flatnonzero((maxima > best[:, :1]).any(axis=1))
    k = best.shape[1]
    together = np.concatenate([best[higher], maxima[higher]], axis=1)
    best[higher] = np.partition(together, -k, axis=1)[:, -k:]


def _join(parts: list[_Candidates]) -> _Candidates:
    return _Candidates(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.scores for part in parts]),
    )


def _keep_first(table: Rows, directions: _Directions, found: _Candidates, k: int) -> _Candidates:
    """The first k candidates of each row, by their cosine in float64, ties by row."""
    found = found.where(np.argsort(found.rows, kind="stable"))
    scores = _score_pairs(table, directions, found.rows, found.columns)
    order = np.lexsort((found.columns, -scores, found.rows))
    rank = np.arange(len(order)) - np.searchsorted(found.rows, found.rows)
    chosen = order[rank < k]
    return _Candidates(found.rows[chosen], found.columns[chosen], scores[chosen])


def _score_pairs(table: Rows, directions: _Directions, a: Ints, b: Ints) -> Float64s:
    """The cosine of each pair, a (n,) ascending and b (n,) -> float64 (n,), in float64 throughout."""
    rows, lengths = directions.rows, directions.lengths
    scores = np.empty(len(a))
    step = max(1, _CHUNK // table.width)
    for start in range(0, len(a), step):
        part = slice(start, start + step)
        queries, place = np.unique(a[part], return_inverse=True)
        units = table.rows(rows[queries]).astype(np.float64) / lengths[queries, None]
        others = table.rows(rows[b[part]]).astype(np.float64)
        # Each sum runs along its own row, so that equal rows tie to the last bit.
        scores[part] = np.einsum("ij,ij->i", units[place], others) / lengths[b[part]]
        same = np.flatnonzero(scores[part] > 1 - 1e-12) + start
        scores[same] = np.minimum(scores[same], 1.0)
    return scores
