"""Lengths, directions, cosines: the arithmetic of a few vectors, done so that nothing overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

# Squared lengths outside these bounds are computed again, scaled: beyond them float32 loses digits or overflows.
_SAFE_SQUARES = {np.dtype(np.float32): (1e-30, 1e38), np.dtype(np.float64): (1e-280, 1e300)}


def row_norms(E: Floats) -> NDArray[np.float64]:
    """How long is each row?

    E (n, d) -> float64 (n,). Squares are summed in the array's own precision (float32 at least), and rows whose
    squares leave its range are scaled by their largest entry first, so that nothing overflows or vanishes.
    NaN for a row that holds NaN, infinity for one that holds infinity.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", E, E)
        norms = np.sqrt(squares.astype(np.float64))
        low, high = _SAFE_SQUARES[squares.dtype]
        unsafe = np.flatnonzero(~((squares > low) & (squares < high)))
        if len(unsafe):
            rows = E[unsafe].astype(np.float64)
            largest = np.abs(rows).max(axis=1, initial=0.0)
            usable = np.isfinite(largest) & (largest > 0)
            scaled = rows / np.where(usable, largest, 1.0)[:, None]
            norms[unsafe] = np.where(usable, largest * np.sqrt((scaled * scaled).sum(axis=1)), largest)
    return np.asarray(norms)


def unit_rows(Q: Floats) -> NDArray[np.float64]:
    """The rows' directions: each divided by its length. Q (n, d) -> float64 (n, d); NaN where there is none."""
    with np.errstate(invalid="ignore"):  # some NaN raise an alarm when they are widened
        Q = Q.astype(np.float64)
    norms = row_norms(Q)
    norms[~has_direction(norms)] = np.nan
    # Two steps, so that a subnormal length does not make its reciprocal overflow.
    largest = np.abs(Q).max(axis=1, initial=0.0)
    largest[~np.isfinite(largest) | (largest == 0)] = 1.0
    directions: NDArray[np.float64] = (Q / largest[:, None]) / (norms / largest)[:, None]
    return directions


def has_direction(norms: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows have a direction: neither of zero length nor with a number that is not finite."""
    return np.asarray(np.isfinite(norms) & (norms > 0))


def cosine(a: Floats, b: Floats) -> float:
    """The cosine of the angle between two vectors, in [-1, 1]; NaN where one of them has no direction.

    cos(a, b) = a . b / (|a| |b|), in float64. Equal vectors give exactly 1, opposite ones exactly -1.
    """
    with np.errstate(invalid="ignore"):
        a, b = a.astype(np.float64), b.astype(np.float64)
    if not has_direction(row_norms(np.stack([a, b]))).all():
        return float("nan")
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    # The root of a square is exact: so is the quotient where the vectors are equal.
    return float(np.clip((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()), -1.0, 1.0))


def dot(a: Floats, b: Floats) -> float:
    """The dot product of two vectors, in float64; NaN where a number is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(a.astype(np.float64) @ b.astype(np.float64))
    return value if np.isfinite(a).all() and np.isfinite(b).all() else float("nan")


def distance(a: Floats, b: Floats) -> float:
    """The Euclidean distance of two vectors, in float64; NaN where a number is not finite."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("nan")
    return float(row_norms((a.astype(np.float64) - b.astype(np.float64))[None])[0])
