"""The shape of a cloud, twins, and rows hardly trained: against scikit-learn, scipy, and arithmetic by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from made import Array as Table
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from inspect_embed.numerics import cloud, twins, undertrained
from inspect_embed.numerics.all_pairs import find_all_nearest

Array = NDArray[Any]


def normal(n: int, d: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


# The cloud


def test_mean_cosine_is_that_of_all_pairs_of_different_rows() -> None:
    E = normal(40, 5) + 0.7
    E[3] = 0
    E[8, 1] = np.nan
    E[9] *= 1e15
    rows = [E[i].astype(float) for i in range(40) if i not in (3, 8, 20)]
    pairs = [
        float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        for i, a in enumerate(rows)
        for j, b in enumerate(rows)
        if i != j
    ]
    eligible = np.arange(40) != 20
    assert cloud.mean_cosine(Table(E), eligible) == pytest.approx(np.mean(pairs), abs=1e-9)
    assert np.isnan(cloud.mean_cosine(Table(E[:1]), np.ones(1, bool)))


def test_variances_are_those_of_principal_components_however_far_the_mean_lies() -> None:
    E = normal(90, 6).astype(np.float64) * [5, 3, 1, 1, 0.5, 0.1] + 1e5
    eligible = np.arange(90) % 4 != 1
    moments = cloud.measure_moments(Table(E), eligible)
    model = PCA(svd_solver="full").fit(E[eligible])
    n = int(eligible.sum())
    assert moments.n == n
    np.testing.assert_allclose(moments.mean, E[eligible].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.variances(), model.explained_variance_ * (n - 1) / n, rtol=1e-6)
    assert abs(moments.leading_direction() @ model.components_[0]) == pytest.approx(1.0, abs=1e-9)


def test_spread_over_directions_by_hand() -> None:
    assert cloud.participation_ratio(np.array([4.0, 1.0])) == pytest.approx(25 / 17)
    # Singular values 2 and 1: shares 2/3 and 1/3.
    assert cloud.effective_rank(np.array([4.0, 1.0])) == pytest.approx(3 / 2 ** (2 / 3))
    for measure in (cloud.participation_ratio, cloud.effective_rank):
        assert measure(np.full(7, 0.3)) == pytest.approx(7.0)
        assert measure(np.array([2.0, 0.0, 0.0])) == pytest.approx(1.0)
        assert np.isnan(measure(np.zeros(3)))


def test_isoscore_is_that_of_the_published_steps() -> None:
    E = normal(300, 9) * np.linspace(0.1, 3, 9)
    variances = PCA().fit(E).explained_variance_  # steps 2 and 3: the diagonal of the rotated covariance
    n = len(variances)
    scaled = variances * np.sqrt(n) / np.linalg.norm(variances)
    delta = np.linalg.norm(scaled - np.ones(n)) / np.sqrt(2 * (n - np.sqrt(n)))
    k = (n - delta**2 * (n - np.sqrt(n))) ** 2 / n
    expected = (k - 1) / (n - 1)
    found = cloud.isoscore(cloud.measure_moments(Table(E), np.ones(300, bool)).variances())
    assert found == pytest.approx(expected, abs=1e-9)
    assert found == pytest.approx((cloud.participation_ratio(variances) - 1) / (n - 1), abs=1e-9)
    assert cloud.isoscore(np.ones(5)) == pytest.approx(1.0)
    assert cloud.isoscore(np.array([1.0, 0, 0])) == pytest.approx(0.0, abs=1e-12)


def test_the_mean_of_the_cloud_has_no_part_in_isoscore() -> None:
    E = normal(200, 4)
    near, far = (
        cloud.isoscore(cloud.measure_moments(Table(X), np.ones(200, bool)).variances()) for X in (E, E + 50)
    )
    assert near == pytest.approx(far, abs=1e-4)
    assert cloud.mean_cosine(Table(E + 50), np.ones(200, bool)) > 0.99


def test_fences_are_tukeys_outer_fences_of_logarithms() -> None:
    values = np.exp(np.array([0.0, 1, 2, 3, 4, 0, 0, 0]))
    values[5:] = 0, np.inf, np.nan
    low, high = cloud.outer_fences(values)  # quartiles of 0 1 2 3 4 are 1 and 3
    assert np.log([low, high]) == pytest.approx([1 - 6, 3 + 6])
    assert np.isnan(cloud.outer_fences(np.zeros(3))).all()


def test_occurrences_and_their_skewness() -> None:
    ids = np.array([[1, 2], [2, 0], [1, 0], [1, 2]])
    counts = cloud.count_occurrences(ids, 5)
    assert counts.tolist() == [2, 3, 3, 0, 0]
    assert cloud.skewness(counts) == pytest.approx(scipy.stats.skew(counts))
    assert np.isnan(cloud.skewness(np.full(4, 10)))


# Twins


def test_equal_rows_are_grouped_and_broken_ones_equal_none() -> None:
    E = normal(50, 6)
    E[[7, 30, 31]] = E[2]
    E[49] = E[48]
    E[11] = E[12] = np.nan
    E[20], E[21] = 0.0, -0.0
    E[33] = E[2]
    E[33, 5] = np.nextafter(E[33, 5], np.float32(9))
    eligible = np.ones(50, bool)
    assert twins.group_equal(Table(E), eligible) == [[2, 7, 30, 31], [20, 21], [48, 49]]
    eligible[[20, 30]] = False
    assert twins.group_equal(Table(E), eligible) == [[2, 7, 31], [48, 49]]
    assert twins.group_equal(Table(E.astype(np.float64)), eligible) == [[2, 7, 31], [48, 49]]


def test_rows_with_one_fingerprint_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins, "_fingerprints", lambda block: np.zeros(len(block), np.uint64))
    E = normal(6, 3)
    E[4], E[5] = E[1], E[0]
    assert twins.group_equal(Table(E), np.ones(6, bool)) == [[0, 5], [1, 4]]


def test_nearly_equal_rows_are_joined_and_equal_ones_are_not_among_them() -> None:
    E = normal(60, 8)
    E[10] = E[5]  # equal
    E[20] = E[21] * 1.005  # half a percent apart
    E[30] = E[31] * 1.02  # the same direction, two percent apart
    E[41] = E[40] * 1.007
    E[42] = E[41] * 1.007  # 40 and 42 are joined by 41 alone
    table = Table(E)
    norms = np.linalg.norm(E.astype(float), axis=1)
    assert twins.group_near(table, find_all_nearest(table, 10), norms) == [[20, 21], [40, 41, 42]]


# Hardly trained


def published_distance(E: Array, unused: list[int]) -> Array:
    """As it was published: scikit-learn's first component out of the rows as they are, then cosine distances."""
    X = E.astype(np.float64)
    first = PCA(n_components=1, svd_solver="full").fit(X).components_[0]
    left = X - np.outer(X @ first, first)
    mean = left[unused].mean(axis=0)
    return 1 - left @ mean / (np.linalg.norm(left, axis=1) * np.linalg.norm(mean))


