"""How alike two tables are: against kernels written out, scipy's Procrustes analysis, and permutations drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.spatial
from numpy.typing import NDArray

from inspect_embed.numerics.alignment import (
    Alignment,
    measure_alignment,
    neighborhood_overlap,
    row_cosines,
)

Array = NDArray[Any]


def normal(n: int, d: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d))


def measure(X: Array, Y: Array) -> Alignment:
    def blocks() -> Iterator[tuple[Array, Array]]:
        for start in range(0, len(X), 7):
            yield X[start : start + 7], Y[start : start + 7]

    return measure_alignment(blocks)


def rotation(d: int, seed: int = 9) -> Array:
    return np.linalg.qr(normal(d, d, seed))[0]


def test_linear_cka_is_that_of_centred_kernels() -> None:
    X, Y = normal(50, 6, 0) + 3, normal(50, 4, 1)
    Y[:, 0] += X[:, 0]
    H = np.eye(50) - 1 / 50
    K, L = H @ X @ X.T @ H, H @ Y @ Y.T @ H
    expected = np.trace(K @ L) / np.sqrt(np.trace(K @ K) * np.trace(L @ L))
    assert measure(X, Y).linear_cka == pytest.approx(expected, abs=1e-10)


def test_procrustes_residual_is_scipys_disparity() -> None:
    X, Y = normal(40, 5, 2) + 1, normal(40, 5, 3) * 4
    Y += X
    assert measure(X, Y).procrustes_residual == pytest.approx(scipy.spatial.procrustes(X, Y)[2], abs=1e-10)
    narrow = Y[:, :3]
    padded = np.hstack([narrow, np.zeros((40, 2))])
    assert measure(X, narrow).procrustes_residual == pytest.approx(
        scipy.spatial.procrustes(X, padded)[2], abs=1e-10
    )


def test_a_table_turned_mirrored_moved_and_scaled_is_the_same_table() -> None:
    X = normal(60, 8, 4)
    found = measure(X, 3 * X @ rotation(8) + 5)
    assert found.linear_cka == pytest.approx(1.0, abs=1e-10)
    assert found.procrustes_residual == pytest.approx(0.0, abs=1e-10)
    assert found.n == 60


def test_coordinates_are_those_of_matched_and_shuffled_pairs() -> None:
    X = normal(30, 4, 5) + 2
    Y = X + 0.5 * normal(30, 4, 6)
    found = measure(X, Y).coordinates
    assert found is not None
    U, V = X - X.mean(axis=0), Y - Y.mean(axis=0)
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    assert found.matched == pytest.approx((U * V).sum() / 30)
    random = np.random.default_rng(7)
    drawn = [(U * V[random.permutation(30)]).sum() / 30 for _ in range(20_000)]
    assert found.shuffled == pytest.approx(np.mean(drawn), abs=4 * found.spread / np.sqrt(20_000))
    assert found.spread == pytest.approx(np.std(drawn), rel=0.03)


def test_tables_of_different_widths_have_no_common_coordinates() -> None:
    assert measure(normal(20, 4, 0), normal(20, 5, 1)).coordinates is None


def test_tables_that_do_not_vary_have_no_likeness() -> None:
    found = measure(np.ones((10, 3)), normal(10, 3, 0))
    assert np.isnan([found.linear_cka, found.procrustes_residual]).all()
    assert found.coordinates is not None
    assert np.isnan(found.coordinates.matched)


def test_overlap_counts_neighbours_in_common_in_any_order() -> None:
    a = np.array([[1, 2, 3], [0, 2, 3], [9, 8, 7]])
    b = np.array([[3, 1, 2], [4, 3, 5], [0, 1, 2]])
    assert neighborhood_overlap(a, b) == pytest.approx([1, 1 / 3, 0])
    assert np.isnan(neighborhood_overlap(a[:, :0], b[:, :0])).all()


def test_cosines_of_rows_are_exact_for_equal_rows_and_undefined_without_a_direction() -> None:
    X = normal(5, 7, 8).astype(np.float32)
    Y = X.copy()
    Y[1] *= 2
    Y[2] = -X[2]
    Y[3] = 0
    found = row_cosines(X, Y)
    assert found[[0, 1, 4]].tolist() == [1.0, 1.0, 1.0]
    assert found[2] == pytest.approx(-1.0)
    assert np.isnan(found[3])
