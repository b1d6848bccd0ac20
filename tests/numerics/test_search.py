"""The nearest rows, against brute force in float64: ties, twins, rows without a direction, rows of every size."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made import Array, random_table
from numpy.typing import NDArray

from inspect_embed.numerics import search
from inspect_embed.numerics.search import Frame, Nearest, find_nearest, fit_frame

METRICS = ("cosine", "dot", "euclidean")

# --- brute force ---------------------------------------------------------------------------------------------


def scores_of(E: NDArray[Any], q: NDArray[Any], metric: str) -> NDArray[np.float64]:
    """The score of every row, in the plainest way that does not overflow."""
    E, q = E.astype(np.float64), q.astype(np.float64)
    if metric == "dot":
        return np.array([math.fsum(x * y for x, y in zip(row, q, strict=True)) for row in E])
    if metric == "euclidean":
        return np.array([math.hypot(*(row - q)) for row in E])

    def unit(x: NDArray[Any]) -> NDArray[Any]:
        x = x / np.abs(x).max()
        return x / math.hypot(*x)

    return np.array([math.fsum(unit(row) * unit(q)) for row in E])


def brute(
    E: NDArray[Any], q: NDArray[Any], metric: str, compared: Iterable[int]
) -> tuple[list[int], dict[int, Any]]:
    """The rows compared, nearest first and ties by row; score, percentile and z of each."""
    rows = list(compared)
    scores = scores_of(E[rows], q, metric)
    closeness = -scores if metric == "euclidean" else scores
    order = sorted(range(len(rows)), key=lambda i: (-closeness[i], rows[i]))
    largest = np.abs(scores).max() or 1.0
    mean, deviation = (scores / largest).mean(), (scores / largest).std()
    sign = -1 if metric == "euclidean" else 1
    facts = {
        rows[i]: (
            scores[i],
            100 * float(np.mean(closeness < closeness[i])),
            sign * (scores[i] / largest - mean) / deviation if deviation > 1e-13 else math.nan,
        )
        for i in range(len(rows))
    }
    return [rows[i] for i in order], facts


def sound(E: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(E).all(axis=1) & (E != 0).any(axis=1)


def ask(E: NDArray[Any], row: int, k: int = 3, metric: str = "cosine", **options: Any) -> Nearest:
    """The neighbours of one row of a table."""
    table = Array(E)
    eligible = options.pop("eligible", np.ones(len(E), bool))
    (found,), _ = find_nearest(table, E[[row]].astype(np.float64), k, metric, eligible, [[row]], **options)
    return found


def check(E: NDArray[Any], row: int, k: int, metric: str, found: Nearest, rtol: float = 1e-12) -> None:
    compared = [i for i in range(len(E)) if i != row and sound(E)[i]]
    order, facts = brute(E, E[row], metric, compared)
    assert found.n_compared == len(compared)
    assert len(found.ids) == min(k, len(compared))
    assert found.ids.tolist() == order[:k]
    for column, values in enumerate((found.scores, found.percentiles, found.z)):
        expected = [facts[i][column] for i in order[:k]]
        np.testing.assert_allclose(values, expected, rtol=rtol, atol=1e-9 if column == 2 else 1e-12)


# --- the answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 10, 58, 59, 60, 1000])
def test_neighbours_are_those_of_brute_force(metric: str, dtype: type, k: int) -> None:
    E = random_table(60, 5).astype(dtype)
    check(E, 17, k, metric, ask(E, 17, k, metric))


@pytest.mark.parametrize("metric", METRICS)
def test_a_table_too_large_for_float64_throughout_gives_the_same(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_SMALL", 0)
    E = random_table(300, 24) + 0.3
    for row in (0, 17, 299):
        found = ask(E, row, 20, metric)
        compared = [i for i in range(300) if i != row]
        order, facts = brute(E, E[row], metric, compared)
        assert found.ids.tolist() == order[:20]
        np.testing.assert_allclose(found.scores, [facts[i][0] for i in order[:20]], rtol=1e-13)
        np.testing.assert_allclose(found.percentiles, [facts[i][1] for i in order[:20]])
        np.testing.assert_allclose(found.z, [facts[i][2] for i in order[:20]], rtol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_differ_by_less_than_the_pass_can_tell_are_ordered_as_they_are(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_SMALL", 0)
    rng = np.random.default_rng(1)
    base = rng.standard_normal(64)
    E = np.vstack([base + 1e-4 * rng.standard_normal((200, 64)), rng.standard_normal((100, 64))]).astype(
        np.float32
    )
    found = ask(E, 0, 150, metric)
    order, _ = brute(E, E[0], metric, range(1, 300))
    assert found.ids.tolist() == order[:150]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("small", [0, 1 << 21])
def test_lengths_that_are_known_already_change_nothing(
    metric: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be of float32's precision."""
    monkeypatch.setattr(search, "_SMALL", small)
    rng = np.random.default_rng(2)
    base = rng.standard_normal(48)
    E = (base + 1e-4 * rng.standard_normal((300, 48))).astype(np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", E, E)).astype(np.float64)
    assert ask(E, 0, 50, metric, norms=norms).ids.tolist() == ask(E, 0, 50, metric).ids.tolist()
    assert ask(E, 0, 50, metric, norms=norms).ids.tolist() == brute(E, E[0], metric, range(1, 300))[0][:50]


def test_lengths_come_back_with_the_answer() -> None:
    E = random_table(50, 4)
    E[3] = 0
    E[4] = np.nan
    _, norms = find_nearest(Array(E), E[[0]].astype(np.float64), 3, "cosine", np.ones(50, bool), [[0]])
    np.testing.assert_allclose(norms, np.linalg.norm(E.astype(np.float64), axis=1), rtol=1e-6)


# --- the query, twins and ties -------------------------------------------------------------------------------


def planted_twins() -> NDArray[np.float32]:
    E = random_table(12, 6)
    E[[5, 6, 7]] = E[2]
    return E


@pytest.mark.parametrize("metric", METRICS)
def test_the_query_is_left_out_by_its_id_and_its_twins_stay_in_order(metric: str) -> None:
    E = planted_twins()
    if metric == "dot":
        E[[2, 5, 6, 7]] *= 10  # so that no other row has a larger product
    assert ask(E, 6, 3, metric).ids.tolist() == [2, 5, 7]
    assert ask(E, 6, 1, metric).ids.tolist() == [2]
    assert ask(E, 2, 3, metric).ids.tolist() == [5, 6, 7]
    found = ask(E, 6, 3, metric)
    assert len(set(found.scores.tolist())) == 1, "equal rows score alike to the last bit"
    assert len(set(found.percentiles.tolist())) == 1
    assert found.percentiles[0] == pytest.approx(100 * 8 / 11)


def test_a_twin_scores_one_and_no_score_is_above() -> None:
    for seed in range(30):
        E = random_table(8, 7, seed)
        E[4] = E[1]
        found = ask(E, 1, 7)
        assert (found.ids[0], found.scores[0]) == (4, 1.0)
        assert (found.scores <= 1).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("small", [0, 1 << 21])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 33, 768])