def test_distance_from_unused_rows_is_the_published_formula() -> None:
    E = normal(200, 12) * np.linspace(4, 1, 12).astype(np.float32) + 1
    unused = [3, 50, 120, 199]
    mask = np.zeros(200, bool)
    mask[unused] = True
    found = undertrained.distance_from_unused(Table(E), mask)
    expected = published_distance(E, unused)
    np.testing.assert_allclose(found.values, expected, atol=1e-9)
    assert scipy.stats.spearmanr(found.values, expected).statistic == pytest.approx(1.0, abs=1e-12)


def test_an_unused_row_is_also_held_against_the_others_alone() -> None:
    E = normal(80, 6)
    unused = [1, 2, 3]
    mask = np.zeros(80, bool)
    mask[unused] = True
    found = undertrained.distance_from_unused(Table(E), mask)
    first = PCA(n_components=1, svd_solver="full").fit(E.astype(float)).components_[0]
    left = E - np.outer(E @ first, first)
    mean = left[[1, 3]].mean(axis=0)
    expected = 1 - left[2] @ mean / np.linalg.norm(left[2]) / np.linalg.norm(mean)
    assert found.held_out[2] == pytest.approx(expected, abs=1e-6)
    rest = [i for i in range(80) if i not in unused]
    np.testing.assert_array_equal(found.held_out[rest], found.values[rest])


def test_rows_without_a_direction_have_no_distance() -> None:
    E = normal(60, 5)
    E[7] = 0
    E[8, 2] = np.inf
    mask = np.arange(60) < 4
    found = undertrained.distance_from_unused(Table(E), mask).values
    assert np.flatnonzero(np.isnan(found)).tolist() == [7, 8]
    nowhere = undertrained.distance_from_unused(Table(E), np.arange(60) == 7)
    assert np.isnan(nowhere.values).all()


def test_ranks_and_their_correlation_are_scipys() -> None:
    random = np.random.default_rng(0)
    a, b = random.integers(0, 9, 50).astype(float), random.standard_normal(50)
    np.testing.assert_array_equal(undertrained.rank(a), scipy.stats.rankdata(a))
    assert undertrained.spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic)
    assert np.isnan(undertrained.spearman(np.ones(3), np.arange(3.0)))


def test_separation_is_the_area_under_the_roc_curve() -> None:
    random = np.random.default_rng(1)
    values, chosen = random.integers(0, 20, 80).astype(float), random.random(80) < 0.2
    assert undertrained.separation(values, chosen) == pytest.approx(roc_auc_score(chosen, -values))
    assert undertrained.separation(np.array([1.0, 2, 3]), np.array([True, False, False])) == 1.0
    assert np.isnan(undertrained.separation(values, np.zeros(80, bool)))
