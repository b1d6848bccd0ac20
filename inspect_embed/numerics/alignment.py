"""How alike are two tables of the same tokens, whatever their coordinates?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspect_embed.numerics.vectors import has_direction, row_norms

Float64s = NDArray[np.float64]
Ints = NDArray[np.int64]

_SHIFTS = 20


def linear_cka(X: Float64s, Y: Float64s) -> float:
    """How alike are the similarities among the rows of X (n, p) and among those of Y (n, q)? From 0 to 1.

    |Y'X|^2 / (|X'X| |Y'Y|), Frobenius norms of centred rows: 1 where Y is X turned, mirrored, moved or scaled. NaN
    where one of them does not vary. With fewer rows than columns it is high for any two tables.

    Source: Kornblith, Norouzi, Lee & Hinton 2019, "Similarity of Neural Network Representations Revisited",
    section 3, equation 3 with a linear kernel.
    """
    X, Y = _centre(X), _centre(Y)
    scale = float(np.linalg.norm(X.T @ X) * np.linalg.norm(Y.T @ Y))
    return float(np.clip(np.linalg.norm(Y.T @ X) ** 2 / scale, 0.0, 1.0)) if scale > 0 else float("nan")


def procrustes_residual(X: Float64s, Y: Float64s) -> float:
    """What share of Y (n, q) is left when X (n, p) is moved, turned or mirrored, and scaled to fit it best?

    From 0 (X is Y, seen from elsewhere) to 1: 1 - s^2 / (|X|^2 |Y|^2), s the sum of the singular values of X'Y, of
    centred rows. The narrower table is thought of as padded with zeros. NaN where one of them does not vary.

    Source: Gower & Dijksterhuis 2004, "Procrustes Problems"; Schönemann 1966 for the best rotation.
    """
    X, Y = _centre(X), _centre(Y)
    scale = float(np.linalg.norm(X) * np.linalg.norm(Y))
    if not scale > 0:
        return float("nan")
    fit = float(np.linalg.svd(X.T @ Y, compute_uv=False).sum()) / scale
    return float(np.clip(1.0 - fit * fit, 0.0, 1.0))


def _centre(X: Float64s) -> Float64s:
    """Rows less their mean, divided by the largest entry: the measures do not depend on it, and nothing overflows."""
    X = X - X.mean(axis=0)
    largest = np.abs(X).max(initial=0.0)
    return np.asarray(X / largest if largest > 0 else X)


def neighborhood_overlap(a: Ints, b: Ints) -> Float64s:
    """What share of each row's k neighbours is the same in both? a, b (n, k), -1 for none -> float64 (n,).

    NaN for a row that has no neighbours in one of them.
    """
    n, k = a.shape
    if not k:
        return np.full(n, np.nan)
    # One number for each pair of row and neighbour: those that occur twice are in common.
    row = np.arange(n)[:, None] * (int(max(a.max(initial=0), b.max(initial=0))) + 2)
    common = np.isin((row + a).ravel(), (row + b).ravel()).reshape(n, k)
    shares = (common & (a >= 0)).sum(axis=1) / k
    shares[(a < 0).all(axis=1) | (b < 0).all(axis=1)] = np.nan
    return np.asarray(shares)


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Do two tables share their coordinates? Cosines of centred rows, averaged.

    `matched`: of each token's row in one with its row in the other. `shuffled` and `spread`: mean and standard
    deviation of the same average when each row is held against that of another token.
    """

    matched: float
    shuffled: float
    spread: float


def compare_coordinates(X: Float64s, Y: Float64s) -> Coordinates:
    """Do rows of X (n, d) point the way of the same rows of Y (n, d), and more so than of other rows?

    Rows without a direction, after the mean is taken away, are left out. NaN where fewer than three are left.
    """
    U, V = _units(_centre(X)), _units(_centre(Y))
    sound = np.isfinite(U).all(axis=1) & np.isfinite(V).all(axis=1)
    U, V = U[sound], V[sound]
    n = len(U)
    if n < 3:
        return Coordinates(float("nan"), float("nan"), float("nan"))
    # In a fixed random order, so that a shift does not pair tokens that stand side by side in the vocabulary.
    order = np.random.default_rng(0).permutation(n)
    U, V = U[order], V[order]
    shifts = np.unique(np.linspace(1, n - 1, min(_SHIFTS, n - 1)).astype(np.int64))
    others = np.array([np.einsum("ij,ij->", U, np.roll(V, shift, axis=0)) / n for shift in shifts])
    return Coordinates(float(np.einsum("ij,ij->", U, V)) / n, float(others.mean()), float(others.std()))


def _units(X: NDArray[np.floating[Any]]) -> Float64s:
    norms = row_norms(X.astype(np.float64))
    norms[~has_direction(norms)] = np.nan
    return np.asarray(X / norms[:, None])


def row_cosines(X: Float64s, Y: Float64s) -> Float64s:
    """The cosine of each row of X (n, d) with the same row of Y, in [-1, 1]; NaN where one has no direction."""
    cosines = np.einsum("ij,ij->i", _units(X), _units(Y))
    cosines[(X == Y).all(axis=1) & np.isfinite(cosines)] = 1.0
    return np.asarray(np.clip(cosines, -1.0, 1.0))
