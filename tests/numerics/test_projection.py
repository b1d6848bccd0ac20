"""Maps held against scikit-learn, numpy and brute force in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from inspect_embed.errors import MissingExtraError
from inspect_embed.numerics import projection

TABLE = np.array(
    [[2, 0, 1, 0], [0, 3, 0, 1], [1, 1, 4, 0], [0, 0, 1, 5], [3, 1, 0, 2], [1, 2, 2, 2]], np.float64
)
# Made with numpy's eigh of the covariance, each axis turned so that its largest loading is positive.
GOLDEN_AXES = ((-0.1878, -0.1086, -0.3885, 0.8956), (-0.3775, -0.2454, 0.8538, 0.2614))


def cloud(n: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.linspace(3, 0.1, d)


def brute_nearest(X: NDArray[Any], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    X = X.astype(np.float64)
    D = np.array([[np.sqrt(((a - b) ** 2).sum()) for b in X] for a in X])
    np.fill_diagonal(D, np.inf)
    ids = np.argsort(D, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(D, ids, axis=1)


@pytest.mark.parametrize("solver", ["full", "arpack", "randomized"])
@pytest.mark.parametrize("dims", [2, 3])
def test_pca_is_scikit_learns_up_to_signs(solver: str, dims: int) -> None:
    from sklearn.decomposition import PCA

    X = cloud(60, 8)
    theirs = PCA(dims, svd_solver="full").fit(X)
    ours = projection.fit_pca(X, dims, solver)
    signs = np.sign((theirs.components_ * ours.axes).sum(axis=1))
    np.testing.assert_allclose(ours.apply(X), theirs.transform(X) * signs, atol=1e-8)
    np.testing.assert_allclose(ours.ratios, theirs.explained_variance_ratio_, rtol=1e-6)
    assert (ours.axes.max(axis=1) == np.abs(ours.axes).max(axis=1)).all()


def test_a_fixed_table_has_the_same_coordinates_under_two_solvers_and_for_good() -> None:
    full, arpack = (projection.fit_pca(TABLE, 2, solver) for solver in ("full", "arpack"))
    np.testing.assert_allclose(full.apply(TABLE), arpack.apply(TABLE), atol=1e-10)
    np.testing.assert_allclose(full.axes, GOLDEN_AXES, atol=1e-3)


def test_of_loadings_of_equal_size_the_first_decides_the_sign() -> None:
    axes = np.array([[-0.5, 0.5, 0.5, -0.5], [0.1, -0.7, 0.7, 0.0], [0.2, 0.9, -0.1, 0.3]])
    axes[1, 2] += 1e-12  # what rounding adds decides nothing
    np.testing.assert_allclose(projection.fix_signs(axes), axes * [[-1], [-1], [1]])


def test_variance_along_an_empty_axis_is_zero_and_the_shares_are_numpys() -> None:
    X = np.zeros((5, 4))
    X[:, 1] = [1, 2, 3, 4, 5]
    assert projection.fit_pca(X, 3).ratios.tolist() == [1.0, 0.0, 0.0]
    Y = cloud(40, 5, seed=2)
    values = np.linalg.eigvalsh(np.cov(Y.T))[::-1]
    np.testing.assert_allclose(projection.fit_pca(Y, 2).ratios, values[:2] / values.sum())


@pytest.mark.parametrize("size", [1e20, 1e-20])
def test_numbers_of_extreme_size_neither_overflow_nor_vanish(size: float) -> None:
    X = cloud(30, 6).astype(np.float32)
    huge = X * np.float32(size)
    np.testing.assert_allclose(
        projection.fit_pca(huge, 2).apply(huge) / size,
        projection.fit_pca(X, 2).apply(X),
        rtol=2e-3,
        atol=1e-3,
    )
    ids, distances = projection.find_nearest_points(huge, 4)
    expected, apart = brute_nearest(huge.astype(np.float64) / size, 4)
    assert (ids == expected).all()
    np.testing.assert_allclose(distances / size, apart, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nearest_points_are_those_of_brute_force_across_blocks(
    dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "_DISTANCES_HELD", 100)
    monkeypatch.setattr(projection, "_PAIR_ELEMENTS_HELD", 64)
    X = (cloud(37, 9, seed=3) + 50).astype(dtype)
    X[[4, 11, 30]] = X[20]  # equal rows tie, and go by index
    ids, distances = projection.find_nearest_points(X, 5)
    expected, apart = brute_nearest(X, 5)
    assert (ids == expected).all()
    np.testing.assert_allclose(distances, apart, rtol=1e-6, atol=1e-9)
    some = np.array([30, 2])
    assert (projection.find_nearest_points(X, 5, some)[0] == expected[some]).all()


def test_when_all_points_are_equal_the_nearest_go_by_index() -> None:
    ids, distances = projection.find_nearest_points(np.ones((5, 3)), 2)
    assert ids.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]
    assert not distances.any()


def test_the_share_kept_is_that_of_brute_force() -> None:
    X = cloud(50, 12, seed=4)
    Y = X[:, :2]
    true, drawn = brute_nearest(X, 10)[0], brute_nearest(Y, 10)[0]
    expected = [sum(a in list(drawn[i]) for a in true[i]) / 10 for i in range(50)]
    ours = projection.share_kept(
        projection.find_nearest_points(X, 10)[0], projection.find_nearest_points(Y, 10)[0]
    )
    np.testing.assert_allclose(ours, expected)
    assert 0.2 < ours.mean() < 1
    assert (projection.share_kept(true, true[:, ::-1]) == 1).all()


@pytest.mark.parametrize(("n", "k"), [(3, 1), (5, 2), (11, 5), (12, 10), (1000, 10)])
def test_small_maps_are_judged_by_fewer_neighbours(n: int, k: int) -> None:
    assert projection.neighbors_judged(n) == k


@pytest.mark.parametrize(("n", "expected"), [(3, 2), (5, 2), (10, 3), (31, 10), (91, 30), (5000, 30)])
def test_the_perplexity_is_below_the_number_of_points(n: int, expected: float) -> None:
    assert projection.choose_perplexity(n) == expected < n


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("dims", [2, 3])
def test_tsne_of_a_handful_is_repeatable(n: int, dims: int) -> None:
    X = cloud(n, 6)
    first, library = projection.tsne(X, dims, projection.choose_perplexity(n), seed=7)
    again, _ = projection.tsne(X, dims, projection.choose_perplexity(n), seed=7)
    assert first.shape == (n, dims)
    assert library == "scikit-learn"
    assert np.isfinite(first).all()
    assert (first == again).all()


def test_tsne_brings_near_what_is_near() -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(3, 10)) * 20, 8, axis=0) + rng.normal(size=(24, 10))
    Y, _ = projection.tsne(X, 2, 5, seed=0)
    nearest = projection.find_nearest_points(Y, 7)[0]
    assert (nearest // 8 == np.arange(24)[:, None] // 8).mean() > 0.95


def test_open_tsne_draws_where_it_is_installed_and_there_are_many_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("openTSNE", reason="the extra tsne is not installed", exc_type=ImportError)
    monkeypatch.setattr(projection, "MANY", 40)
    told: list[str] = []
    X = cloud(60, 6)
    Y, library = projection.tsne(X, 2, 10, 0, told.append)
    assert (library, Y.shape) == ("openTSNE", (60, 2))
    assert np.isfinite(Y).all()
    assert "iteration" in told[0]


def test_umap_that_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        projection.umap(cloud(9, 4), 2, 0)
    assert caught.value.hint == 'pip install "inspect-embed[umap]"'
