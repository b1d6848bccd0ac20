"""How alike are two tables of the same tokens, whatever their coordinates?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspect_embed.numerics.vectors import has_direction, row_norms

Floats = NDArray[np.floating[Any]]
Float64s = NDArray[np.float64]
Ints = NDArray[np.int64]
MatchedBlocks = Callable[[], Iterator[tuple[Floats, Floats]]]
"""Gives every pair of rows once, by blocks: X (n, p) and Y (n, q), a token's two rows at the same place. Finite."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Do two tables share their coordinates? Cosines of centred rows, averaged.

    `matched`: of each token's row in one with its row in the other. `shuffled` and `spread`: mean and standard
    deviation of the same average over all ways to pair the rows anew.
    """

    matched: float
    shuffled: float
    spread: float


@dataclass(frozen=True, slots=True)
class Alignment:
    """How alike two tables of n tokens are; `coordinates` is None where their widths differ.

    `linear_cka`, from 0 to 1: are the similarities among the rows of one those among the rows of the other? 1 where
    one is the other turned, mirrored, moved or scaled; with fewer rows than columns it is high for any two tables.
    `procrustes_residual`, from 0 to 1: the share of one table that is left when the other is moved, turned or
    mirrored, and scaled to fit it best. NaN where a table does not vary.
    """

    n: int
    linear_cka: float
    procrustes_residual: float
    coordinates: Coordinates | None


def measure_alignment(blocks: MatchedBlocks) -> Alignment:
    """How alike are these two tables? Two passes, in float64; memory for a few products of width x width."""
    n, mean_x, mean_y = _means(blocks)
    p, q = len(mean_x), len(mean_y)
    xx, yy, xy = np.zeros((p, p)), np.zeros((q, q)), np.zeros((p, q))
    tally = _CosineTally(p) if p == q else None
    for X, Y in blocks():
        X, Y = X - mean_x, Y - mean_y
        xx += X.T @ X
        yy += Y.T @ Y
        xy += X.T @ Y
        if tally is not None:
            tally.add(X, Y)
    return Alignment(
        n, linear_cka(xx, yy, xy), procrustes_residual(xx, yy, xy), None if tally is None else tally.result()
    )


def _means(blocks: MatchedBlocks) -> tuple[int, Float64s, Float64s]:
    n, x, y = 0, np.zeros(1), np.zeros(1)
    for X, Y in blocks():
        n += len(X)
        x = x + X.sum(axis=0, dtype=np.float64)
        y = y + Y.sum(axis=0, dtype=np.float64)
    return n, x / max(n, 1), y / max(n, 1)


def linear_cka(xx: Float64s, yy: Float64s, xy: Float64s) -> float:
    """Linear CKA of centred X and Y, from X'X (p, p), Y'Y (q, q) and X'Y (p, q): |X'Y|^2 / (|X'X| |Y'Y|).

    Source: Kornblith, Norouzi, Lee & Hinton 2019, "Similarity of Neural Network Representations Revisited",
    section 3, with a linear kernel; Frobenius norms.
    """
    scale = float(np.linalg.norm(xx)) * float(np.linalg.norm(yy))
    return float(np.clip(np.linalg.norm(xy) ** 2 / scale, 0.0, 1.0)) if scale > 0 else float("nan")


def procrustes_residual(xx: Float64s, yy: Float64s, xy: Float64s) -> float:
    """What the best rotation leaves of centred Y, as a share: 1 - s^2 / (|X|^2 |Y|^2).

    s is the sum of the singular values of X'Y; the narrower table is thought of as padded with zeros.

    Source: Gower & Dijksterhuis 2004, "Procrustes Problems"; Schönemann 1966, "A generalized solution of the
    orthogonal Procrustes problem".
    """
    scale = float(np.trace(xx)) * float(np.trace(yy))
    if not scale > 0:
        return float("nan")
    fit = float(np.linalg.svd(xy, compute_uv=False).sum())
    return float(np.clip(1.0 - fit * fit / scale, 0.0, 1.0))


class _CosineTally:
    """Sums over the unit vectors of centred rows, from which all averages of cosines follow."""

    def __init__(self, width: int) -> None:
        self.n = 0
        self.matched = 0.0
        self.sums = np.zeros((2, width))
        self.products = np.zeros((2, width, width))

    def add(self, X: Float64s, Y: Float64s) -> None:
        lengths = row_norms(X), row_norms(Y)
        sound = has_direction(lengths[0]) & has_direction(lengths[1])
        U, V = (Z[sound] / norms[sound, None] for Z, norms in zip((X, Y), lengths, strict=True))
        self.n += len(U)
        self.matched += float(np.einsum("ij,ij->", U, V))
        for place, W in enumerate((U, V)):
            self.sums[place] += W.sum(axis=0)
            self.products[place] += W.T @ W

    def result(self) -> Coordinates:
        n = self.n
        if n < 3:
            return Coordinates(float("nan"), float("nan"), float("nan"))
        u, v = self.sums
        # The variance of a sum of paired products over all permutations: that of the centred products, |C|^2 / (n - 1),
        # where |C|^2 = trace(U'U V'V) of centred unit vectors.
        uu, vv = self.products[0] - np.outer(u, u) / n, self.products[1] - np.outer(v, v) / n
        variance = max(float((uu * vv).sum()), 0.0) / (n - 1) / n**2
        return Coordinates(self.matched / n, float(u @ v) / n**2, float(np.sqrt(variance)))


def neighborhood_overlap(a: Ints, b: Ints) -> Float64s:
    """What share of each row's k neighbours is the same in both? a, b (n, k) -> float64 (n,); NaN where k is 0."""
    n, k = a.shape
    if not k:
        return np.full(n, np.nan)
    # One number for each pair of row and neighbour: those that occur in both are in common.
    row = np.arange(n, dtype=np.int64)[:, None] * (max(int(a.max()), int(b.max())) + 1)
    common = np.isin((row + a).ravel(), (row + b).ravel()).reshape(n, k)
    return np.asarray(common.sum(axis=1) / k)


def row_cosines(X: Floats, Y: Floats) -> Float64s:
    """The cosine of each row of X (n, d) with the same row of Y, in [-1, 1]; NaN where one has no direction.

    Equal rows give exactly 1.
    """
    P, Q = X.astype(np.float64), Y.astype(np.float64)
    a, b = row_norms(P), row_norms(Q)
    sound = has_direction(a) & has_direction(b)
    cosines = np.full(len(P), np.nan)
    U, V = P[sound] / a[sound, None], Q[sound] / b[sound, None]
    cosines[sound] = np.where((U == V).all(axis=1), 1.0, np.clip((U * V).sum(axis=1), -1.0, 1.0))
    return cosines
