"""The rows nearest to a query, exactly, in one pass over a table that is read by blocks.

The pass scores every row in float32; the rows whose score could reach the first k, given the rounding of
that pass, are then scored again in float64. So the answer is that of float64 arithmetic on all rows, and
equal rows tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from inspect_embed.numerics.vectors import has_direction, row_norms, unit_rows

Floats = NDArray[np.floating[Any]]
Float64s = NDArray[np.float64]

METRICS = ("cosine", "dot", "euclidean")
SCORES_HELD = 1 << 24
"""Scores that are held at a time; more queries than fit take a further pass."""
_SMALL = 1 << 21
_UNIT_ROUNDOFF = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}
_LEAST_LENGTH = {np.dtype(np.float32): 1e-30, np.dtype(np.float64): 1e-290}
"""Rows that are shorter lose digits in the pass: their products sink below the precision's full range."""
_NOISE = 1e-13
"""What is left of a row when a frame takes it away whole is rounding: less than this share of what it was."""


class Rows(Protocol):
    """A table that can be searched."""

    n_rows: int
    width: int

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """Every row once, in order: (first row, block (n, width))."""
        ...

    def rows(self, ids: NDArray[np.integer[Any]]) -> Floats:
        """Copies of the rows asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Nearest:
    """The k nearest rows to one query, nearest first.

    `ids` int64 (k,); `scores` float64 (k,): cosine, dot product, or Euclidean distance. `percentiles`: 100 x the
    share of the rows compared that are strictly farther. `z`: score minus mean, over the standard deviation
    (ddof 0) of the rows compared, its sign such that nearer is positive; NaN where they all score alike.
    `n_compared`: how many rows were compared.
    """

    ids: NDArray[np.int64]
    scores: Float64s
    percentiles: Float64s
    z: Float64s
    n_compared: int


@dataclass(frozen=True, slots=True)
class Frame:
    """What is taken away from every vector before it is compared.

    `mean` (d,) is subtracted; then the parts along `directions` (n, d), orthonormal rows, are removed.
    """

    mean: Float64s
    directions: Float64s

    def apply(self, X: Floats, weight: Float64s | float = 1.0) -> Float64s:
        """X (n, d) seen in this frame: float64 (n, d), a copy.

        `weight`, a number or (n, 1), is how many times the mean is in a row of X: 1 for a row of the table, the sum of
        the weights for a sum of rows. What is taken away whole comes out as zeros. Each row is computed by itself, so
        that equal rows stay equal.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            stored = X.astype(np.float64)
            moved: Float64s = stored - weight * self.mean
            for direction in self.directions:
                moved -= (moved * direction).sum(axis=1, keepdims=True) * direction
            was = row_norms(stored) + row_norms(self.mean[None]) * np.abs(np.ravel(weight))
            moved[row_norms(moved) <= _NOISE * was] = 0.0
        return moved


def fit_frame(table: Rows, eligible: NDArray[np.bool_], n_directions: int) -> Frame:
    """Which mean, and which leading directions, do these rows share?

    `eligible` bool (n_rows,): the rows that count. The directions are the leading eigenvectors of the rows'
    covariance, in float64; n_directions may be 0. Cost: a pass over the table for the mean, another for the
    directions, and one more where the table is float64, whose squares could overflow.

    Source: Mu & Viswanath 2018, "All-but-the-Top: Simple and Effective Postprocessing for Word
    Representations", algorithm 1.
    """
    d = table.width
    n = max(int(np.count_nonzero(eligible)), 1)
    scale = _size_of_entries(table, eligible)
    mean, products = np.zeros(d), np.zeros((d, d))
    for chosen in _chosen_rows(table, eligible):
        mean += (chosen / scale).sum(axis=0)
    mean /= n
    if not n_directions:
        return Frame(mean * scale, np.empty((0, d)))
    for chosen in _chosen_rows(table, eligible):
        centred = chosen / scale - mean
        products += centred.T @ centred
    _, vectors = np.linalg.eigh(products / n)
    return Frame(mean * scale, np.ascontiguousarray(vectors[:, ::-1][:, :n_directions].T))


def _chosen_rows(table: Rows, eligible: NDArray[np.bool_]) -> Iterator[Float64s]:
    for start, block in table.blocks():
        yield block[eligible[start : start + len(block)]].astype(np.float64)


def _size_of_entries(table: Rows, eligible: NDArray[np.bool_]) -> float:
    """A power of two near the largest entry of a float64 table; 1 for any other, whose squares cannot overflow."""
    largest = 0.0
    for start, block in table.blocks():
        if block.dtype != np.float64:
            return 1.0
        chosen = block[eligible[start : start + len(block)]]
        largest = max(largest, float(np.abs(chosen).max(initial=0.0)))
    return float(np.ldexp(1.0, min(int(np.frexp(largest)[1]), 1023)))


