"""Which rows look as if training had hardly touched them?

Rows of the output table are trained at every step, also those of tokens that never occur: they are pushed to where
their scores are low whatever is read, and so come to lie together. Rows of an input table of its own are trained
only where their token is read: weight decay, or a small start, leaves the others short.

Source: Land & Bartolo 2024, "Fishing for Magikarp: Automatically Detecting Under-trained Tokens in Large Language
Models", section 2.2 (arXiv 2405.05417, version 1), and the code published with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspect_embed.numerics.cloud import measure_moments
from inspect_embed.numerics.search import Rows
from inspect_embed.numerics.vectors import has_direction, row_norms

Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Distances:
    """How far is each row from the mean of the unused rows? float64 (n_rows,), in [0, 2]; small is suspect.

    `values`: to the mean of all unused rows. `held_out`: for an unused row, to the mean of the others, which it has
    no part in; for any other row the same as its value.
    """

    values: Float64s
    held_out: Float64s


def distance_from_unused(table: Rows, unused: Bools) -> Distances:
    """How far is each row from the mean of the rows known to be unused?

    1 - cos(u, m). The part of every row along c, the first principal component of all finite rows, is taken away
    first: u = x - (x . c) c; m is the mean of u over the unused rows. The rows themselves are not centred. NaN for
    rows without a direction, for those that are nothing but c, and for all where no unused row has a direction.

    `unused` bool (n_rows,). Cost: five passes over the table.
    """
    finite, sound = _find_usable(table)
    c = measure_moments(table, finite).leading_direction()
    total = np.zeros(table.width)
    for start, block in table.blocks():
        total += _without(block[(unused & sound)[start : start + len(block)]], c).sum(axis=0)
    values, held_out = np.full(table.n_rows, np.nan), np.full(table.n_rows, np.nan)
    for start, block in table.blocks():
        rows = np.flatnonzero(sound[start : start + len(block)])
        X = _without(block[rows], c)
        values[start + rows] = held_out[start + rows] = _distances(X, total[None])
        own = unused[start + rows]
        held_out[start + rows[own]] = _distances(X[own], total - X[own])
    return Distances(values, held_out)


def _distances(X: Float64s, Y: Float64s) -> Float64s:
    """1 - cosine of each row of X (n, d) with the same row of Y (n, d), or with its only row (1, d)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = (X * Y).sum(axis=1) / (row_norms(X) * row_norms(Y))
    return np.asarray(1.0 - np.clip(cosines, -1.0, 1.0))


def _find_usable(table: Rows) -> tuple[Bools, Bools]:
    """Which rows are finite, and which have a direction besides?"""
    norms = np.empty(table.n_rows)
    for start, block in table.blocks():
        norms[start : start + len(block)] = row_norms(block)
    return np.isfinite(norms), has_direction(norms)


def _without(block: NDArray[np.floating[Any]], c: Float64s) -> Float64s:
    X = block.astype(np.float64)
    return np.asarray(X - (X @ c)[:, None] * c)


def rank(values: Float64s) -> Float64s:
    """Which place does each value take, from 1 for the least? Equal values share the mean of their places."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[inverse])


def spearman(a: Float64s, b: Float64s) -> float:
    """How far do two indicators order the same rows alike? From -1 to 1; NaN where one of them is constant."""
    x, y = rank(a), rank(b)
    x, y = x - x.mean(), y - y.mean()
    spread = np.sqrt((x @ x) * (y @ y))
    return float(np.clip((x @ y) / spread, -1.0, 1.0)) if spread > 0 else float("nan")


def separation(values: Float64s, chosen: Bools) -> float:
    """How well does a small value tell the chosen rows from the others?

    The share of pairs (one chosen, one other) in which the chosen row has the smaller value, ties counting half:
    1 where all do, 0.5 where the value tells nothing. NaN where there are no such pairs.
    """
    n, m = int(np.count_nonzero(chosen)), int(np.count_nonzero(~chosen))
    if not n or not m:
        return float("nan")
    larger = float(rank(values)[chosen].sum()) - n * (n + 1) / 2.0
    return 1.0 - larger / (n * m)
