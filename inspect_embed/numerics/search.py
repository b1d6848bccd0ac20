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

from inspect_embed.numerics.vectors import has_direction, row_norms

Floats = NDArray[np.floating[Any]]
Float64s = NDArray[np.float64]

METRICS = ("cosine", "dot", "euclidean")
SCORES_HELD = 1 << 24
"""Scores that are held at a time; more queries than fit take a further pass."""
_SMALL = 1 << 21
_UNIT_ROUNDOFF = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


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

    def apply(self, X: Floats) -> Floats:
        """X (n, d) seen in this frame, in X's own precision; a copy."""
        moved = X - self.mean.astype(X.dtype)
        if len(self.directions):
            D = self.directions.astype(X.dtype)
            moved -= (moved @ D.T) @ D
        return moved


def fit_frame(table: Rows, eligible: NDArray[np.bool_], n_directions: int) -> Frame:
    """Which mean, and which leading directions, do these rows share?

    `eligible` bool (n_rows,): the rows that count. The directions are the leading eigenvectors of the rows'
    covariance, in float64; n_directions may be 0.

    Source: Mu & Viswanath 2018, "All-but-the-Top: Simple and Effective Postprocessing for Word
    Representations", algorithm 1.
    """
    d = table.width
    total, products = np.zeros(d), np.zeros((d, d))
    for start, block in table.blocks():
        chosen = block[eligible[start : start + len(block)]].astype(np.float64)
        total += chosen.sum(axis=0)
        if n_directions:
            products += chosen.T @ chosen
    n = max(int(np.count_nonzero(eligible)), 1)
    mean = total / n
    if not n_directions:
        return Frame(mean, np.empty((0, d)))
    _, vectors = np.linalg.eigh(products / n - np.outer(mean, mean))
    return Frame(mean, np.ascontiguousarray(vectors[:, ::-1][:, :n_directions].T))


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
        dots, lengths, raw = _score_blocks(table, _scale_queries(Q[some], metric), raw, frame)
        usable = eligible & has_direction(raw) & has_direction(lengths)
        for q, scores, own in zip(Q[some], dots, left_out[some], strict=True):
            mask = usable.copy()
            mask[[row for row in own if row < table.n_rows]] = False
            found.append(_select(table, q, scores, lengths, raw, mask, k, metric, frame))
    return found, np.empty(0) if raw is None else raw


def _scale_queries(Q: Float64s, metric: str) -> Float64s:
    """Cosines ask for directions alone; a unit query cannot overflow in the pass."""
    return Q / row_norms(Q)[:, None] if metric == "cosine" else Q


def _score_blocks(
    table: Rows, Q: Float64s, norms: Float64s | None, frame: Frame | None
) -> tuple[Floats, Float64s, Float64s]:
    """Dot products (q, n_rows), the rows' lengths in the frame, and their lengths as stored, in one pass."""
    n = table.n_rows
    small = n * table.width <= _SMALL
    raw = np.empty(n) if norms is None else norms
    lengths = raw if frame is None else np.empty(n)
    dots: Floats | None = None
    queries: Floats | None = None
    for start, stored in table.blocks():
        # A small table is scored in float64 throughout: it costs nothing.
        block = stored.astype(np.float64) if small else stored
        place = slice(start, start + len(block))
        if dots is None or queries is None:
            dots = np.empty((len(Q), n), block.dtype)
            queries = Q.astype(block.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            if norms is None:
                raw[place] = row_norms(block)
            if frame is not None:
                block = frame.apply(block)
                lengths[place] = row_norms(block)
            if len(Q) == 1:
                np.dot(block, queries[0], out=dots[0, place])
            else:
                dots[:, place] = queries @ block.T
    if dots is None:
        dots = np.empty((len(Q), n))
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
    """The first k of the masked rows, from the scores of the pass."""
    q_length = float(row_norms(q[None])[0])
    if mask.all():
        rows: NDArray[np.int64] | None = None
        n = len(mask)
    else:
        rows = np.flatnonzero(mask)
        n = len(rows)
        dots, lengths, raw = dots[rows], lengths[rows], raw[rows]
    if n == 0:
        none = np.empty(0)
        return Nearest(np.empty(0, np.int64), none, none, none, 0)
    k = min(k, n)
    unit = _UNIT_ROUNDOFF[dots.dtype] * (table.width + 16)
    with np.errstate(over="ignore", invalid="ignore"):
        # What the pass may be wrong by: the bound on a rounded dot product, and on the difference
        # that a frame takes, whose rounding is of the size of the vectors as stored.
        near = dots / lengths if metric == "cosine" else dots.astype(np.float64)
        slack: Float64s | float
        if metric == "cosine":
            slack = unit if frame is None else 2 * unit * raw / lengths
        elif metric == "dot":
            slack = unit * q_length * raw
        else:
            near = 2 * near - lengths**2 - q_length**2
            slack = 4 * unit * (raw + q_length) ** 2
    # A score that overflowed in the pass, or sank below float32's full precision, is scored again.
    lost = ~np.isfinite(near) | (raw < 1e-30)
    lower, upper = np.where(lost, -np.inf, near - slack), np.where(lost, np.inf, near + slack)
    threshold = np.partition(lower, n - k)[n - k]
    candidates = np.flatnonzero(upper >= threshold)
    ids = candidates if rows is None else rows[candidates]
    scores = score_rows(table, q, ids, metric, frame)
    sign = -1.0 if metric == "euclidean" else 1.0
    closeness = sign * scores
    order = np.lexsort((ids, -closeness))[:k]
    all_scores = np.sqrt(np.maximum(-near, 0.0)) if metric == "euclidean" else near.astype(np.float64)
    all_scores[candidates] = scores
    mean, deviation = all_scores.mean(), all_scores.std()
    z = sign * (scores[order] - mean) / deviation if deviation > 0 else np.full(k, np.nan)
    ranked = np.sort(closeness)
    at_least = len(ranked) - np.searchsorted(ranked, closeness[order], side="left")
    return Nearest(
        ids=ids[order].astype(np.int64),
        scores=scores[order],
        percentiles=100.0 * (n - at_least) / n,
        z=z,
        n_compared=n,
    )


def score_rows(
    table: Rows, q: Float64s, ids: NDArray[np.integer[Any]], metric: str, frame: Frame | None
) -> Float64s:
    """How near is the query to each of these rows? float64 (len(ids),), by blocks, in float64 throughout."""
    score: Callable[[Float64s, Float64s], Float64s] = _SCORES[metric]
    scores = np.empty(len(ids))
    step = max(1, (1 << 20) // table.width)
    for start in range(0, len(ids), step):
        X = table.rows(ids[start : start + step]).astype(np.float64)
        if frame is not None:
            X = frame.apply(X).astype(np.float64)
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
    return row_norms(X - q)


_SCORES = {"cosine": _cosines, "dot": _dots, "euclidean": _distances}