def test_equal_rows_tie_wherever_they_stand(
    metric: str, small: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_SMALL", small)
    E = random_table(100, width, seed=width) / 7
    E[1:80] = E[0]
    for frame in (
        None,
        fit_frame(Array(E), np.ones(100, bool), 0),
        fit_frame(Array(E), np.ones(100, bool), min(2, width - 1)),
    ):
        Q = E[[90]].astype(np.float64)
        Q = Q if frame is None else frame.apply(Q)
        (found,), _ = find_nearest(Array(E, 13), Q, 99, metric, np.ones(100, bool), [[90]], frame=frame)
        places = [found.ids.tolist().index(i) for i in range(80)]
        assert places == list(range(places[0], places[0] + 80)), "in the order of their ids, and together"
        assert len(set(found.scores[places].tolist())) == 1
        if metric == "dot" or width == 1:
            continue
        Q = E[[0]].astype(np.float64) if frame is None else frame.apply(E[[0]])
        (first,), _ = find_nearest(Array(E, 13), Q, 5, metric, np.ones(100, bool), [[0]], frame=frame)
        assert first.ids.tolist() == [1, 2, 3, 4, 5], "the cut goes through the ties by id"


def test_the_rows_of_a_sum_are_all_left_out() -> None:
    E = random_table(10, 4)
    Q = (E[[2]] + E[[7]]).astype(np.float64)
    (found,), _ = find_nearest(Array(E), Q, 10, "cosine", np.ones(10, bool), [[2, 7]])
    assert sorted(found.ids.tolist()) == [0, 1, 3, 4, 5, 6, 8, 9]


def test_an_id_of_another_table_that_this_one_does_not_have_leaves_nothing_out() -> None:
    E = random_table(4, 3)
    (found,), _ = find_nearest(Array(E), E[[0]].astype(np.float64), 9, "cosine", np.ones(4, bool), [[99]])
    assert sorted(found.ids.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 100])
