"""Which rows of a table are equal, and which nearly so?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspect_embed.numerics.all_pairs import AllNearest
from inspect_embed.numerics.search import Rows
from inspect_embed.numerics.vectors import row_norms

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

NEAR = 0.01
"""Two rows are nearly equal where their distance is at most this share of the longer one's length."""


def group_equal(table: Rows, eligible: Bools) -> list[list[int]]:
    """Which rows hold the same numbers? Groups of two or more, rows ascending, the group with the least row first.

    A negative zero is a zero. A row that holds NaN equals none. Cost: one pass, and the rows that share a fingerprint.
    """
    keys = np.zeros(table.n_rows, np.uint64)
    for start, block in table.blocks():
        keys[start : start + len(block)] = _fingerprints(block)
    rows = np.flatnonzero(eligible)
    order = rows[np.argsort(keys[rows], kind="stable")]
    groups = []
    for same in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(same) > 1:
            groups += _split_by_values(table, same)
    return sorted(groups)


def _fingerprints(block: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
    """A 64-bit number for each row; equal rows have the same, others hardly ever."""
    block = np.ascontiguousarray(block + 0.0)  # -0.0 becomes 0.0
    words = block.view(np.uint32 if block.itemsize == 4 else np.uint64)
    odd = np.random.default_rng(0).integers(0, 1 << 63, block.shape[1], np.uint64) * 2 + 1
    return np.asarray((words * odd).sum(axis=1, dtype=np.uint64))


def _split_by_values(table: Rows, rows: Ints) -> list[list[int]]:
    left, groups = rows, []
    while len(left) > 1:
        values = table.rows(left)
        same = (values == values[0]).all(axis=1)
        if np.count_nonzero(same) > 1:
            groups.append(left[same].tolist())
        same[0] = True
        left = left[~same]
    return groups


def group_near(table: Rows, nearest: AllNearest, norms: NDArray[np.float64]) -> list[list[int]]:
    """Which rows differ from each other by little, and not by nothing?

    Groups of two or more, joined by pairs whose distance is at most NEAR times the longer one's length; groups
    whose rows are all equal are left out. Pairs are looked for among each row's nearest neighbours.
    """
    # No pair that is so close can have a smaller cosine.
    lowest = np.sqrt(1.0 - NEAR**2) - 1e-9
    place, rank = np.nonzero(nearest.scores >= lowest)
    pairs = np.sort(np.stack([nearest.rows[place], nearest.ids[place, rank]], axis=1), axis=1)
    a, b = np.unique(pairs, axis=0).T
    close, differ = np.zeros(len(a), bool), np.zeros(len(a), bool)
    step = max(1, (1 << 20) // table.width)
    for start in range(0, len(a), step):
        part = slice(start, start + step)
        apart = row_norms(table.rows(a[part]).astype(np.float64) - table.rows(b[part]))
        close[part] = apart <= NEAR * np.maximum(norms[a[part]], norms[b[part]])
        differ[part] = apart > 0
    groups = _join(zip(a[close].tolist(), b[close].tolist(), strict=True))
    uneven = set(a[close & differ].tolist())
    return [group for group in groups if not uneven.isdisjoint(group)]


def _join(pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Groups of what pairs join, directly or through others."""
    parent: dict[int, int] = {}

    def root(row: int) -> int:
        parent.setdefault(row, row)
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for a, b in pairs:
        first, second = sorted((root(a), root(b)))
        parent[second] = first
    groups: dict[int, list[int]] = {}
    for row in sorted(parent):
        groups.setdefault(root(row), []).append(row)
    return list(groups.values())
