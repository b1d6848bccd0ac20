"""The shape of a cloud of vectors: where its mean lies, and how its variance is spread over the directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspect_embed.numerics.search import Rows
from inspect_embed.numerics.vectors import has_direction, unit_rows

Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Moments:
    """How many rows, their mean (d,), and their covariance (d, d) with divisor n, in float64."""

    n: int
    mean: Float64s
    covariance: Float64s

    def leading_direction(self) -> Float64s:
        """The unit vector (d,) along which the rows vary most: the first principal component, sign undetermined."""
        return np.asarray(np.linalg.eigh(self.covariance)[1][:, -1])

    def variances(self) -> Float64s:
        """The variance along each principal component (d,), the largest first."""
        return np.asarray(np.maximum(np.linalg.eigvalsh(self.covariance)[::-1], 0.0))


def measure_moments(table: Rows, eligible: Bools) -> Moments:
    """What are the mean and the covariance of these rows? `eligible` bool (n_rows,); its rows must be finite.

    Two passes over the table, in float64: the mean is taken away before products are formed.
    """
    n = int(np.count_nonzero(eligible))
    mean, products = np.zeros(table.width), np.zeros((table.width, table.width))
    for start, block in table.blocks():
        mean += block[eligible[start : start + len(block)]].sum(axis=0, dtype=np.float64)
    mean /= max(n, 1)
    for start, block in table.blocks():
        X = block[eligible[start : start + len(block)]] - mean
        products += X.T @ X
    return Moments(n, mean, products / max(n, 1))


def mean_cosine(table: Rows, eligible: Bools) -> float:
    """What is the cosine of two different rows drawn at random, on average?

    Exact, over all pairs: the squared length of the sum of the n unit vectors is n plus the sum of all cosines of
    different rows. Rows without a direction are left out; NaN where fewer than two remain.
    """
    n, total = 0, np.zeros(table.width)
    for start, block in table.blocks():
        units = unit_rows(block[eligible[start : start + len(block)]])
        units = units[np.isfinite(units).all(axis=1)]
        n += len(units)
        total += units.sum(axis=0)
    return float((total @ total - n) / (n * (n - 1))) if n > 1 else float("nan")


def participation_ratio(variances: Float64s) -> float:
    """Over how many directions is the variance spread? From 1 to d: (sum of variances)^2 / sum of their squares.

    NaN where nothing varies.
    """
    shares = _shares(variances)
    return float(1.0 / (shares * shares).sum())


def effective_rank(variances: Float64s) -> float:
    """How many dimensions does the cloud effectively have? From 1 to d.

    exp(H), H the entropy of the singular values of the centred rows, divided by their sum; those singular values
    are proportional to the roots of the variances. NaN where nothing varies.

    Source: Roy & Vetterli 2007, "The effective rank: a measure of effective dimensionality", definition 1.
    """
    shares = _shares(np.sqrt(variances))
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum())) if len(positive) else float("nan")


def isoscore(variances: Float64s) -> float:
    """How evenly is the variance spread over the directions? From 0 (one direction) to 1 (all alike).

    With v the variances along the principal components, scaled to length sqrt(d): the isotropy defect is
    delta = |v - 1| / sqrt(2 (d - sqrt(d))); the share of dimensions in use phi = (d - delta^2 (d - sqrt(d)))^2 / d^2;
    the score (d phi - 1) / (d - 1). NaN where nothing varies, or d is 1. It comes to (participation ratio - 1) /
    (d - 1): the mean of the cloud has no part in it.

    Source: Rudman, Gillman, Rayne & Eickhoff 2022, "IsoScore: Measuring the Uniformity of Embedding Space
    Utilization", algorithm 1.
    """
    d = len(variances)
    if d < 2:
        return float("nan")
    scaled = _shares(variances)
    scaled = scaled * np.sqrt(d) / np.sqrt((scaled * scaled).sum())
    defect = np.sqrt(((scaled - 1.0) ** 2).sum()) / np.sqrt(2.0 * (d - np.sqrt(d)))
    in_use = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d**2
    return float((d * in_use - 1.0) / (d - 1.0))


def _shares(parts: Float64s) -> Float64s:
    """Parts of a whole, as shares of it; NaN where the whole is nothing."""
    total = parts.sum()
    return parts / total if total > 0 else np.full(len(parts), np.nan)


def outer_fences(values: Float64s) -> tuple[float, float]:
    """Below and above which value is one far from the rest, on a logarithmic scale?

    Three times the distance of the quartiles below the first and above the third, of the logarithms. Values that are
    not finite or not above zero have no part in it. NaN where there are no others.

    Source: Tukey 1977, "Exploratory Data Analysis", section 2D ("far out" values).
    """
    logs = np.log(values[has_direction(values)])
    if not len(logs):
        return float("nan"), float("nan")
    first, third = np.quantile(logs, [0.25, 0.75])
    reach = 3.0 * (third - first)
    return float(np.exp(first - reach)), float(np.exp(third + reach))


def count_occurrences(ids: NDArray[np.int64], n_rows: int) -> NDArray[np.int64]:
    """How often is each row among the neighbours of others? ids (m, k), rows below n_rows -> int64 (n_rows,)."""
    return np.bincount(ids.ravel(), minlength=n_rows)


def skewness(counts: NDArray[Any]) -> float:
    """How lopsided are these counts? Third central moment over the cubed standard deviation (ddof 0); NaN where
    they are all alike.

    Source: Radovanović, Nanopoulos & Ivanović 2010, "Hubs in Space", section 2.1 (of k-occurrences).
    """
    deviations = counts - counts.mean()
    spread = np.sqrt((deviations**2).mean())
    return float((deviations**3).mean() / spread**3) if spread > 0 else float("nan")