def test_k_is_cut_to_what_exists(k: int) -> None:
    E = random_table(4, 3)
    found = ask(E, 1, k)
    assert len(found.ids) == min(k, 3)
    assert found.ids.tolist() == brute(E, E[1], "cosine", [0, 2, 3])[0][:k]


def test_nothing_to_compare_is_no_neighbours() -> None:
    found = ask(random_table(3, 2), 0, 5, eligible=np.zeros(3, bool))
    assert (found.ids.tolist(), found.scores.tolist(), found.n_compared) == ([], [], 0)
    only = ask(random_table(1, 2), 0, 5)
    assert (only.ids.tolist(), only.n_compared) == ([], 0)


def test_only_eligible_rows_are_compared_and_counted() -> None:
    E = random_table(20, 4)
    eligible = np.arange(20) % 2 == 0
    found = ask(E, 4, 20, eligible=eligible)
    assert sorted(found.ids.tolist()) == [i for i in range(0, 20, 2) if i != 4]
    assert found.n_compared == 9
    order, facts = brute(E, E[4], "cosine", found.ids.tolist())
    np.testing.assert_allclose(found.percentiles, [facts[i][1] for i in order])
    np.testing.assert_allclose(found.z, [facts[i][2] for i in order])


def test_many_queries_are_answered_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    E = random_table(40, 4)
    alone = [ask(E, row, 5).ids.tolist() for row in range(40)]
    monkeypatch.setattr(search, "SCORES_HELD", 130)
    found, norms = find_nearest(
        Array(E), E.astype(np.float64), 5, "cosine", np.ones(40, bool), [[row] for row in range(40)]
    )
    assert [nearest.ids.tolist() for nearest in found] == alone
    assert norms.shape == (40,)


