"""Numbers come out as their bits say: every pattern of the short encodings, against libraries that are not ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from inspect_embed.encodings import ENCODINGS, READABLE
from inspect_embed.formats.safetensors import read_tensors
from inspect_embed.storage.local import LocalFolder

SHORT = {
    "BF16": (ml_dtypes.bfloat16, np.uint16),
    "F16": (np.float16, np.uint16),
    "F8_E4M3": (ml_dtypes.float8_e4m3fn, np.uint8),
    "F8_E5M2": (ml_dtypes.float8_e5m2, np.uint8),
}


FLOATS = ("F64", "F32", *SHORT)
INTEGERS = ("I64", "U64", "I32", "U32", "I16", "U16", "I8", "U8")


def every_pattern(code: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """All bit patterns, and the numbers that the oracle reads in them."""
    kind, words = SHORT[code]
    patterns = np.arange(np.iinfo(words).max + 1).astype(words)
    return patterns, patterns.view(kind).astype(np.float32)


@pytest.mark.parametrize("code", SHORT)
def test_every_pattern_is_widened_exactly(code: str) -> None:
    patterns, expected = every_pattern(code)
    found = ENCODINGS[code].decode(memoryview(patterns.tobytes()))
    assert found.dtype == np.float32
    numbers = ~np.isnan(expected)
    # Bits, so that zeros keep their signs; a NaN is a NaN whatever its payload.
    np.testing.assert_array_equal(found.view(np.uint32)[numbers], expected.view(np.uint32)[numbers])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("code", SHORT)
def test_decoding_into_a_buffer_gives_the_same_and_returns_the_buffer(code: str) -> None:
    patterns, expected = every_pattern(code)
    out = np.full(len(patterns), 7, np.float32)
    found = ENCODINGS[code].decode(memoryview(patterns.tobytes()), out)
    assert found is out
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("code", SHORT)
def test_decoding_into_a_part_of_a_buffer_leaves_the_rest_alone(code: str) -> None:
    patterns, expected = every_pattern(code)
    out = np.full(len(patterns) + 2, 7, np.float32)
    ENCODINGS[code].decode(memoryview(patterns.tobytes()), out[1:-1])
    np.testing.assert_array_equal(out[1:-1], expected)
    assert out[0] == out[-1] == 7


def test_known_values_of_the_8_bit_floats() -> None:
    """By hand, from the tables of the OCP specification."""

    def read(code: str, *patterns: int) -> list[float]:
        numbers: list[float] = ENCODINGS[code].decode(memoryview(bytes(patterns))).tolist()
        return numbers

    assert read("F8_E4M3", 0x00, 0x01, 0x07, 0x08, 0x38, 0x7E) == [0, 2**-9, 7 * 2**-9, 2**-6, 1, 448]
    assert read("F8_E5M2", 0x00, 0x01, 0x03, 0x04, 0x3C, 0x7B) == [0, 2**-16, 3 * 2**-16, 2**-14, 1, 57344]
    assert read("F8_E5M2", 0x7C, 0xFC) == [np.inf, -np.inf]
    assert np.isnan(read("F8_E4M3", 0x7F, 0xFF)).all()
    assert np.isnan(read("F8_E5M2", 0x7D, 0x7E, 0x7F, 0xFF)).all()


@pytest.mark.parametrize(("code", "dtype"), [("F32", np.float32), ("F64", np.float64)])
def test_native_numbers_are_used_where_they_lie(code: str, dtype: type) -> None:
    numbers = np.array([1.5, -0.0, np.inf, np.nan, np.finfo(dtype).tiny / 8, np.finfo(dtype).max], dtype)
    data = memoryview(numbers.tobytes())
    found = ENCODINGS[code].decode(data)
    assert found.dtype == dtype
    assert found.tobytes() == numbers.tobytes()
    assert np.shares_memory(found, np.frombuffer(data, np.uint8))
    assert not found.flags.writeable


@pytest.mark.parametrize("code", FLOATS)
def test_numbers_that_begin_at_an_odd_byte_are_read_as_well(code: str) -> None:
    size = ENCODINGS[code].block_bytes
    data = bytes(range(8 * size))
    shifted = memoryview(b"\xff" + data)[1:]
    np.testing.assert_array_equal(ENCODINGS[code].decode(shifted), ENCODINGS[code].decode(memoryview(data)))


@pytest.mark.parametrize("code", FLOATS)
def test_no_bytes_are_no_numbers(code: str) -> None:
    assert ENCODINGS[code].decode(memoryview(b"")).shape == (0,)


def test_integers_and_packed_numbers_are_no_vectors() -> None:
    assert set(FLOATS) <= set(READABLE)
    for code in (
        *INTEGERS,
        "BOOL",
        "C64",
        "F4",
        "F6_E2M3",
        "F6_E3M2",
        "F8_E8M0",
        "F8_E4M3FNUZ",
        "F8_E5M2FNUZ",
    ):
        assert not ENCODINGS[code].readable
        with pytest.raises(TypeError, match=code):
            ENCODINGS[code].decode(memoryview(bytes(24)))


@pytest.mark.parametrize(
    ("code", "n", "n_bytes"),
    [("F64", 3, 24), ("BF16", 3, 6), ("F8_E4M3", 3, 3), ("F4", 3, 2), ("F4", 4, 2), ("F6_E2M3", 4, 3), ("F6_E3M2", 5, 6),
     ("BOOL", 9, 9), ("C64", 2, 16), ("F32", 0, 0)],
)  # fmt: skip
def test_bytes_are_counted_in_whole_blocks(code: str, n: int, n_bytes: int) -> None:
    assert ENCODINGS[code].count_bytes(n) == n_bytes


def test_bits_of_an_element() -> None:
    assert [ENCODINGS[code].bits for code in ("F64", "BF16", "F6_E2M3", "F4", "BOOL")] == [64, 16, 6, 4, 8]


def test_a_table_is_keyed_by_the_names_of_its_records() -> None:
    assert all(name == encoding.name for name, encoding in ENCODINGS.items())


@pytest.mark.parametrize(
    "dtype",
    [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2],
)
def test_whole_files_are_read_as_the_library_reads_them(tmp_path: Path, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    tensors = {
        "a": rng.standard_normal((5, 3)).astype(dtype),
        "b.weight": (100 * rng.standard_normal((2, 1, 4))).astype(dtype),
        "scalar": np.array(2.5).astype(dtype),
    }
    data = safetensors.numpy.save(tensors, metadata={"format": "np"})
    (tmp_path / "model.safetensors").write_bytes(data)
    ours = read_tensors(LocalFolder(tmp_path))
    assert sorted(ours.names()) == sorted(tensors)
    for name, theirs in safetensors.deserialize(data):
        entry = ours[name]
        assert (entry.shape, entry.encoding.name) == (tuple(theirs["shape"]), theirs["dtype"])
        oracle = np.frombuffer(bytes(theirs["data"]), dtype).reshape(entry.shape)
        values = entry.encoding.decode(ours.read(entry, 0, entry.n_bytes)).reshape(entry.shape)
        np.testing.assert_array_equal(values, oracle.astype(values.dtype))
        np.testing.assert_array_equal(oracle, tensors[name])
