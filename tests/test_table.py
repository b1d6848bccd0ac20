"""Tables: rows that are copied, blocks that are not, scales of 8-bit floats, what rows are called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from made import Stored, WatchedFolder, header_end, random_table, safetensors, words, write
from numpy.typing import NDArray

from inspect_embed import open_checkpoint, table
from inspect_embed.errors import (
    DamagedFileError,
    MissingTableError,
    TokenError,
    UnknownTokenError,
    UnsupportedEncodingError,
)
from inspect_embed.formats.safetensors import SafetensorsSet, read_tensors
from inspect_embed.storage.local import LocalFolder
from inspect_embed.storage.memory import MemoryFolder
from inspect_embed.table import EmbeddingTable, PositionLabels, TokenLabels
from inspect_embed.vocabularies import open_vocabulary

MODEL = "model.safetensors"
FLOATS: dict[str, Any] = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def of(tensors: dict[str, Stored], name: str = "wte.weight", **options: Any) -> EmbeddingTable:
    held = read_tensors(MemoryFolder({MODEL: safetensors(tensors)}))
    return EmbeddingTable("input", held[name], held, TokenLabels(None), **options)


def whole(opened: EmbeddingTable) -> NDArray[Any]:
    """Every block, one under the other."""
    blocks = [(start, block.copy()) for start, block in opened.blocks()]
    assert [start for start, _ in blocks] == [0, *np.cumsum([len(block) for _, block in blocks])[:-1]]
    return np.vstack([block for _, block in blocks])


# --- rows and blocks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", FLOATS)
@pytest.mark.parametrize(("n_rows", "width"), [(1, 1), (5, 3), (64, 8), (65, 7)])
def test_rows_and_blocks_hold_what_the_file_holds(
    code: str, n_rows: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "NATIVE_BLOCK_BYTES", 100)
    monkeypatch.setattr(table, "DECODED_BLOCK_ELEMENTS", 25)
    E = random_table(n_rows, width).astype(FLOATS[code])
    opened = of({"before": np.zeros(3, np.uint8), "wte.weight": E})
    expected = E.astype(np.float64 if code == "F64" else np.float32)
    assert (opened.n_rows, opened.width, opened.row_bytes) == (n_rows, width, width * E.itemsize)
    found = whole(opened)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    ids = np.random.default_rng(0).integers(0, n_rows, 9)
    rows = opened.rows(ids)
    assert rows.dtype == expected.dtype
    np.testing.assert_array_equal(rows, expected[ids])
    np.testing.assert_allclose(opened.norms, np.linalg.norm(expected.astype(np.float64), axis=1), rtol=1e-6)


def test_bfloat16_needs_no_package_but_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("ml_dtypes", "torch", "safetensors"):
        monkeypatch.setitem(sys.modules, package, None)  # whoever imports it now fails
    E = np.arange(8, dtype=np.float32).reshape(2, 4)
    stored = ("BF16", (2, 4), (E.view(np.uint32) >> 16).astype("<u2").tobytes())
    assert of({"wte.weight": stored}).rows([0, 1]).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_row_wider_than_a_block_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "NATIVE_BLOCK_BYTES", 8)
    monkeypatch.setattr(table, "DECODED_BLOCK_ELEMENTS", 2)
    for dtype in (np.float32, np.float16):
        E = random_table(3, 9).astype(dtype)
        assert [len(block) for _, block in of({"wte.weight": E}).blocks()] == [1, 1, 1]


def test_rows_come_in_the_order_asked_for_and_as_often() -> None:
    E = random_table(5, 3)
    opened = of({"wte.weight": E})
    np.testing.assert_array_equal(opened.rows([4, 0, 4]), E[[4, 0, 4]])
    np.testing.assert_array_equal(opened.rows(np.array([2], np.uint32)), E[[2]])
    assert opened.rows([]).shape == (0, 3)


@pytest.mark.parametrize("row", [-1, 5, 2**31, 2**63, 10**30])
def test_a_row_that_the_table_does_not_have_is_an_error_that_says_which_it_has(row: int) -> None:
    with pytest.raises(UnknownTokenError, match="5 rows are 0 to 4") as caught:
        of({"wte.weight": random_table(5, 3)}).rows([0, row])
    assert "wte.weight" in str(caught.value)


def test_a_table_of_several_leading_dimensions_is_read_row_by_row() -> None:
    E = random_table(6, 4)
    opened = of({"wte.weight": E.reshape(1, 6, 4)})
    assert (opened.n_rows, opened.width) == (6, 4)
    np.testing.assert_array_equal(opened.rows([5]), E[[5]])


@pytest.mark.parametrize("shape", [(), (4,), (0, 4), (4, 0)])
def test_what_has_no_rows_is_no_table(shape: tuple[int, ...]) -> None:
    with pytest.raises(MissingTableError, match="no table of rows"):
        of({"wte.weight": np.zeros(shape, np.float32)})


@pytest.mark.parametrize("code", FLOATS)
def test_blocks_cannot_be_written_to(code: str) -> None:
    for _, block in of({"wte.weight": random_table(5, 3).astype(FLOATS[code])}).blocks():
        with pytest.raises(ValueError, match="read-only"):
            block[0, 0] = 1


@pytest.mark.parametrize("code", FLOATS)
def test_rows_are_the_callers_own(code: str) -> None:
    opened = of({"wte.weight": random_table(5, 3).astype(FLOATS[code])})
    before = opened.rows([2])
    before += 1
    assert not np.array_equal(opened.rows([2]), before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_need_no_decoding_are_used_in_the_map_itself(tmp_path: Path, dtype: type) -> None:
    write(tmp_path, {MODEL: safetensors({"wte.weight": random_table(50, 8).astype(dtype)})})
    tensors = read_tensors(LocalFolder(tmp_path))
    opened = EmbeddingTable("input", tensors["wte.weight"], tensors, TokenLabels(None))
    mapped = np.frombuffer(tensors.read(opened.tensor, 0, opened.tensor.n_bytes), np.uint8)
    for _, block in opened.blocks():
        assert np.shares_memory(block, mapped)
    assert not np.shares_memory(opened.rows([0, 1]), mapped)


def test_rows_keep_their_values_when_the_file_is_overwritten(tmp_path: Path) -> None:
    E = random_table(50, 8)
    path = write(tmp_path, {MODEL: safetensors({"wte.weight": E})}) / MODEL
    rows = open_checkpoint(path).table().rows([3, 4])
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    np.testing.assert_array_equal(rows, E[[3, 4]])


def test_a_question_about_two_rows_reads_two_rows() -> None:
    data = safetensors({"wte.weight": random_table(1000, 8)})
    folder = WatchedFolder({MODEL: data})
    tensors = read_tensors(folder)
    folder.reads.clear()
    opened = EmbeddingTable("input", tensors["wte.weight"], tensors, TokenLabels(None))
    assert folder.reads == {}
    opened.rows([7, 999])
    begin = header_end(data)
    reads = folder.reads[MODEL]
    assert {(begin + 7 * 32, begin + 8 * 32), (begin + 999 * 32, begin + 1000 * 32)} <= set(reads)
    assert sum(stop - start for start, stop in reads) < 3 * 32


@pytest.mark.parametrize("code", ["F32", "BF16", "F16"])
def test_a_nan_of_any_pattern_raises_no_warning_when_rows_are_widened(code: str) -> None:
    patterns = {"F32": (0x7F810000, "<u4"), "BF16": (0x7F81, "<u2"), "F16": (0x7C01, "<u2")}
    pattern, words_ = patterns[code]
    opened = of({"wte.weight": (code, (2, 2), np.full(4, pattern, words_).tobytes())})
    assert np.isnan(opened.rows([0, 1]).astype(np.float64)).all()
    assert np.isnan(opened.norms).all()


# --- lengths, and tables that are equal ----------------------------------------------------------------------


def test_lengths_of_rows_without_a_direction_say_so() -> None:
    E = random_table(4, 3)
    E[1], E[2], E[3, 0] = 0, np.nan, np.inf
    norms = of({"wte.weight": E}).norms
    assert norms[1] == 0
    assert np.isnan(norms[2])
    assert np.isposinf(norms[3])


def test_lengths_are_measured_once() -> None:
    opened = of({"wte.weight": random_table(4, 3)})
    assert not opened.norms_known
    assert opened.norms is opened.norms
    assert opened.norms_known
    kept = np.ones(4)
    opened.keep_norms(kept)
    assert opened.norms is kept


def test_equal_tables_are_told_from_tables_that_differ_in_one_number() -> None:
    E = random_table(9, 5)
    other, shape, kind = E.copy(), E.reshape(5, 9), E.astype(np.float64)
    other[8, 4] += 1e-6
    held: dict[str, Stored] = {"a": E, "b": E.copy(), "other": other, "shape": shape, "kind": kind}
    first = of(held, "a")
    assert first.has_same_values(of(held, "b"))
    assert not any(first.has_same_values(of(held, name)) for name in ("other", "shape", "kind"))


@pytest.mark.parametrize("n", [1, 7, 8, 9, (1 << 22) - 1, (1 << 22) + 1, (1 << 22) + 9])
def test_the_last_byte_counts_whatever_the_size_is(n: int) -> None:
    a = np.zeros((n, 1), np.uint8)
    b = a.copy()
    b[-1] = 1
    held: dict[str, Stored] = {"a": ("F8_E4M3", (n, 1), a.tobytes()), "b": ("F8_E4M3", (n, 1), b.tobytes())}
    assert of(held, "a").has_same_values(of(held, "a"))
    assert not of(held, "a").has_same_values(of(held, "b"))


def test_equal_bytes_under_different_scales_are_different_values() -> None:
    E = random_table(4, 4).astype(ml_dtypes.float8_e4m3fn)
    one, two = np.array([1.0], np.float32), np.array([2.0], np.float32)
    held: dict[str, Stored] = {"a.weight": E, "a.weight_scale": one, "b.weight": E, "b.weight_scale": two, "c.weight": E,
                               "d.weight": E, "d.weight_scale": one.copy()}  # fmt: skip
    first = of(held, "a.weight")
    assert [first.has_same_values(of(held, f"{x}.weight")) for x in "abcd"] == [True, False, False, True]


# --- numbers that cannot be read -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["U32", "I64", "I8", "BOOL", "F4", "F8_E8M0", "C64"])
def test_what_cannot_be_read_is_refused_by_name_every_time(code: str) -> None:
    sizes = {"U32": 4, "I64": 8, "C64": 8, "F4": 0.5}
    opened = of({"wte.weight": (code, (6, 4), bytes(int(24 * sizes.get(code, 1))))})
    for _ in range(2):
        for ask in (lambda: opened.rows([0]), lambda: list(opened.blocks()), lambda: opened.norms):
            with pytest.raises(UnsupportedEncodingError, match=code) as caught:
                ask()
            assert "wte.weight" in str(caught.value)
            assert "BF16" in caught.value.hint


def test_packed_words_are_refused_with_the_names_of_what_lies_beside_them() -> None:
    beside = {
        "m.embed_tokens.scales": np.ones((6, 1), np.float16),
        "m.embed_tokens.biases": np.ones((6, 1), np.float16),
    }
    opened = of({"m.embed_tokens.weight": np.zeros((6, 4), np.uint32), **beside}, "m.embed_tokens.weight")
    with pytest.raises(UnsupportedEncodingError) as caught:
        opened.rows([0])
    for name in beside:
        assert name in str(caught.value)


# --- 8-bit floats beside their scales ------------------------------------------------------------------------


def scaled(scale: NDArray[Any] | Stored, name: str = "wte.weight_scale", **options: Any) -> EmbeddingTable:
    E = np.arange(1, 25).reshape(6, 4).astype(ml_dtypes.float8_e4m3fn)
    return of({"wte.weight": E, name: scale}, **options)


STORED = np.arange(1, 25).reshape(6, 4).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize(
    "name", ["wte.weight_scale", "wte.weight_scale_inv", "wte.scale", "wte.scale_weight"]
)
def test_one_scale_is_every_numbers(shape: tuple[int, ...], name: str) -> None:
    opened = scaled(np.full(shape, 0.5, np.float32), name)
    np.testing.assert_array_equal(opened.rows([5, 0]), STORED[[5, 0]] / 2)
    np.testing.assert_array_equal(whole(opened), STORED / 2)
    assert any("multiplied by " + name in note for note in opened.notes)


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_a_scale_for_each_row(shape: tuple[int, ...], dtype: Any) -> None:
    factors = np.arange(1, 7)
    opened = scaled(factors.reshape(shape).astype(dtype))
    np.testing.assert_array_equal(whole(opened), STORED * factors[:, None])
    np.testing.assert_array_equal(opened.rows([3]), STORED[[3]] * 4)


def test_a_scale_for_each_block_of_rows_and_columns() -> None:
    factors = np.array([[1, 2], [3, 4]], np.float32)  # blocks of 4 x 3: rows 0-3 and 4-5, columns 0-2 and 3
    opened = scaled(factors, "wte.weight_scale_inv", block_scale=(4, 3))
    expected = STORED * np.array([[1, 1, 1, 2]] * 4 + [[3, 3, 3, 4]] * 2)
    np.testing.assert_array_equal(whole(opened), expected)
    np.testing.assert_array_equal(opened.rows([5, 3]), expected[[5, 3]])


def test_the_size_of_blocks_comes_from_the_config(tmp_path: Path) -> None:
    E = np.ones((4, 6), ml_dtypes.float8_e4m3fn)
    factors = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    tensors = {"model.embed_tokens.weight": E, "model.embed_tokens.weight_scale_inv": factors}
    config = {"model_type": "llama", "quantization_config": {"weight_block_size": [2, 2]}}
    write(tmp_path, {MODEL: safetensors(tensors), "config.json": config})
    rows = open_checkpoint(tmp_path).table().rows([0, 3])
    assert rows.tolist() == [[1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6]]


@pytest.mark.parametrize("size", [None, [2], [0, 2], ["2", 2], [True, 2], {"a": 1}, "22", [2, 2, 2]])
def test_a_config_that_states_no_size_of_blocks_means_the_usual_one(tmp_path: Path, size: Any) -> None:
    E = np.ones((200, 130), ml_dtypes.float8_e4m3fn)
    factors = np.array([[1, 2], [3, 4]], np.float32)
    tensors = {"model.embed_tokens.weight": E, "model.embed_tokens.weight_scale_inv": factors}
    write(
        tmp_path,
        {MODEL: safetensors(tensors), "config.json": {"quantization_config": {"weight_block_size": size}}},
    )
    rows = open_checkpoint(tmp_path).table().rows([127, 128])
    assert rows[:, [0, 127, 128, 129]].tolist() == [[1, 1, 2, 2], [3, 3, 4, 4]]


def test_blocks_and_rows_are_scaled_alike_at_every_border(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    E = rng.standard_normal((37, 11)).astype(ml_dtypes.float8_e5m2)
    factors = rng.standard_normal((8, 3)).astype(np.float32)
    expected = E.astype(np.float32) * factors.repeat(5, 0)[:37].repeat(4, 1)[:, :11]
    for elements in (1, 22, 40, 100, 1000):
        monkeypatch.setattr(table, "DECODED_BLOCK_ELEMENTS", elements)
        opened = of({"wte.weight": E, "wte.weight_scale": factors}, block_scale=(5, 4))
        np.testing.assert_array_equal(whole(opened), expected)
    np.testing.assert_array_equal(opened.rows(range(37)), expected)


@pytest.mark.parametrize(
    "scale",
    [np.ones((4,), np.float32), np.ones((1, 4), np.float32), np.ones((2, 2), np.float32), np.ones((6, 4), np.float32),
     np.ones((0,), np.float32), ("F8_E8M0", (6, 1), bytes(6)), ("U8", (1,), bytes(1))],
    ids=["per column", "a row", "unknown blocks", "per number", "none", "unread encoding", "whole numbers"],
)  # fmt: skip
def test_a_scale_of_unknown_layout_is_not_applied_and_a_note_says_so(scale: Stored) -> None:
    opened = scaled(scale)
    assert any("NOT multiplied by wte.weight_scale" in note for note in opened.notes)
    np.testing.assert_array_equal(whole(opened), STORED)


def test_the_notes_on_scales_are_there_before_any_value_is_read() -> None:
    data = safetensors(
        {"wte.weight": np.ones((6, 4), ml_dtypes.float8_e4m3fn), "wte.weight_scale": np.ones(6, np.float32)}
    )
    folder = WatchedFolder({MODEL: data})
    tensors = read_tensors(folder)
    folder.reads.clear()
    opened = EmbeddingTable("input", tensors["wte.weight"], tensors, TokenLabels(None))
    assert len(opened.notes) == 1
    assert folder.reads == {}
    opened.rows([0])
    opened.rows([0])
    assert len(opened.notes) == 1


def test_8_bit_floats_without_a_scale_are_as_they_are() -> None:
    opened = of(
        {"wte.weight": np.ones((3, 2), ml_dtypes.float8_e4m3fn), "wpe.weight_scale": np.ones(3, np.float32)}
    )
    assert opened.notes == ()
    assert opened.rows([0]).tolist() == [[1, 1]]


def test_other_floats_are_not_scaled_whatever_lies_beside_them() -> None:
    opened = of({"wte.weight": np.ones((3, 2), np.float16), "wte.weight_scale": np.full(3, 2, np.float32)})
    assert opened.rows([0]).tolist() == [[1, 1]]


def test_a_scale_that_overflows_or_is_not_finite_raises_no_warning() -> None:
    E = np.full((3, 2), 448, ml_dtypes.float8_e4m3fn)
    E[2] = 0
    opened = of({"wte.weight": E, "wte.weight_scale": np.array([1e38, np.nan, np.inf], np.float32)})
    assert np.isposinf(opened.rows([0])).all()
    assert np.isnan(whole(opened)[1:]).all()
    assert np.isposinf(of({"wte.weight": E, "wte.weight_scale": np.full(3, 1e300)}).rows([0])).all()


def test_a_scale_that_is_cut_off_is_damage_and_not_a_scale_of_one() -> None:
    data = safetensors(
        {"wte.weight": np.ones((3, 2), ml_dtypes.float8_e4m3fn), "wte.weight_scale": np.ones(3, np.float32)}
    )
    tensors: SafetensorsSet = read_tensors(MemoryFolder({MODEL: data[:-4]}), allow_partial=True)
    opened = EmbeddingTable("input", tensors["wte.weight"], tensors, TokenLabels(None))
    for _ in range(2):
        with pytest.raises(DamagedFileError, match=r"wte\.weight_scale"):
            opened.rows([0])


# --- what rows are called ------------------------------------------------------------------------------------


def test_rows_without_a_vocabulary_are_known_by_their_ids() -> None:
    labels = TokenLabels(None)
    assert labels.text(7) == "id:7"
    assert (labels.find("id:7").row, labels.find("7").row) == (7, 7)
    assert labels.named(3).tolist() == [True, True, True]


@pytest.mark.parametrize(
    "query",
    ["girl", "", "id:", "id:x", "-1", "id:-1", "1.5", "١", "id:²", "0x1", "9" * 5000, "id:" + "9" * 19],
)
def test_a_word_without_a_vocabulary_is_an_error_that_says_how_to_go_on(query: str) -> None:
    with pytest.raises(TokenError, match="no tokenizer") as caught:
        TokenLabels(None).find(query)
    assert "--tokenizer" in caught.value.hint
    assert "id:477" in caught.value.hint


def test_the_reason_why_there_is_no_vocabulary_is_in_the_error() -> None:
    with pytest.raises(TokenError, match=r"tokenizer\.model is a SentencePiece model"):
        TokenLabels(None, "tokenizer.model is a SentencePiece model.").find("girl")


def test_rows_that_no_token_names_are_not_named() -> None:
    vocabulary = open_vocabulary(MemoryFolder({"tokenizer.json": words("a", "b", "c")}))
    labels = TokenLabels(vocabulary)
    assert labels.named(5).tolist() == [True, True, True, False, False]
    assert labels.named(2).tolist() == [True, True]
    assert labels.named(5).tolist() == [True, True, True, False, False]
    assert labels.text(4) == "no token"
    assert (labels.find("b").row, labels.find("b").label) == (1, labels.text(1))


def test_places_count_from_one_and_rows_before_the_first_are_no_place() -> None:
    labels = PositionLabels(2, 8)
    assert labels.n_places == 6
    assert [labels.text(row) for row in (0, 1, 2, 7, 8)] == [
        "no place",
        "no place",
        "place 1",
        "place 6",
        "no place",
    ]
    assert [labels.find(query).row for query in ("1", "place 1", "place6", "6", "id:0")] == [2, 2, 7, 7, 0]
    assert labels.named(8).tolist() == [False, False, True, True, True, True, True, True]


@pytest.mark.parametrize(
    "query", ["0", "7", "place 0", "girl", "", "-1", "1.5", "place", "9" * 5000, "id:" + "9" * 5000, "²"]
)
def test_a_place_beyond_the_table_is_an_error_that_says_how_far_it_goes(query: str) -> None:
    with pytest.raises(UnknownTokenError, match="places run from 1 to 6"):
        PositionLabels(2, 8).find(query)


def test_a_table_with_fewer_rows_than_come_before_its_first_place_has_no_places() -> None:
    labels = PositionLabels(2, 1)
    assert labels.n_places == 0
    assert labels.named(1).tolist() == [False]