# --- rows without a direction --------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("small", [0, 1 << 21])
def test_rows_of_zeros_or_not_finite_are_no_ones_neighbours(
    metric: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_SMALL", small)
    E = random_table(9, 4)
    E[3] = 0
    E[4] = np.nan
    E[5, 2] = np.nan
    E[6, 1] = np.inf
    E[7] = np.array([0x7F810000] * 4, np.uint32).view(
        np.float32
    )  # a NaN that raises an alarm when it is widened
    found = ask(E, 0, 9, metric)
    assert sorted(found.ids.tolist()) == [1, 2, 8]
    assert found.n_compared == 3
    assert np.isfinite(found.scores).all()
    assert np.isfinite(found.z).all()


# --- rows of every size --------------------------------------------------------------------------------------

SIZES = {
    "large float32": (np.float32, [1e20, 3e19, 1e20, 1e38, 1, 1e20]),
    "small float32": (np.float32, [1e-40, 1e-20, 1e-38, 1e-40, 1, 1e-30]),
    "mixed float32": (np.float32, [1e20, 1e-40, 1, 1e-20, 1e30, 1e-45]),
    "large float64": (np.float64, [1e200, 1e150, 1e200, 1e300, 1, 1e20]),
    "small float64": (np.float64, [1e-200, 1e-300, 1e-150, 1e-310, 1, 1e-20]),
    "mixed float64": (np.float64, [1e200, 1e-200, 1, 1e-300, 1e150, 1e-20]),
}


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("small", [0, 1 << 21])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_no_size_of_the_rows_changes_the_order(
    kind: str, small: int, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_SMALL", small)
    dtype, sizes = SIZES[kind]
    rng = np.random.default_rng(5)
    E = (rng.standard_normal((60, 8)) * np.resize(sizes, 60)[:, None]).astype(dtype)
    rows = np.flatnonzero(sound(E))
    for row in rows[:12].tolist():
        found = ask(E, row, 60, metric)
        order, facts = brute(E, E[row], metric, [i for i in rows.tolist() if i != row])
        np.testing.assert_allclose(found.scores, [facts[i][0] for i in order], rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(found.z, [facts[i][2] for i in order], rtol=1e-6, atol=1e-9)
        if metric == "cosine":
            assert found.ids.tolist() == order


@pytest.mark.parametrize("size", [1e-45, 1e-43, 1e-40, 1e-36, 1e-31])
def test_rows_whose_products_vanish_in_float32_are_scored_again(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_SMALL", 0)
    rng = np.random.default_rng(8)
    E = (rng.standard_normal((3000, 3)) * size * 20).astype(np.float32)
    row = int(np.flatnonzero(sound(E))[0])
    found = ask(E, row, 3)
    order, _ = brute(E, E[row], "cosine", [i for i in np.flatnonzero(sound(E)).tolist() if i != row])
    expected = scores_of(E[order[:3]], E[row], "cosine")
    np.testing.assert_allclose(found.scores, expected, rtol=1e-12)


def test_half_precision_rows_of_tens_and_ten_thousandths() -> None:
    """As they are decoded: the lengths would overflow, or vanish, in the precision they were stored in."""
    E = np.stack([np.full(768, x, np.float16).astype(np.float32) for x in (10, 1e-4, -10, 5)])
    found = ask(E, 0, 3)
    assert found.ids.tolist() == [1, 3, 2]
    np.testing.assert_allclose(found.scores, [1, 1, -1], rtol=1e-12)
    assert (np.abs(found.scores) <= 1).all()


def test_a_small_query_of_a_large_table_is_not_lost_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_SMALL", 0)
    E = random_table(200, 16) * np.float32(1e-22)
    found = ask(E, 3, 10, "dot")
    assert found.ids.tolist() == brute(E, E[3], "dot", [i for i in range(200) if i != 3])[0][:10]


@pytest.mark.parametrize("metric", METRICS)
def test_a_product_too_large_for_any_number_is_infinite_and_raises_no_warning(metric: str) -> None:
    E = np.array([[1e200, 0], [1e200, 1e199], [-1e200, 1], [1, 1]])
    found = ask(E, 0, 3, metric)
    assert len(found.ids) == 3
    if metric == "dot":
        assert found.scores[0] == np.inf


# --- percentile and z ----------------------------------------------------------------------------------------


def test_percentile_and_z_by_hand() -> None:
    E = np.array([[0], [1], [2], [2], [5]], np.float32) + 10  # on a line: distances from row 0 are 1 2 2 5
    found = ask(E, 0, 4, "euclidean")
    assert found.ids.tolist() == [1, 2, 3, 4]
    assert found.scores.tolist() == [1, 2, 2, 5]
    assert found.percentiles.tolist() == [75, 25, 25, 0]
    deviation = math.sqrt((1.5**2 + 0.5**2 + 0.5**2 + 2.5**2) / 4)
    np.testing.assert_allclose(found.z, [1.5 / deviation, 0.5 / deviation, 0.5 / deviation, -2.5 / deviation])


@pytest.mark.parametrize("n", [2, 3, 10, 11, 1000])
@pytest.mark.parametrize("metric", METRICS)
def test_z_is_undefined_where_all_rows_score_alike(n: int, metric: str) -> None:
    E = np.tile(np.array([[0.1, 0.7, 0.3]], np.float32), (n, 1))
    found = ask(E, 0, n, metric)
    assert np.isnan(found.z).all()
    assert found.percentiles.tolist() == [0] * (n - 1)
    assert found.ids.tolist() == list(range(1, n))


def test_a_lone_row_has_no_z() -> None:
    found = ask(random_table(2, 3), 0, 1)
    assert np.isnan(found.z).all()
    assert found.percentiles.tolist() == [0]


@pytest.mark.parametrize("metric", METRICS)
def test_nearer_is_positive(metric: str) -> None:
    found = ask(random_table(200, 6), 9, 199, metric)
    assert (np.diff(found.z) <= 0).all()
    assert (np.diff(found.percentiles) <= 0).all()
    assert found.z[0] > 0 > found.z[-1]
    assert found.z.mean() == pytest.approx(0, abs=1e-9)
    assert found.z.std() == pytest.approx(1)


# --- a frame -------------------------------------------------------------------------------------------------


def plain_frame(E: NDArray[Any], eligible: NDArray[np.bool_], n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The mean, and the leading right singular vectors of what is left."""
    X = E[eligible].astype(np.float64)
    mean = X.mean(axis=0)
    return mean, np.linalg.svd(X - mean, full_matrices=False)[2][:n]


@pytest.mark.parametrize("n", [0, 1, 2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_frame_is_the_mean_and_the_leading_directions(n: int, dtype: type) -> None:
    E = (random_table(50, 5) * [5, 3, 2, 1, 0.5] + 3).astype(dtype)
    eligible = np.arange(50) % 3 != 0
    E[0] = np.nan  # not among the eligible
    frame = fit_frame(Array(E), eligible, n)
    mean, directions = plain_frame(E, eligible, n)
    np.testing.assert_allclose(frame.mean, mean, rtol=1e-12)
    assert frame.directions.shape == (n, 5)
    np.testing.assert_allclose(frame.directions @ frame.directions.T, np.eye(n), atol=1e-12)
    np.testing.assert_allclose(np.abs((frame.directions * directions).sum(axis=1)), np.ones(n), atol=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("small", [0, 1 << 21])
def test_neighbours_in_a_frame_are_those_of_brute_force(
    metric: str, n: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_SMALL", small)
    E = random_table(80, 6) + 4
    E[70] = 0
    E[71] = np.inf
    eligible = np.arange(80) % 5 != 4
    counted = eligible & sound(E)
    mean, directions = plain_frame(E, counted, n)
    with np.errstate(invalid="ignore"):
        X = E - mean
        X = X - X @ directions.T @ directions
    frame = fit_frame(Array(E), counted, n)
    Q = frame.apply(E[[11]])
    (found,), _ = find_nearest(Array(E), Q, 30, metric, eligible, [[11]], frame=frame)
    rows = [i for i in np.flatnonzero(counted).tolist() if i != 11]
    order, facts = brute(X, X[11], metric, rows)
    assert found.n_compared == len(rows)
    assert found.ids.tolist() == order[:30]
    np.testing.assert_allclose(found.scores, [facts[i][0] for i in order[:30]], rtol=1e-9)
    np.testing.assert_allclose(found.percentiles, [facts[i][1] for i in order[:30]])
    np.testing.assert_allclose(found.z, [facts[i][2] for i in order[:30]], rtol=1e-7)


def test_a_mean_far_larger_than_what_is_left_takes_no_digits_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_SMALL", 0)
    E = (random_table(300, 8) + 1000).astype(np.float32)
    frame = fit_frame(Array(E), np.ones(300, bool), 2)
    mean, directions = plain_frame(E, np.ones(300, bool), 2)
    X = E - mean
    X = X - X @ directions.T @ directions
    (found,), _ = find_nearest(
        Array(E), frame.apply(E[[5]]), 50, "cosine", np.ones(300, bool), [[5]], frame=frame
    )
    order, facts = brute(X, X[5], "cosine", [i for i in range(300) if i != 5])
    assert found.ids.tolist() == order[:50]
    np.testing.assert_allclose(found.scores, [facts[i][0] for i in order[:50]], rtol=1e-6)


def test_a_row_that_a_frame_takes_away_whole_has_no_direction_left() -> None:
    E = np.array([[1, 1], [3, 1], [1, 3], [3, 3], [2, 2]], np.float32) / 8  # row 4 is their mean
    frame = fit_frame(Array(E), np.ones(5, bool), 0)
    assert not frame.apply(E[[4]]).any()
    (found,), _ = find_nearest(
        Array(E), frame.apply(E[[0]]), 5, "cosine", np.ones(5, bool), [[0]], frame=frame
    )
    assert sorted(found.ids.tolist()) == [1, 2, 3]
    assert found.n_compared == 3


def test_rows_on_a_line_have_no_direction_left_once_the_line_is_taken_away() -> None:
    rng = np.random.default_rng(0)
    E = (rng.standard_normal((40, 1)) @ rng.standard_normal((1, 6)) + rng.standard_normal(6)).astype(
        np.float64
    )
    frame = fit_frame(Array(E), np.ones(40, bool), 1)
    assert not frame.apply(E).any()
    (found,), _ = find_nearest(Array(E), np.ones((1, 6)), 5, "cosine", np.ones(40, bool), [[]], frame=frame)
    assert found.n_compared == 0


def test_the_mean_goes_once_for_each_unit_of_weight() -> None:
    E = random_table(30, 4) + 2
    frame = fit_frame(Array(E), np.ones(30, bool), 1)
    X = frame.apply(E)
    for weights in ([1, 1, -1], [1, -1], [0.5, 0.5], [2.0]):
        rows = list(range(len(weights)))
        found = frame.apply(
            (np.array(weights) @ E[rows].astype(np.float64))[None], np.array([[sum(weights)]])
        )
        np.testing.assert_allclose(found[0], np.array(weights) @ X[rows], atol=1e-12)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e160, 1e200, 1e307])
def test_a_frame_of_rows_of_any_size_is_found(size: float) -> None:
    E = (random_table(40, 3).astype(np.float64) + 1) / 10 * size
    frame = fit_frame(Array(E), np.ones(40, bool), 1)
    mean, directions = plain_frame(E / size, np.ones(40, bool), 1)
    np.testing.assert_allclose(frame.mean / size, mean, rtol=1e-6)
    np.testing.assert_allclose(abs(frame.directions @ directions.T), [[1]], rtol=1e-6)


def test_no_eligible_row_is_no_frame_and_no_warning() -> None:
    frame = fit_frame(Array(random_table(5, 3)), np.zeros(5, bool), 1)
    assert not frame.mean.any()
    assert frame.directions.shape == (1, 3)


def test_a_frame_copies() -> None:
    E = random_table(5, 3)
    before = E.copy()
    Frame(np.ones(3), np.eye(3)[:1]).apply(E)
    np.testing.assert_array_equal(E, before)


# --- many small tables ---------------------------------------------------------------------------------------

coarse = st.integers(-2, 2).map(float)
"""Few values, so that exact ties are everywhere."""
fine = st.floats(-8, 8, width=16)


@given(
    arrays(np.float32, st.tuples(st.integers(2, 14), st.integers(1, 4)), elements=coarse | fine),
    st.integers(1, 16),
    st.sampled_from(METRICS),
    st.sampled_from([0, 1 << 21]),
    st.data(),
)
def test_ties_go_by_id_in_every_small_table(
    E: NDArray[Any], k: int, metric: str, small: int, data: st.DataObject
) -> None:
    E = E.copy()
    rows = np.flatnonzero(sound(E)).tolist()
    if not rows:
        return
    row = data.draw(st.sampled_from(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_SMALL", small)
        found = ask(E, row, k, metric)
    compared = [i for i in rows if i != row]
    assert found.n_compared == len(compared)
    assert len(found.ids) == min(k, len(compared)) == len(set(found.ids.tolist()))
    if not compared:
        return
    order, facts = brute(E, E[row], metric, compared)
    expected = [facts[i][0] for i in order[:k]]
    np.testing.assert_allclose(found.scores, expected, rtol=1e-12, atol=1e-12)
    # Equal rows stand in the order of their ids; rows that only score alike may differ in the last bit.
    places = {i: place for place, i in enumerate(found.ids.tolist())}
    for i in compared:
        for j in compared:
            if i < j and np.array_equal(E[i], E[j]):
                assert j not in places or (i in places and places[i] < places[j])
                if j in places:
                    assert found.scores[places[i]] == found.scores[places[j]]
    if metric != "cosine":  # sums of such short numbers are exact: so are the ties
        assert found.ids.tolist() == order[:k] or not np.array_equal(E, np.round(E))


# --- memory --------------------------------------------------------------------------------------------------


def test_memory_grows_with_the_rows_and_not_with_their_square() -> None:
    E = random_table(60_000, 8)
    table = Array(E, 4096)
    queries = [10, 20, 59_999]
    gc.collect()
    tracemalloc.start()
    found, _ = find_nearest(
        table, E[queries].astype(np.float64), 10, "cosine", np.ones(60_000, bool), [[row] for row in queries]
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    for row, nearest in zip(queries, found, strict=True):
        cosines = E @ E[row] / np.linalg.norm(E, axis=1) / np.linalg.norm(E[row])
        cosines[row] = -2
        assert nearest.ids[0] == np.argmax(cosines)


def test_memory_stays_bounded_where_every_row_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_SMALL", 0)
    E = np.ones((30_000, 32), np.float32)
    gc.collect()
    tracemalloc.start()
    found = ask(E, 7, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.ids.tolist() == [0, 1, 2, 3, 4]
    assert peak < 60e6
