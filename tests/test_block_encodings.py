"""Numbers packed into blocks, held bit for bit against the package of the program that packs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from inspect_embed.encodings import ENCODINGS
from inspect_embed.numerics.blocks import PACKINGS

gguf = pytest.importorskip("gguf", reason="the gguf package is what these encodings are held against")

IN_BLOCKS = [encoding for encoding in ENCODINGS.values() if hasattr(gguf.GGMLQuantizationType, encoding.name)]
READ = [encoding.name for encoding in IN_BLOCKS if encoding.readable]


def oracle(raw: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return np.asarray(gguf.dequantize(raw, gguf.GGMLQuantizationType[name]), np.float32).ravel()


def assert_same_bits(ours: NDArray[Any], theirs: NDArray[np.float32]) -> None:
    both_nan = np.isnan(ours) & np.isnan(theirs)
    same = ours.view(np.uint32) == theirs.view(np.uint32)
    assert (same | both_nan).all(), f"{np.flatnonzero(~(same | both_nan))[:5]}"


def test_what_must_be_read_is_read() -> None:
    wanted = "F64 F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K MXFP4"
    assert sorted(wanted.split()) == sorted(READ)
    assert set(PACKINGS) <= set(READ)


def test_every_type_of_the_reference_has_its_sizes() -> None:
    known = {kind.name: sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items() if kind.name in ENCODINGS}
    assert len(known) >= 34  # a later reference may know more
    assert known == {name: (ENCODINGS[name].block_elements, ENCODINGS[name].block_bytes) for name in known}


@pytest.mark.parametrize("name", PACKINGS)
def test_a_record_has_the_size_of_its_encoding(name: str) -> None:
    assert PACKINGS[name].record.itemsize == ENCODINGS[name].block_bytes
    assert PACKINGS[name].n_elements == ENCODINGS[name].block_elements


@pytest.mark.parametrize("name", [name for name in READ if name != "F64"])
def test_any_bytes_at_all_are_the_same_numbers(name: str) -> None:
    """Random bits: every pattern of scales, minima and high bits, factors that are not finite among them."""
    raw = np.random.default_rng(1).integers(0, 256, (997, ENCODINGS[name].block_bytes), np.uint8)
    if name == "F16":  # a signalling NaN is a warning in numpy, for both sides
        raw[:, 1] &= 0x7B
    assert_same_bits(ENCODINGS[name].decode(memoryview(raw.tobytes())), oracle(raw, name))


@pytest.mark.parametrize("name", PACKINGS)
def test_plain_factors_make_plain_numbers(name: str) -> None:
    """With factors as real models have them no number is lost among NaN."""
    packing = PACKINGS[name]
    random = np.random.default_rng(2)
    records = np.frombuffer(random.bytes(500 * packing.record.itemsize), packing.record).copy()
    for field in ("d", "m"):
        if field in (packing.record.names or ()):
            records[field] = random.uniform(-0.01, 0.01, 500).astype("<f2")
    if name == "MXFP4":
        records["e"] = random.integers(110, 130, 500)
    raw = records.view(np.uint8).reshape(500, -1)
    ours = ENCODINGS[name].decode(memoryview(raw.tobytes()))
    assert np.isfinite(ours).all()
    assert len(np.unique(ours)) > 50
    assert_same_bits(ours, oracle(raw, name))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_what_the_reference_packs_comes_back_close(name: str) -> None:
    E = np.random.default_rng(3).standard_normal((64, 96)).astype(np.float32)
    raw = gguf.quantize(E, gguf.GGMLQuantizationType[name])
    ours = ENCODINGS[name].decode(memoryview(raw.tobytes())).reshape(E.shape)
    steps = {"Q8_0": 127, "MXFP4": 2}.get(name, 7)
    assert np.abs(ours - E).max() < np.abs(E).max() / steps
    assert_same_bits(ours.ravel(), oracle(raw, name))


@pytest.mark.parametrize("name", PACKINGS)
def test_numbers_are_written_where_they_are_wanted(name: str) -> None:
    encoding = ENCODINGS[name]
    raw = np.random.default_rng(4).integers(0, 60, (3, encoding.block_bytes), np.uint8)
    out = np.full(3 * encoding.block_elements, 7, np.float32)
    given = encoding.decode(memoryview(raw.tobytes()), out)
    assert given is out
    assert_same_bits(out, oracle(raw, name))


@pytest.mark.parametrize("name", [encoding.name for encoding in IN_BLOCKS if not encoding.readable])
def test_values_that_cannot_be_read_are_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        ENCODINGS[name].decode(memoryview(bytes(ENCODINGS[name].block_bytes)))
