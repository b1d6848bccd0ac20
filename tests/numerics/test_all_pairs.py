"""The nearest neighbours of every row: against float64 arithmetic on all pairs, and scikit-learn."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from made import Array as Table
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from inspect_embed.numerics import all_pairs
from inspect_embed.numerics.all_pairs import find_all_nearest

Array = NDArray[Any]


def brute_force(E: Array, k: int, eligible: Array | None = None) -> tuple[Array, Array, Array]:
    """All cosines in float64, sorted by score and then by row."""
    X = E.astype(np.float64)
    sound = np.isfinite(X).all(axis=1) & X.any(axis=1)
    usable = np.flatnonzero(sound if eligible is None else sound & eligible)
    X = X[usable] / np.sqrt((X[usable] ** 2).sum(axis=1, keepdims=True))
    cosines = X @ X.T
    np.fill_diagonal(cosines, -np.inf)
    # Rounded, so that equal rows tie; the sort is stable, so that ties go by row.
    order = np.argsort(-cosines.round(13), axis=1, kind="stable")[:, : min(k, len(usable) - 1)]
    return usable, usable[order], np.take_along_axis(cosines, order, axis=1)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that a few dozen rows already fill several, in both directions."""
    monkeypatch.setattr(all_pairs, "BLOCK_ROWS", 16)
    monkeypatch.setattr(all_pairs, "BLOCK_COLUMNS", 32)
    monkeypatch.setattr(all_pairs, "GROUPS", 8)


def agree(E: Array, k: int, eligible: Array | None = None) -> None:
    found = find_all_nearest(Table(E), k, eligible)
    rows, ids, scores = brute_force(E, k, eligible)
    assert found.rows.tolist() == rows.tolist()
    assert found.ids.tolist() == ids.tolist()
    np.testing.assert_allclose(found.scores, scores, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2, 3), (31, 5), (97, 12), (160, 3)])
@pytest.mark.parametrize("k", [1, 4, 10])
@pytest.mark.usefixtures("small_blocks")
def test_is_what_float64_arithmetic_on_all_pairs_gives(dtype: type, shape: tuple[int, int], k: int) -> None:
    agree(np.random.default_rng(shape[0]).standard_normal(shape).astype(dtype), k)


def test_is_what_float64_arithmetic_gives_in_blocks_of_the_usual_size() -> None:
    agree(np.random.default_rng(5).standard_normal((600, 24)).astype(np.float32), 5)


def test_agrees_with_scikit_learn() -> None:
    E = np.random.default_rng(1).standard_normal((5000, 16)) + 0.5
    found = find_all_nearest(Table(E), 10)
    model = NearestNeighbors(n_neighbors=11, metric="cosine", algorithm="brute").fit(E)
    distances, ids = model.kneighbors(E)
    assert (ids[:, 0] == np.arange(5000)).all()
    np.testing.assert_array_equal(found.ids, ids[:, 1:])
    np.testing.assert_allclose(found.scores, 1 - distances[:, 1:], atol=1e-12)


@pytest.mark.usefixtures("small_blocks")
def test_rows_without_a_direction_are_neither_asked_nor_answered() -> None:
    E = np.random.default_rng(2).standard_normal((60, 4)).astype(np.float32)
    E[3] = 0
    E[17, 2] = np.nan
    E[40, 0] = -np.inf
    agree(E, 6)
    found = find_all_nearest(Table(E), 6)
    assert not {3, 17, 40} & set(found.ids.ravel().tolist())


@pytest.mark.usefixtures("small_blocks")
def test_rows_that_are_not_eligible_are_left_out() -> None:
    E = np.random.default_rng(3).standard_normal((70, 4)).astype(np.float32)
    agree(E, 3, np.arange(70) % 3 != 1)


@pytest.mark.parametrize("k", [1, 3])
def test_self_is_left_out_by_row_and_equal_rows_tie_by_row(k: int) -> None:
    E = np.random.default_rng(4).standard_normal((8, 6)).astype(np.float32)
    E[[5, 6, 7]] = E[2]
    found = find_all_nearest(Table(E), k)
    assert found.ids[6, :3].tolist() == [2, 5, 7][:k]
    assert found.ids[2, :3].tolist() == [5, 6, 7][:k]
    assert found.scores[6].tolist() == [1.0] * k


@pytest.mark.usefixtures("small_blocks")
def test_many_equal_rows_do_not_crowd_each_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_pairs, "MOST_HELD", 500)
    E = np.random.default_rng(6).standard_normal((300, 5)).astype(np.float32)
    E[50:250] = E[50]
    found = find_all_nearest(Table(E), 4)
    assert found.ids[249].tolist() == [50, 51, 52, 53]
    assert found.ids[51].tolist() == [50, 52, 53, 54]
    agree(E, 4)


@pytest.mark.usefixtures("small_blocks")
def test_differences_below_the_rounding_of_float32_still_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_pairs, "MOST_HELD", 400)
    random = np.random.default_rng(7)
    E = random.standard_normal(12) + 1e-4 * random.standard_normal((90, 12))
    agree(E, 5)


def test_all_cosines_may_be_negative() -> None:
    angles = np.array([0, 2, 4]) * np.pi / 3
    found = find_all_nearest(Table(np.stack([np.cos(angles), np.sin(angles)], axis=1)), 2)
    assert sorted(found.ids[0].tolist()) == [1, 2]
    np.testing.assert_allclose(found.scores, -0.5, atol=1e-12)


def test_lengths_do_not_matter_however_large_or_small() -> None:
    E = np.random.default_rng(8).standard_normal((40, 6)).astype(np.float32)
    plain = find_all_nearest(Table(E), 5)
    lengths = 10.0 ** np.random.default_rng(9).uniform(-25, 25, (40, 1))
    scaled = find_all_nearest(Table((E * lengths).astype(np.float32)), 5)
    np.testing.assert_array_equal(plain.ids, scaled.ids)
    np.testing.assert_allclose(plain.scores, scaled.scores, atol=1e-6)


def test_k_is_cut_to_the_number_of_other_rows() -> None:
    E = np.eye(3)
    assert find_all_nearest(Table(E), 10).ids.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert find_all_nearest(Table(E[:1]), 10).ids.shape == (1, 0)
    assert find_all_nearest(Table(np.zeros((4, 2))), 10).rows.shape == (0,)


@pytest.mark.usefixtures("small_blocks")
def test_progress_is_told_after_each_block() -> None:
    calls: list[tuple[int, int]] = []
    E = np.random.default_rng(10).standard_normal((40, 3))
    find_all_nearest(Table(E), 2, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(16, 40), (32, 40), (40, 40)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_answer_does_not_depend_on_the_threads(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_pairs, "MOST_THREADS", n_threads)
    agree(np.random.default_rng(12).standard_normal((130, 6)).astype(np.float32), 5)


def test_an_interruption_ends_the_search() -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_all_nearest(Table(np.random.default_rng(13).standard_normal((3000, 3))), 2, progress=interrupt)


def test_memory_does_not_grow_with_the_square_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_pairs, "MOST_THREADS", 2)
    E = np.random.default_rng(11).standard_normal((8_000, 8)).astype(np.float32)
    tracemalloc.start()
    find_all_nearest(Table(E), 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # all cosines at once would be 256 MB
