"""Sinusoids, the curve by distance, the path of the rows: against formulas written out and float64 brute force."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from inspect_embed.numerics import positions
from inspect_embed.numerics.positions import (
    DRAWN_PAIRS,
    Layout,
    SinusoidRows,
    cross_cosines,
    curve_by_distance,
    evenly,
    find_untrained,
    likeness_beside,
    recognise_sinusoids,
    sinusoid_frequencies,
    sinusoids,
    trace_path,
    turning_error,
)
from inspect_embed.numerics.vectors import has_direction, row_norms, unit_rows

Array = NDArray[Any]


class Rows:
    """A table in memory, read in blocks of any size; remembers how many rows were asked for at once."""

    def __init__(self, X: Array, block: int = 7) -> None:
        self.X = X
        self.n_rows, self.width = X.shape
        self.block = block
        self.most_at_once = 0

    def rows(self, ids: Array) -> Array:
        self.most_at_once = max(self.most_at_once, len(ids))
        return self.X[ids].copy()

    def blocks(self) -> Iterator[tuple[int, Array]]:
        for start in range(0, self.n_rows, self.block):
            yield start, self.X[start : start + self.block]


def written_out(n: int, d: int, base: float = 10_000.0) -> Array:
    """The sinusoidal table, number by number."""
    P = np.empty((n, d))
    for p in range(n):
        for i in range(d // 2):
            P[p, 2 * i] = math.sin(p / base ** (2 * i / d))
            P[p, 2 * i + 1] = math.cos(p / base ** (2 * i / d))
    return P


def random_rows(n: int, d: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d))


# --- sinusoids -----------------------------------------------------------------------------------------------


def test_sinusoids_are_those_of_the_formula() -> None:
    P = written_out(40, 16)
    assert np.allclose(sinusoids(np.arange(40), 16), P, rtol=0, atol=1e-14)
    halves = sinusoids(np.arange(40), 16, "halves")
    assert np.allclose(halves, np.concatenate([P[:, 0::2], P[:, 1::2]], axis=1), rtol=0, atol=1e-14)
    assert np.allclose(sinusoids(np.array([39, 3]), 16, base=500.0), written_out(40, 16, 500.0)[[39, 3]])


@pytest.mark.parametrize(
    ("row", "first_six"),
    [
        (0, [0, 1, 0, 1, 0, 1]),
        (1, [0.841, 0.540, 0.311, 0.950, 0.100, 0.995]),
        (5, [-0.959, 0.284, 1.000, -0.010, 0.479, 0.878]),
    ],
)
def test_published_rows(row: int, first_six: list[float]) -> None:
    assert sinusoids(np.array([row]), 16)[0, :6].round(3).tolist() == first_six


def test_published_dot_products_and_distances() -> None:
    P = sinusoids(np.arange(64), 16)
    for start in (10, 30):
        dots = [round(float(P[start] @ P[start + k]), 3) for k in (0, 1, 2, 4, 8, 16, 32)]
        assert dots == [8.000, 7.485, 6.368, 5.560, 4.697, 4.214, 3.541]
    assert round(float(np.linalg.norm(P[0] - P[1])), 3) == 1.015
    assert round(float(np.linalg.norm(P[0] - P[32])), 3) == 2.986


def test_published_wavelengths() -> None:
    waves = 2 * math.pi / sinusoid_frequencies(768)
    assert len(waves) == 384
    assert round(float(waves[0]), 1) == 6.3
    assert [round(float(waves[i])) for i in (100, 200, 383)] == [69, 761, 61_343]


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_turning_takes_every_row_to_the_row_ahead(layout: Layout) -> None:
    P, w = sinusoids(np.arange(64), 16, layout), sinusoid_frequencies(16)
    for k in (1, 5, 63):
        assert turning_error(P, w, k, layout) < 1e-13
        # The same with one rotation matrix a pair.
        for i, angle in enumerate(k * w):
            columns = [2 * i, 2 * i + 1] if layout == "interleaved" else [i, i + 8]
            matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            assert np.allclose(P[:-k][:, columns] @ matrix, P[k:][:, columns], atol=1e-13)
    assert turning_error(P, w * 1.01, 5, layout) > 0.04


def sinusoids_from_row_2(n: int, d: int) -> Array:
    """A layout in use: halves, frequencies that end at exactly 1/10,000, the first row the third of the formula."""
    w = np.exp(-np.arange(d // 2) * math.log(10_000) / (d // 2 - 1))
    angles = np.arange(2, n + 2)[:, None] * w
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("d", [2, 4, 16, 64, 512])
def test_sinusoids_are_recognised_in_any_precision(d: int, dtype: type) -> None:
    made = recognise_sinusoids(written_out(128, d).astype(dtype).astype(np.float32))
    assert made is not None
    assert (made.layout, made.sine_first, made.named, made.exponent) == ("interleaved", True, True, "2i/d")
    assert made.base == 10_000
    assert np.allclose(made.frequencies, [10_000 ** (-2 * i / d) for i in range(d // 2)], rtol=1e-12)
    assert made.misfit < (1e-6 if dtype in (np.float64, np.float32) else 0.01)


def test_layouts_are_told_apart() -> None:
    halves = recognise_sinusoids(sinusoids(np.arange(100), 64, "halves"))
    assert halves is not None
    assert halves.layout == "halves"
    shifted = recognise_sinusoids(sinusoids_from_row_2(100, 64))
    assert shifted is not None
    assert (shifted.layout, shifted.exponent, shifted.named) == ("halves", "i/(d/2 - 1)", True)
    assert shifted.frequencies[-1] == pytest.approx(1e-4)
    P = written_out(100, 64)
    cosines_first = recognise_sinusoids(P.reshape(100, 32, 2)[:, :, ::-1].reshape(100, 64))
    assert cosines_first is not None
    assert (cosines_first.layout, cosines_first.sine_first) == ("interleaved", False)
    assert np.allclose(cosines_first.frequencies, sinusoid_frequencies(64))


def test_other_bases_and_sizes_are_fitted() -> None:
    made = recognise_sinusoids(written_out(300, 64, 500_000.0) * 0.125)
    assert made is not None
    assert not made.named
    assert made.base == pytest.approx(500_000, rel=1e-3)
    assert made.amplitude == pytest.approx(0.125)


def test_what_is_no_sinusoid_is_not_taken_for_one() -> None:
    P = written_out(100, 16)
    wave = np.sin(np.arange(100) / 9)[:, None]
    moved = P.copy()
    moved[50] = P[57]
    one_column = P.copy()
    one_column[:, 3] = random_rows(100, 1)[:, 0]
    for X in (
        random_rows(100, 16),
        np.zeros((100, 16)),
        np.ones((100, 16)),
        wave * random_rows(1, 16),
        P[np.random.default_rng(0).permutation(100)],
        moved,
        one_column,
        P * np.linspace(1, 2, 100)[:, None],
        np.where(P > 2, P, np.nan),
        P[:3],
    ):
        assert recognise_sinusoids(X) is None


def test_rows_of_a_formula_are_those_of_the_table() -> None:
    table = SinusoidRows(1000, 16)
    whole = np.concatenate([block for _, block in table.blocks()])
    assert np.array_equal(whole, sinusoids(np.arange(1000), 16))
    assert table.rows(np.empty(0, np.int64)).shape == (0, 16)


# --- the curve -----------------------------------------------------------------------------------------------


def brute_force(X: Array, t: int) -> list[float]:
    """Every defined cosine at this distance."""
    found = []
    for a, b in zip(X[:-t].astype(np.float64), X[t:].astype(np.float64), strict=True):
        lengths = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
        if math.isfinite(lengths) and lengths > 0:
            found.append(float(a @ b) / lengths)
    return found


@pytest.mark.parametrize("first", [0, 2])
def test_curve_is_that_of_every_pair(first: int) -> None:
    X = np.cumsum(random_rows(40, 8), axis=0).astype(np.float32)
    X[11] = 0
    X[20, 3] = np.nan
    X[0] = 1e20
    curve = curve_by_distance(Rows(X), first)
    assert curve.distances.tolist() == list(range(1, 40 - first))
    assert not curve.drawn
    for i, t in enumerate(curve.distances.tolist()):
        cosines = brute_force(X[first:], t)
        assert curve.pairs[i] == len(cosines)
        assert curve.mean[i] == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)
        assert curve.low[i] == pytest.approx(float(np.percentile(cosines, 5)), abs=1e-12)
        assert curve.high[i] == pytest.approx(float(np.percentile(cosines, 95)), abs=1e-12)


def test_shuffled_rows_have_no_curve_left() -> None:
    X = sinusoids(np.arange(400), 32)
    curve = curve_by_distance(Rows(X))
    expected = unit_rows(X) @ unit_rows(X).T
    average = (expected.sum() - 400) / (400 * 399)
    assert np.abs(curve.shuffled[:200] - average).max() < 0.1
    assert curve.mean[0] > average + 0.3
    again = curve_by_distance(Rows(X))
    assert np.array_equal(again.shuffled, curve.shuffled)


@pytest.mark.parametrize("X", [np.zeros((5, 4)), np.full((5, 4), np.nan)])
def test_curve_without_directions_is_undefined(X: Array) -> None:
    curve = curve_by_distance(Rows(X))
    assert np.isnan([curve.mean, curve.low, curve.high, curve.shuffled]).all()
    assert curve.pairs.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("n", [1, 2])
def test_curve_of_hardly_any_rows(n: int) -> None:
    assert len(curve_by_distance(Rows(random_rows(n, 4))).distances) == n - 1


def test_curve_of_a_long_table_is_drawn_from_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.cumsum(random_rows(3000, 16), axis=0)
    X[7] = 0
    whole_table = Rows(X)
    monkeypatch.setattr(positions, "EXACT_ROWS", 3000)
    whole = curve_by_distance(whole_table, 5)
    monkeypatch.setattr(positions, "EXACT_ROWS", 2048)
    table = Rows(X)
    drawn = curve_by_distance(table, 5)
    assert drawn.drawn
    assert table.most_at_once <= 2 * DRAWN_PAIRS
    assert set(drawn.distances.tolist()) >= {1, 2, 64, 128, 256, 512, 1024, 2048, 2994}
    assert drawn.distances[-1] == 2994
    assert drawn.pairs[-1] == 1
    assert drawn.pairs.max() == DRAWN_PAIRS
    expected = whole.mean[drawn.distances - 1]
    spread = (whole.high - whole.low)[drawn.distances - 1]
    assert (np.abs(drawn.mean - expected) <= 0.15 * spread + 1e-9).mean() > 0.9
    assert drawn.mean[-1] == pytest.approx(expected[-1], abs=1e-12)
    assert abs(drawn.shuffled.mean() - whole.shuffled[:1000].mean()) < 0.05


# --- the rows as a whole -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(30, 12), (12, 30)])
def test_path_is_that_of_the_singular_vectors(n: int, d: int) -> None:
    X = random_rows(n, d) * np.geomspace(1, 0.01, d)
    path = trace_path(X.astype(np.float32))
    centred = X.astype(np.float32).astype(np.float64)
    centred -= centred.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    assert np.allclose(path.shares, (sizes**2 / (sizes**2).sum())[:10], atol=1e-9)
    for c in range(3):
        loadings = axes[c] * np.sign(axes[c][np.abs(axes[c]).argmax()])
        assert np.allclose(path.coordinates[:, c], centred @ loadings, atol=1e-6)


def test_path_leaves_out_what_is_not_finite() -> None:
    X = random_rows(10, 4)
    X[3, 1] = np.inf
    path = trace_path(X)
    assert np.isnan(path.coordinates[3]).all()
    assert np.allclose(path.coordinates[np.arange(10) != 3], trace_path(np.delete(X, 3, axis=0)).coordinates)


@pytest.mark.parametrize("X", [np.ones((5, 4)), np.zeros((5, 4)), np.ones((1, 4)), np.full((5, 4), np.nan)])
def test_no_path_without_variance(X: Array) -> None:
    path = trace_path(X)
    assert path.coordinates.shape == (len(X), 0)
    assert not len(path.shares)


def test_path_of_a_line_has_one_component() -> None:
    path = trace_path(np.arange(9)[:, None] * np.ones(5))
    assert path.coordinates.shape == (9, 1)
    assert path.shares[0] == pytest.approx(1)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 60])
def test_likeness_beside_is_that_of_four_rows(block: int) -> None:
    X = np.cumsum(random_rows(60, 64), axis=0).astype(np.float32)
    X[9] = 0
    X[30] = np.nan
    U = np.nan_to_num(unit_rows(X))
    C = np.abs(U @ U.T)
    expected = [max(C[i, j] for j in range(max(0, i - 2), min(60, i + 3)) if j != i) for i in range(60)]
    found = likeness_beside(Rows(X, block), row_norms(X))
    assert np.allclose(found, expected, atol=1e-5)


def test_rows_that_were_never_trained_are_found() -> None:
    X = np.cumsum(random_rows(200, 128, 1), axis=0)
    X[150:] = random_rows(50, 128, 2) * 0.02
    X[20] = 0
    norms = row_norms(X)
    found = find_untrained(likeness_beside(Rows(X), norms), has_direction(norms), 128)
    assert found is not None
    assert np.flatnonzero(found).tolist() == list(range(150, 200))


def test_where_all_rows_are_random_nothing_is_told() -> None:
    for X in (random_rows(100, 128), np.cumsum(random_rows(100, 16), axis=0)):
        norms = row_norms(X)
        assert find_untrained(likeness_beside(Rows(X), norms), has_direction(norms), X.shape[1]) is None


def test_cosines_between_two_tables() -> None:
    E, P = random_rows(50, 16, 1).astype(np.float32), random_rows(20, 16, 2)
    E[4] = 0
    P[3] = np.nan
    found = cross_cosines(Rows(E), unit_rows(P))
    assert found is not None
    sizes = np.abs(np.delete(unit_rows(E), 4, axis=0) @ np.delete(unit_rows(P), 3, axis=0).T)
    assert found.n_pairs == sizes.size == 49 * 19
    assert found.largest == pytest.approx(sizes.max(), abs=1e-6)
    assert found.mean == pytest.approx(sizes.mean(), abs=1e-6)
    # The mean size of a random cosine in d dimensions is Gamma(d/2) / (sqrt(pi) Gamma((d + 1)/2)).
    expected = math.gamma(8) / (math.sqrt(math.pi) * math.gamma(8.5))
    assert found.random_mean == pytest.approx(expected, rel=0.1)
    assert cross_cosines(Rows(np.zeros((3, 16))), unit_rows(P)) is None


def test_evenly_spaced_rows_hold_the_first_and_the_last() -> None:
    assert evenly(5, 5).tolist() == [0, 1, 2, 3, 4]
    spaced = evenly(1000, 10)
    assert len(spaced) == 10
    assert (spaced[0], spaced[-1]) == (0, 999)
    assert set(np.diff(spaced).tolist()) == {111}
