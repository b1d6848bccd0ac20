"""Lengths and angles that do not overflow, vanish, or leave [-1, 1]; against exact fractions and float64."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from inspect_embed.numerics.vectors import cosine, distance, dot, has_direction, row_norms, unit_rows


def row(*numbers: float, dtype: Any = np.float32) -> NDArray[Any]:
    return np.array([numbers], dtype)


def exact_norm(numbers: NDArray[Any]) -> float:
    """The root of the exact sum of squares."""
    squares = sum(Fraction(float(x)) ** 2 for x in numbers)
    if not squares:
        return 0.0
    shift = squares.numerator.bit_length() - squares.denominator.bit_length()
    even = 2 * (shift // 2)
    return math.ldexp(math.sqrt(float(squares / Fraction(2) ** even)), even // 2)


def test_a_length_by_hand() -> None:
    assert row_norms(row(3, 4)).tolist() == [5.0]
    assert row_norms(row(3, 4, dtype=np.float64)).tolist() == [5.0]
    assert row_norms(np.array([[3, 4], [0, 0], [-5, 12]], np.float32)).tolist() == [5, 0, 13]


def test_lengths_are_float64_whatever_the_rows_are() -> None:
    for dtype in (np.float32, np.float64):
        assert row_norms(np.ones((3, 4), dtype)).dtype == np.float64


def test_no_rows_and_no_columns_have_lengths_too() -> None:
    assert row_norms(np.empty((0, 4), np.float32)).shape == (0,)
    assert row_norms(np.empty((2, 0), np.float32)).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-38, 1e-30, 1e-20, 1e-16, 1.0, 1e15, 1e19, 1e20, 1e38])
@pytest.mark.parametrize("width", [1, 3, 768])
def test_no_length_overflows_or_vanishes(dtype: type, size: float, width: int) -> None:
    E = np.full((2, width), size, dtype)
    E[1] *= -1
    expected = float(E[0, 0]) * math.sqrt(width)
    np.testing.assert_allclose(row_norms(E), [expected, expected], rtol=5e-6)


@pytest.mark.parametrize("size", [1e-300, 5e-324, 1e-200, 1e-140, 1e150, 1e200, 1e300])
def test_no_length_of_float64_overflows_or_vanishes(size: float) -> None:
    np.testing.assert_allclose(row_norms(np.full((1, 4), size)), [2 * size], rtol=1e-12)


def test_a_row_of_768_tens_and_one_of_ten_thousandths_as_half_precision_holds_them() -> None:
    E = np.stack(
        [np.full(768, 10, np.float16), np.full(768, 1e-4, np.float16), np.full(768, -10, np.float16)]
    )
    np.testing.assert_allclose(
        row_norms(E.astype(np.float32)),
        [277.128129, float(np.float16(1e-4)) * math.sqrt(768), 277.128129],
        rtol=1e-6,
    )


def test_one_huge_and_many_small_entries() -> None:
    E = np.full((1, 1000), 1e-10, np.float32)
    E[0, 500] = 1e30
    np.testing.assert_allclose(row_norms(E), [1e30], rtol=1e-6)


def test_a_row_that_is_not_finite_has_no_finite_length_and_spoils_no_other() -> None:
    E = np.array([[1, np.nan], [np.inf, 1], [-np.inf, 0], [np.nan, np.inf], [3, 4]], np.float32)
    norms = row_norms(E)
    assert np.isnan(norms[[0, 3]]).all()
    assert np.isposinf(norms[[1, 2]]).all()
    assert norms[4] == 5
    assert has_direction(norms).tolist() == [False, False, False, False, True]


def test_every_kind_of_nan_is_met_without_a_warning() -> None:
    patterns = np.array([0x7F810000, 0x7FC00000, 0xFF810000, 0x7F800001], np.uint32)
    assert np.isnan(row_norms(patterns.view(np.float32)[:, None])).all()


def test_a_row_of_zeros_has_no_direction_and_a_subnormal_one_has() -> None:
    norms = row_norms(np.array([[0, 0], [-0.0, 0], [1e-45, 0]], np.float32))
    assert norms[:2].tolist() == [0, 0]
    assert has_direction(norms).tolist() == [False, False, True]


finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


@given(arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=finite))
def test_lengths_agree_with_exact_fractions(E: NDArray[Any]) -> None:
    np.testing.assert_allclose(row_norms(E), [exact_norm(x) for x in E], rtol=1e-13, atol=0)


@given(arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))  # fmt: skip
def test_lengths_of_float32_agree_with_exact_fractions(E: NDArray[Any]) -> None:
    np.testing.assert_allclose(row_norms(E), [exact_norm(x) for x in E], rtol=1e-6, atol=0)


# --- directions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-40, 1.0, 1e20, 1e200, 1e307])
def test_a_direction_has_length_one_whatever_the_row_is(size: float) -> None:
    found = unit_rows(np.array([[size, size, -size, size]]))
    np.testing.assert_allclose(found, [[0.5, 0.5, -0.5, 0.5]], rtol=1e-12)


def test_a_row_without_a_direction_gives_nan_and_no_warning() -> None:
    found = unit_rows(np.array([[0, 0], [np.nan, 1], [np.inf, 1], [0, 2]], np.float32))
    assert np.isnan(found[:3]).all()
    assert found[3].tolist() == [0, 1]


# --- pairs ---------------------------------------------------------------------------------------------------


def test_a_cosine_and_a_dot_product_by_hand() -> None:
    assert cosine(np.array([3.0, 4.0]), np.array([4.0, 3.0])) == pytest.approx(24 / 25, abs=1e-15)
    assert dot(np.array([1.0, 2, 3]), np.array([4.0, 0, -1])) == 1
    assert distance(np.array([1.0, 2]), np.array([4.0, 6])) == 5


@given(
    arrays(
        np.float32, st.integers(1, 40), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
    )
)
def test_a_vector_is_as_like_itself_as_can_be(a: NDArray[Any]) -> None:
    found = cosine(a, a)
    if a.any():
        assert found == 1.0
        assert cosine(a, -a) == -1.0
    else:
        assert math.isnan(found)
    assert distance(a, a) == 0


@given(arrays(np.float64, (2, 3), elements=finite))
def test_no_cosine_leaves_its_range_and_none_depends_on_the_order(pair: NDArray[Any]) -> None:
    a, b = pair
    found = cosine(a, b)
    assert math.isnan(found) == (not a.any() or not b.any())
    assert math.isnan(found) or (-1 <= found <= 1 and found == cosine(b, a))


@pytest.mark.parametrize("size", [1e-40, 1e-20, 1e20, 3e38])
def test_cosines_do_not_depend_on_lengths(size: float) -> None:
    a = np.array([3, 4], np.float32)
    b = (np.array([4, 3]) / 4 * size).astype(np.float32)
    assert cosine(a, b) == pytest.approx(0.96, abs=1e-5)


def test_half_precision_rows_of_tens_and_ten_thousandths_point_the_same_way() -> None:
    tens, small, minus = (np.full(768, x, np.float16).astype(np.float32) for x in (10, 1e-4, -10))
    assert cosine(tens, small) == pytest.approx(1, abs=1e-15)
    assert cosine(tens, minus) == -1
    assert cosine(small, minus) == pytest.approx(-1, abs=1e-15)


def test_sums_are_not_made_in_half_precision() -> None:
    twos = np.full(5000, 2, np.float16)
    assert dot(twos, np.ones(5000, np.float16)) == 10_000


def test_what_is_not_finite_is_undefined_in_every_measure() -> None:
    sound = np.array([1.0, 2])
    for broken in (np.array([np.nan, 1]), np.array([np.inf, 1]), np.array([1, -np.inf])):
        for measure in (cosine, dot, distance):
            assert math.isnan(measure(sound, broken))
            assert math.isnan(measure(broken, sound))


def test_a_row_of_zeros_has_a_distance_and_a_dot_product_but_no_cosine() -> None:
    zero, sound = np.zeros(2), np.array([3.0, 4])
    assert math.isnan(cosine(zero, sound))
    assert (dot(zero, sound), distance(zero, sound)) == (0, 5)


def test_distances_neither_overflow_nor_vanish() -> None:
    assert distance(np.array([3e200, 0]), np.array([0, 4e200])) == pytest.approx(5e200, rel=1e-12)
    assert distance(np.array([3e-200, 0]), np.array([0, 4e-200])) == pytest.approx(5e-200, rel=1e-12)
    assert distance(np.array([1e20], np.float32), np.array([-1e20], np.float32)) == pytest.approx(
        2e20, rel=1e-6
    )