def find_nearest(
    table: Rows,
    Q: Float64s,
    k: int,
    metric: str,
    eligible: NDArray[np.bool_],
    left_out: list[list[int]],
    norms: Float64s | None = None,
    frame: Frame | None = None,
) -> tuple[list[Nearest], Float64s]:
    """Which k rows are nearest to each query? Returns them, and the length of every row (n_rows,).

    Q (q, d), already in `frame` where there is one. `eligible` bool (n_rows,): rows that may be answers, as far
    as the caller knows; rows without a direction are left out besides. `left_out`: for each query the rows
    that are its own. `norms` float64 (n_rows,): the rows' lengths, where they are known. Where fewer than k rows
    can be compared, there are fewer answers. Ties go by row.

    Cost: one pass over the table for each SCORES_HELD // n_rows queries; memory for one block and those scores.
    """
    group = max(1, SCORES_HELD // max(table.n_rows, 1))
    found: list[Nearest] = []
    raw = norms
    for first in range(0, len(Q), group):
        some = slice(first, first + group)
        dots, lengths, raw = _score_blocks(table, unit_rows(Q[some]), raw, frame)
        usable = eligible & has_direction(raw)
        if lengths is not raw:
            usable &= has_direction(lengths)
        for q, scores, own in zip(Q[some], dots, left_out[some], strict=True):
            mask = usable.copy()
            mask[[row for row in own if row < table.n_rows]] = False
            found.append(_select(table, q, scores, lengths, raw, mask, k, metric, frame))
    return found, np.empty(0) if raw is None else raw


def _score_blocks(
    table: Rows, directions: Float64s, norms: Float64s | None, frame: Frame | None
) -> tuple[Floats, Float64s, Float64s]:
    """In one pass: dot products with the queries' directions (q, n_rows), which cannot overflow where the rows
    themselves do not; the rows' lengths in the frame; their lengths as stored.
    """
    n = table.n_rows
    # A small table is scored in float64 throughout: it costs nothing. So is one in a frame, whose differences
    # would be of the size of float32's rounding.
    precise = frame is not None or n * table.width <= _SMALL
    if precise:
        norms = None  # known lengths may be of float32's precision
    raw = np.empty(n) if norms is None else norms
    lengths = raw if frame is None else np.empty(n)
    dots: Floats | None = None
    queries: Floats | None = None
    with np.errstate(over="ignore", invalid="ignore"):
        for start, stored in table.blocks():
            place = slice(start, start + len(stored))
            block = stored.astype(np.float64) if precise else stored
            if dots is None or queries is None:
                dots = np.empty((len(directions), n), block.dtype)
                queries = directions.astype(block.dtype)
            if norms is None:
                raw[place] = row_norms(block)
            if frame is not None:
                block = frame.apply(block)
                lengths[place] = row_norms(block)
            if len(directions) == 1:
                np.dot(block, queries[0], out=dots[0, place])
            else:
                dots[:, place] = queries @ block.T
    if dots is None:
        dots = np.empty((len(directions), n))
    return dots, lengths, raw


def _select(
    table: Rows,
    q: Float64s,
    dots: Floats,
    lengths: Float64s,
    raw: Float64s,
    mask: NDArray[np.bool_],
    k: int,
    metric: str,
    frame: Frame | None,
) -> Nearest:
    """The first k of the masked rows, from the dot products of the pass with the query's direction.

    Done in place as far as it goes: a fresh array of the size of a vocabulary costs as much as the work on it.
    """
    left_out = np.flatnonzero(~mask)
    n = len(mask) - len(left_out)
    if n == 0:
        none = np.empty(0)
        return Nearest(np.empty(0, np.int64), none, none, none, 0)
    k = min(k, n)
    q_length = float(row_norms(q[None])[0])
    # What the pass may be wrong by: the bound on a rounded dot product, and on the difference that a frame takes,
    # whose rounding is of the size of the vectors as stored.
    unit = 2 * _UNIT_ROUNDOFF[dots.dtype] * (table.width + 16)
    size = raw
    if frame is not None:
        unit *= 1 + len(frame.directions)
        size = raw + row_norms(frame.mean[None])
    near: Float64s
    slack: Float64s | float
    scale = 1.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if metric == "cosine":
            near = np.divide(dots, lengths, dtype=np.float64)
            slack = unit if size is lengths else unit * (size / lengths)
        elif metric == "dot":
            near = np.multiply(dots, q_length, dtype=np.float64)
            slack = unit * q_length * size
        else:
            # Minus the squared distance, in units in which it cannot overflow.
            scale = max(q_length, float(lengths.max(where=mask, initial=0.0)))
            near = np.divide(dots, scale, dtype=np.float64)
            near *= 2 * (q_length / scale)
            near -= (lengths / scale) ** 2
            near -= (q_length / scale) ** 2
            slack = 2 * unit * ((size + q_length) / scale) ** 2
        near[left_out] = -np.inf
        ids = _may_be_among_first(near, slack, raw < _LEAST_LENGTH[dots.dtype], left_out, k)
        scores = score_rows(table, q, ids, metric, frame)
        sign = -1.0 if metric == "euclidean" else 1.0
        closeness = sign * scores
        order = np.lexsort((ids, -closeness))[:k]
        if metric == "euclidean":
            np.maximum(np.negative(near, out=near), 0.0, out=near)
            np.multiply(np.sqrt(near, out=near), scale, out=near)
        near[ids] = scores
        near[left_out] = 0.0
        largest = 1.0
        if metric != "cosine":
            largest = max(near.max(), -near.min())
            near /= largest  # so that no square overflows
        mean = near.sum() / n
        near -= mean
        near[left_out] = 0.0
        deviation = np.sqrt(np.dot(near, near) / n)
        # Scores that differ by rounding alone are alike.
        size_of_scores = max(float(np.abs(scores).max(initial=0.0)) / largest, abs(mean))
        alike = not deviation > 8 * _UNIT_ROUNDOFF[np.dtype(np.float64)] * (size_of_scores or 1.0)
        z = np.full(k, np.nan) if alike else sign * (scores[order] / largest - mean) / deviation
    ranked = np.sort(closeness)
    at_least = len(ranked) - np.searchsorted(ranked, closeness[order], side="left")
    return Nearest(
        ids=ids[order].astype(np.int64),
        scores=scores[order],
        percentiles=100.0 * (n - at_least) / n,
        z=z,
        n_compared=n,
    )


def _may_be_among_first(
    near: Float64s, slack: Float64s | float, faint: NDArray[np.bool_], left_out: NDArray[np.int64], k: int
) -> NDArray[np.int64]:
    """The rows whose nearness, within its slack, may be among the k largest; those whose score was lost, too.

    A score is lost where it is not finite, or where the row was too `faint` for the precision of the pass.
    """
    n = len(near)
    lost = ~np.isfinite(near) | faint
    lost[left_out] = False
    if isinstance(slack, float) and not lost.any():
        return np.flatnonzero(near >= np.partition(near, n - k)[n - k] - 2 * slack)
    bound = near - slack
    bound[lost] = bound[left_out] = -np.inf
    bound.partition(n - k)
    threshold = bound[n - k]
    np.add(near, slack, out=bound)
    bound[lost] = np.inf
    possible = bound >= threshold
    possible[left_out] = False
    return np.flatnonzero(possible)


def score_rows(
    table: Rows, q: Float64s, ids: NDArray[np.integer[Any]], metric: str, frame: Frame | None
) -> Float64s:
    """How near is the query to each of these rows? float64 (len(ids),), by blocks, in float64 throughout."""
    score: Callable[[Float64s, Float64s], Float64s] = _SCORES[metric]
    scores = np.empty(len(ids))
    step = max(1, (1 << 20) // table.width)
    for start in range(0, len(ids), step):
        stored = table.rows(ids[start : start + step])
        X = stored.astype(np.float64) if frame is None else frame.apply(stored)
        with np.errstate(over="ignore", invalid="ignore"):
            scores[start : start + step] = score(X, q)
    return scores


# Sums run along each row by itself (`.sum(axis=1)`), so that equal rows tie to the last bit, wherever they stand.


def _cosines(X: Float64s, q: Float64s) -> Float64s:
    largest = np.abs(X).max(axis=1, keepdims=True)
    X = X / np.where(largest > 0, largest, 1.0)
    unit = q / np.abs(q).max(initial=0.0)
    squares = (X * X).sum(axis=1) * (unit * unit).sum()
    return np.asarray(np.clip((X * unit).sum(axis=1) / np.sqrt(squares), -1.0, 1.0))


def _dots(X: Float64s, q: Float64s) -> Float64s:
    return np.asarray((X * q).sum(axis=1))


def _distances(X: Float64s, q: Float64s) -> Float64s:
    X = X - q
    largest = np.abs(X).max(axis=1)
    usable = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
    X /= usable[:, None]
    return np.asarray(usable * np.sqrt((X * X).sum(axis=1)))


_SCORES = {"cosine": _cosines, "dot": _dots, "euclidean": _distances}
