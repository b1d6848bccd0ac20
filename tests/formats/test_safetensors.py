"""Safetensors files: what their headers say, what stands in their place, shards and indices, files that are cut short."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from made import WatchedFolder, header_end, index, pack, random_table, shards
from made import safetensors as make

from inspect_embed.errors import CheckpointError, DamagedFileError, NotACheckpointError
from inspect_embed.formats import FORMATS
from inspect_embed.formats.safetensors import SafetensorsSet, read_tensors
from inspect_embed.storage.local import LocalFolder
from inspect_embed.storage.memory import MemoryFolder

MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"

TABLE = random_table(6, 4)
BIAS = np.arange(3, dtype=np.float32)


def opened(files: Mapping[str, bytes] | bytes, chosen: str | None = None, **options: bool) -> SafetensorsSet:
    return read_tensors(
        MemoryFolder({MODEL: files} if isinstance(files, bytes) else files), chosen, **options
    )


def refused(files: Mapping[str, bytes] | bytes, chosen: str | None = None) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        opened(files, chosen)
    assert caught.value.hint, "an error says what to do next"
    return caught.value


def describe(tensors: SafetensorsSet) -> list[Any]:
    return [tensors[name] for name in tensors.names()]


def values(tensors: SafetensorsSet, name: str) -> Any:
    entry = tensors[name]
    return entry.encoding.decode(tensors.read(entry, 0, entry.n_bytes)).reshape(entry.shape)


# --- one file ------------------------------------------------------------------------------------------------


def test_a_file_is_its_header_and_its_numbers() -> None:
    tensors = opened(make({"wte.weight": TABLE, "bias": BIAS}))
    assert tensors.names() == list(tensors) == ["wte.weight", "bias"]
    assert len(tensors) == 2
    assert "bias" in tensors
    assert "absent" not in tensors
    entry = tensors["wte.weight"]
    assert (entry.shape, entry.encoding.name, entry.file) == ((6, 4), "F32", MODEL)
    assert (entry.n_elements, entry.n_bytes) == (24, 96)
    np.testing.assert_array_equal(values(tensors, "wte.weight"), TABLE)
    np.testing.assert_array_equal(values(tensors, "bias"), BIAS)
    assert (tensors.files, tensors.missing_files, tensors.warnings, tensors.notes) == ((MODEL,), (), (), ())
    assert tensors.format in FORMATS
    with pytest.raises(KeyError):
        tensors["absent"]


def test_a_part_of_a_tensor_is_read_alone() -> None:
    tensors = opened(make({"a": BIAS, "wte.weight": TABLE}))
    assert bytes(tensors.read(tensors["wte.weight"], 16, 48)) == TABLE[1:3].tobytes()
    assert bytes(tensors.read(tensors["wte.weight"], 0, 0)) == b""


def test_scalars_and_empty_tensors_are_tensors() -> None:
    tensors = opened(
        make({"scalar": np.array(2.5, np.float32), "none": np.empty((0, 4), np.float32), "a": BIAS})
    )
    assert [tensors[name].n_elements for name in tensors.names()] == [1, 0, 3]
    assert values(tensors, "scalar") == 2.5


def test_bytes_are_counted_by_encoding() -> None:
    tensors = opened(
        make({"a": BIAS, "b": TABLE, "m": np.zeros((2, 2), bool), "e": np.empty((0,), np.int64)})
    )
    assert tensors.count_bytes() == {"F32": 12 + 96, "BOOL": 4}


def test_an_encoding_that_no_list_knows_is_listed_with_its_bytes() -> None:
    tensors = opened(make({"new": ("F7_NEW", (4, 8), bytes(28)), "a": BIAS}))
    entry = tensors["new"]
    assert (entry.encoding.name, entry.encoding.readable, entry.encoding.bits, entry.n_bytes) == (
        "F7_NEW",
        False,
        7,
        28,
    )
    assert tensors.count_bytes() == {"F7_NEW": 28, "F32": 12}


def test_packed_numbers_of_less_than_a_byte_are_counted_in_blocks() -> None:
    tensors = opened(make({"q": ("F4", (3, 5), bytes(8)), "r": ("F6_E2M3", (4, 2), bytes(6))}))
    assert (tensors["q"].n_elements, tensors["q"].n_bytes, tensors["r"].n_bytes) == (15, 8, 6)
    assert tensors.count_bytes() == {"F4": 8, "F6_E2M3": 6}


@pytest.mark.parametrize("metadata", [{}, {"__metadata__": None}, {"__metadata__": {}}])
def test_text_about_the_file_may_be_absent_null_or_empty(metadata: dict[str, Any]) -> None:
    plain = opened(make({"wte.weight": TABLE}))
    tensors = opened(make({"wte.weight": TABLE}, **metadata))
    assert (tensors.names(), tensors.metadata, tensors.count_bytes()) == (
        plain.names(),
        {},
        plain.count_bytes(),
    )
    np.testing.assert_array_equal(values(tensors, "wte.weight"), TABLE)


def test_text_about_the_file_is_kept_where_it_is_text() -> None:
    tensors = opened(make({"a": BIAS}, __metadata__={"format": "pt", "n": 3, "l": ["x"]}))
    assert tensors.metadata == {"format": "pt"}
    assert opened(make({"a": BIAS}, __metadata__=["pt"])).metadata == {}


def test_a_header_padded_with_spaces_and_data_that_are_not_aligned_are_read() -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}) + "   "
    header += " " * (len(header) % 2 == 0)  # an odd header puts the numbers at an odd byte
    tensors = opened(pack(header, BIAS.tobytes()))
    np.testing.assert_array_equal(values(tensors, "a"), BIAS)


def test_the_order_of_the_offsets_need_not_be_that_of_the_names() -> None:
    header = {
        "late": {"dtype": "F32", "shape": [3], "data_offsets": [4, 16]},
        "early": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    }
    tensors = opened(pack(header, np.array([9, 0, 1, 2], np.float32).tobytes()))
    assert tensors.names() == ["late", "early"]
    assert (values(tensors, "late").tolist(), values(tensors, "early").tolist()) == ([0, 1, 2], [9])


def test_bytes_after_the_last_tensor_are_worth_a_note() -> None:
    tensors = opened(make({"a": BIAS}) + b"12345")
    assert tensors.warnings == ()
    assert [note for note in tensors.notes if "5 bytes" in note]


def test_an_empty_header_is_a_checkpoint_without_tensors() -> None:
    assert opened(pack({})).names() == []


def test_what_the_library_saves_is_what_is_read(tmp_path: Path) -> None:
    tensors = {"x": TABLE, "y": BIAS.astype(np.float16), "z": np.array([[True], [False]])}
    safetensors.numpy.save_file(tensors, tmp_path / MODEL, {"by": "the library"})
    ours = read_tensors(LocalFolder(tmp_path))
    assert ours.metadata == {"by": "the library"}
    assert {name: ours[name].shape for name in ours.names()} == {"x": (6, 4), "y": (3,), "z": (2, 1)}
    np.testing.assert_array_equal(values(ours, "y"), BIAS)


# --- headers first -------------------------------------------------------------------------------------------


def test_opening_reads_no_data_of_any_tensor() -> None:
    parts = {FIRST: {"wte.weight": TABLE}, SECOND: {"h.weight": random_table(50, 40)}}
    files = shards(parts)
    folder = WatchedFolder(files)
    tensors = read_tensors(folder)
    describe(tensors)
    tensors.count_bytes()
    for name in (FIRST, SECOND):
        # The first kilobyte is looked at whole, to tell what the file is.
        assert folder.furthest(name) <= max(1024, header_end(files[name]))


def test_reading_one_tensor_touches_no_other() -> None:
    files = {
        MODEL: make({"a": random_table(500, 8), "b": random_table(500, 8, 1), "c": random_table(500, 8, 2)})
    }
    folder = WatchedFolder(files)
    tensors = read_tensors(folder)
    folder.reads.clear()
    tensors.read(tensors["b"], 32, 64)
    begin = header_end(files[MODEL]) + 500 * 8 * 4
    assert folder.reads[MODEL] == [(begin + 32, begin + 64)]


def test_files_given_back_are_opened_again_when_they_are_asked() -> None:
    tensors = opened(make({"a": BIAS}))
    before = tensors.read(tensors["a"], 0, 12)
    tensors.close()
    assert bytes(before) == bytes(tensors.read(tensors["a"], 0, 12)) == BIAS.tobytes()


# --- what stands in the place of a file ----------------------------------------------------------------------

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 548105171\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>403</title></head></html>"


@pytest.mark.parametrize("name", [MODEL, INDEX])
def test_a_pointer_that_stands_for_a_file_is_named_with_the_size_it_promises(name: str) -> None:
    error = refused({name: POINTER}, name)
    assert isinstance(error, NotACheckpointError)
    assert name in str(error)
    assert "git-lfs pointer" in str(error)
    assert "548,105,171 bytes" in str(error)
    assert "git lfs pull" in error.hint


@pytest.mark.parametrize("size", [b"", b"size \n", b"size many\n", b"size " + b"9" * 5000 + b"\n"])
def test_a_pointer_without_a_size_is_a_pointer_still(size: bytes) -> None:
    assert "git-lfs pointer" in str(refused(b"version https://git-lfs.github.com/spec/v1\n" + size))


@pytest.mark.parametrize(
    "page",
    [
        PAGE,
        b"\n  " + PAGE,
        b"\xef\xbb\xbf" + PAGE,
        b"<HTML>",
        b'<?xml version="1.0"?><Error/>',
        b"<Error><Code>",
    ],
)
@pytest.mark.parametrize("name", [MODEL, INDEX])
def test_a_web_page_in_the_place_of_a_file_is_called_one(name: str, page: bytes) -> None:
    error = refused({name: page}, name)
    assert isinstance(error, NotACheckpointError)
    assert name in str(error)
    assert "web page" in str(error)


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"PK\x03\x04" + bytes(40), "zip"),
        (b"GGUF\x03\x00\x00\x00" + bytes(40), "GGUF"),
        (b"\x80\x02}q\x00(X\x05\x00\x00\x00" + bytes(40), "pickle"),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5"),
        (b"Entry not found\n", "not a safetensors file"),
        (bytes(64), "not a safetensors file"),
    ],
)
def test_another_kind_of_file_is_called_what_it_is(start: bytes, what: str) -> None:
    error = refused(start)
    assert isinstance(error, NotACheckpointError)
    assert what in str(error)
    assert MODEL in str(error)


@pytest.mark.parametrize("first_byte", [0x80, 0x50, 0x47, 0x89])
def test_a_true_header_is_none_of_those_whatever_its_length_looks_like(first_byte: int) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})
    length = next(n for n in range(len(header), len(header) + 257) if n % 256 == first_byte)
    data = pack(header + " " * (length - len(header)), BIAS.tobytes())
    assert data[0] == first_byte
    assert opened(data).names() == ["a"]


def test_the_hint_of_a_pointer_is_kept_where_every_shard_is_one() -> None:
    error = refused({FIRST: POINTER, SECOND: POINTER, INDEX: index({"a": FIRST, "b": SECOND})})
    assert "git-lfs pointer" in str(error)
    assert "git lfs pull" in error.hint


# --- files that are cut short, or lie ------------------------------------------------------------------------


def test_a_file_of_no_bytes_is_empty() -> None:
    error = refused(b"")
    assert isinstance(error, DamagedFileError)
    assert "0 bytes" in str(error)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 20, 60, -1, -7])
def test_a_file_cut_inside_its_header_says_how_much_it_needs(n: int) -> None:
    data = make({"wte.weight": TABLE, "bias": BIAS})
    n = n if n > 0 else header_end(data) + n
    error = refused(data[:n])
    assert isinstance(error, DamagedFileError)
    assert MODEL in str(error)
    if n >= 8:
        assert "cut short" in str(error)
        assert f"{header_end(data):,} bytes" in str(error)
        assert f"has {n}" in str(error)


def test_a_file_cut_inside_its_data_says_how_much_it_needs_and_keeps_its_header() -> None:
    data = make({"wte.weight": TABLE, "bias": BIAS})
    tensors = opened(data[:-5])
    assert tensors.names() == ["wte.weight", "bias"]
    (warning,) = tensors.warnings
    assert f"needs {len(data):,} bytes and has {len(data) - 5:,}" in warning
    for name in tensors.names():
        with pytest.raises(DamagedFileError, match="cut short") as caught:
            tensors.read(tensors[name], 0, 4)
        assert "--allow-partial" in caught.value.hint


def test_what_lies_wholly_inside_a_cut_file_is_read_where_that_is_allowed() -> None:
    data = make({"wte.weight": TABLE, "bias": BIAS})
    tensors = opened(data[:-5], allow_partial=True)
    np.testing.assert_array_equal(values(tensors, "wte.weight"), TABLE)
    assert bytes(tensors.read(tensors["bias"], 0, 4)) == BIAS[:1].tobytes()
    with pytest.raises(DamagedFileError, match="bias"):
        tensors.read(tensors["bias"], 4, 12)


def test_an_absurd_length_is_no_safetensors_file_whatever_follows_it() -> None:
    for rest in (b"{" + bytes(55), bytes(56), b'{"a":' + b" " * 51):
        error = refused((1 << 60).to_bytes(8, "little") + rest)
        assert isinstance(error, NotACheckpointError)
        assert "not a safetensors file" in str(error)
        assert "has 64" in str(error)


GOOD = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
BAD_RECORDS: dict[str, Any] = {
    "no record": 5,
    "null": None,
    "a list": [1, 2],
    "a text": "F32",
    "nothing in it": {},
    "no dtype": {"shape": [2, 3], "data_offsets": [0, 24]},
    "no shape": {"dtype": "F32", "data_offsets": [0, 24]},
    "no offsets": {"dtype": "F32", "shape": [2, 3]},
    "dtype a number": {**GOOD, "dtype": 32},
    "dtype a list": {**GOOD, "dtype": ["F32"]},
    "dtype null": {**GOOD, "dtype": None},
    "shape a number": {**GOOD, "shape": 6},
    "shape a text": {**GOOD, "shape": "23"},
    "shape of text": {**GOOD, "shape": ["2", "3"]},
    "shape of lists": {**GOOD, "shape": [[2], [3]]},
    "shape negative": {**GOOD, "shape": [-2, -3]},
    "shape of broken numbers": {**GOOD, "shape": [2.0, 3.0]},
    "shape of booleans": {**GOOD, "shape": [True, 6]},
    "shape an empty object": {"dtype": "F32", "shape": {}, "data_offsets": [0, 4]},
    "shape an empty text": {"dtype": "F32", "shape": "", "data_offsets": [0, 4]},
    "shape too large": {**GOOD, "shape": [2, 4]},
    "shape too small": {**GOOD, "shape": [2, 2]},
    "shape huge": {**GOOD, "shape": [10**4000, 10**4000]},
    "shape huge, many": {**GOOD, "shape": [2**62] * 300},
    "shape of many ones": {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 4]},
    "one offset": {**GOOD, "data_offsets": [24]},
    "three offsets": {**GOOD, "data_offsets": [0, 24, 48]},
    "offsets of text": {**GOOD, "data_offsets": ["0", "24"]},
    "offsets a text": {**GOOD, "data_offsets": "04"},
    "offsets an object": {**GOOD, "data_offsets": {"0": 0, "24": 24}},
    "offsets of broken numbers": {**GOOD, "data_offsets": [0.0, 24.0]},
    "offsets of booleans": {"dtype": "U8", "shape": [1], "data_offsets": [False, True]},
    "offsets falling": {**GOOD, "data_offsets": [24, 0]},
    "offsets negative": {**GOOD, "data_offsets": [-24, 0]},
    "offsets infinite": {"dtype": "F32", "shape": [float("inf")], "data_offsets": [0, float("inf")]},
    "offsets not a number": {"dtype": "F32", "shape": [float("nan")], "data_offsets": [0, float("nan")]},
    "offsets huge": {"dtype": "U8", "shape": [10**4000], "data_offsets": [0, 10**4000]},
    "offsets beyond 2^63": {"dtype": "U8", "shape": [2**63], "data_offsets": [0, 2**63]},
    "unknown dtype, no bytes for it": {"dtype": "NEW", "shape": [0], "data_offsets": [0, 8]},
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_RECORDS)
def test_a_record_that_contradicts_itself_is_damage_and_is_named(kind: str) -> None:
    header = {"good": {**GOOD, "data_offsets": [24, 48]}, "the bad one": BAD_RECORDS[kind]}
    with pytest.raises(DamagedFileError) as caught:
        describe(opened(pack(header, bytes(48))))
    assert "the bad one" in str(caught.value)
    assert MODEL in str(caught.value)
    assert len(str(caught.value)) < 500


def test_many_huge_sizes_are_damage_even_where_their_sum_alone_is_too_long_to_print() -> None:
    n = 10**4299
    header = {f"t{i}": {"dtype": "U8", "shape": [n], "data_offsets": [0, n]} for i in range(20)}
    assert isinstance(refused(pack(header)), DamagedFileError)


def test_tensors_that_share_bytes_are_damage() -> None:
    header = {"a": {**GOOD}, "b": {**GOOD}}
    error = refused(pack(header, bytes(24)))
    assert isinstance(error, DamagedFileError)
    assert "48 bytes" in str(error)


@pytest.mark.parametrize(
    "header",
    [b"{", b"{]", b'{"a"}', b'{"a": {"dtype": "F32"', b"{} {}", b"{\xff}", b'{"a":' + b"[" * 100_000, b"{'a': 1}",
     b'{"a":' + b'{"a":' * 100_000, b'{"a": ' + b"9" * 10_000 + b"}"],
)  # fmt: skip
def test_a_header_that_is_no_json_is_damage(header: bytes) -> None:
    assert isinstance(refused(pack(header, bytes(8))), DamagedFileError)


@pytest.mark.parametrize("header", [b"[]", b"null", b"5", b'"a"', b" {}", b""])
def test_a_header_that_is_no_object_is_not_a_safetensors_file(header: bytes) -> None:
    assert isinstance(refused(pack(header, bytes(8))), NotACheckpointError)


def test_a_file_that_may_not_be_opened_is_named() -> None:
    class Locked(MemoryFolder):
        def open(self, name: str) -> Any:
            raise PermissionError(13, "Permission denied", name)

    with pytest.raises(NotACheckpointError, match=r"model\.safetensors cannot be opened: Permission denied"):
        read_tensors(Locked({MODEL: b""}))


# --- shards and indices --------------------------------------------------------------------------------------

PARTS: dict[str, dict[str, Any]] = {FIRST: {"wte.weight": TABLE}, SECOND: {"ln.weight": BIAS}}


def test_shards_are_one_checkpoint_by_their_index() -> None:
    tensors = opened(shards(PARTS))
    assert sorted(tensors.names()) == ["ln.weight", "wte.weight"]
    assert tensors.files == (FIRST, SECOND)
    np.testing.assert_array_equal(values(tensors, "wte.weight"), TABLE)
    np.testing.assert_array_equal(values(tensors, "ln.weight"), BIAS)
    assert (tensors.warnings, tensors.notes, tensors.missing_files) == ((), (), ())


def test_shards_are_one_checkpoint_by_their_names_alone() -> None:
    files = shards(PARTS)
    del files[INDEX]
    assert sorted(opened(files).names()) == ["ln.weight", "wte.weight"]


def test_an_index_with_a_byte_order_mark_is_read() -> None:
    files = shards(PARTS)
    files[INDEX] = b"\xef\xbb\xbf" + files[INDEX]
    assert len(opened(files)) == 2


def test_a_missing_shard_is_named_and_what_is_there_can_be_read() -> None:
    files = shards(PARTS)
    del files[SECOND]
    tensors = opened(files)
    assert tensors.missing_files == (SECOND,)
    assert any(SECOND in warning for warning in tensors.warnings)
    assert tensors.names() == ["wte.weight"]
    assert tensors.missing_names() == ["ln.weight"]
    np.testing.assert_array_equal(values(tensors, "wte.weight"), TABLE)


def test_a_missing_shard_is_seen_without_an_index_too() -> None:
    tensors = opened({FIRST: make(PARTS[FIRST])})
    assert tensors.missing_files == (SECOND,)
    assert any(SECOND in warning for warning in tensors.warnings)


def test_a_broken_shard_is_a_warning_and_its_tensors_are_missing() -> None:
    files = shards(PARTS)
    files[SECOND] = POINTER
    tensors = opened(files)
    assert tensors.missing_files == (SECOND,)
    assert any("git-lfs pointer" in warning for warning in tensors.warnings)
    assert tensors.names() == ["wte.weight"]


def test_a_stale_index_gives_way_to_the_files_that_are_there() -> None:
    files = {f"model-{n:05d}-of-00015.safetensors": make({f"t{n}": BIAS}) for n in range(1, 16)}
    files[INDEX] = index({f"t{n}": f"model-{n:05d}-of-00030.safetensors" for n in range(1, 31)})
    tensors = opened(files)
    assert len(tensors) == 15
    assert any("stale" in warning and "model-00001-of-00030" in warning for warning in tensors.warnings)
    assert tensors.missing_files == ()


def test_an_index_whose_files_are_all_absent_says_which() -> None:
    error = refused({INDEX: index({"a": FIRST, "b": SECOND})})
    assert isinstance(error, NotACheckpointError)
    assert FIRST in str(error)
    assert SECOND in str(error)


def test_the_index_decides_what_is_counted() -> None:
    files = shards(PARTS)
    files["consolidated.safetensors"] = make({"tok_embeddings.weight": TABLE, "norm.weight": BIAS})
    tensors = opened(files)
    assert sorted(tensors.names()) == ["ln.weight", "wte.weight"]
    assert sum(tensors.count_bytes().values()) == TABLE.nbytes + BIAS.nbytes
    assert any("consolidated.safetensors" in note for note in tensors.notes)


@pytest.mark.parametrize(
    ("there", "read"),
    [
        ({MODEL, "consolidated.safetensors"}, {MODEL}),
        ({MODEL, "model.fp16.safetensors"}, {MODEL}),
        ({FIRST, SECOND, "consolidated.safetensors"}, {FIRST, SECOND}),
        ({MODEL, FIRST, SECOND}, {MODEL}),
        ({"consolidated.safetensors", "adapter_model.safetensors"}, {"consolidated.safetensors"}),
        ({"weights.safetensors"}, {"weights.safetensors"}),
        ({"pytorch_model-00001-of-00002.safetensors", "pytorch_model-00002-of-00002.safetensors", "other.safetensors"},
         {"pytorch_model-00001-of-00002.safetensors", "pytorch_model-00002-of-00002.safetensors"}),
        ({"model-00001-of-00001.safetensors", "model-00002-of-00003.safetensors"}, {"model-00001-of-00001.safetensors"}),
        ({"model-00001-of-00003.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
         {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}),
        ({"model-00001-of-00009.safetensors", "model-00001-of-00010.safetensors"} | {f"model-{n:05d}-of-00010.safetensors"
         for n in range(2, 11)}, {f"model-{n:05d}-of-00010.safetensors" for n in range(1, 11)}),
    ],
)  # fmt: skip
def test_without_an_index_one_set_is_read_and_the_rest_is_named(there: set[str], read: set[str]) -> None:
    tensors = opened({name: make({name: BIAS}) for name in there})
    assert set(tensors.files) == set(tensors.names()) == read
    ignored = there - read
    assert bool(ignored) == any("Not counted" in note for note in tensors.notes)
    if len(ignored) <= 5:
        assert all(any(name in note for note in tensors.notes) for name in ignored)


def test_several_files_of_which_none_is_the_model_are_listed_not_mixed() -> None:
    error = refused({"b.safetensors": make({"x": BIAS}), "a.safetensors": make({"x": BIAS})})
    assert isinstance(error, NotACheckpointError)
    assert "a.safetensors, b.safetensors" in str(error)


def test_a_chosen_file_is_read_alone() -> None:
    files = {
        "a.safetensors": make({"x": BIAS}),
        "b.safetensors": make({"y": BIAS}),
        INDEX: index({"x": "b.safetensors"}),
    }
    assert opened(files, "a.safetensors").names() == ["x"]
    assert opened(files, "b.safetensors").names() == ["y"]


def test_a_chosen_index_is_the_one_that_is_read() -> None:
    files = {**shards(PARTS), "other.safetensors.index.json": index({"x": MODEL}), MODEL: make({"x": BIAS})}
    assert opened(files, "other.safetensors.index.json").names() == ["x"]
    assert sorted(opened(files).names()) == ["ln.weight", "wte.weight"]


def test_a_tensor_in_two_files_is_the_one_that_the_index_means() -> None:
    files = {
        FIRST: make({"x": BIAS, "y": BIAS}),
        SECOND: make({"x": BIAS + 1}),
        INDEX: index({"x": SECOND, "y": FIRST}),
    }
    tensors = opened(files)
    assert len(tensors) == 2
    assert tensors["x"].file == SECOND
    np.testing.assert_array_equal(values(tensors, "x"), BIAS + 1)


def test_a_tensor_that_the_index_misplaces_is_found_where_it_is() -> None:
    files = {**shards(PARTS), INDEX: index({"wte.weight": SECOND, "ln.weight": FIRST})}
    tensors = opened(files)
    assert (tensors["wte.weight"].file, tensors["ln.weight"].file) == (FIRST, SECOND)
    np.testing.assert_array_equal(values(tensors, "wte.weight"), TABLE)


def test_what_the_index_lists_and_no_file_holds_is_a_warning() -> None:
    files = shards(PARTS)
    files[INDEX] = index({"wte.weight": FIRST, "ln.weight": SECOND, "ghost.weight": SECOND})
    tensors = opened(files)
    assert "ghost.weight" not in tensors
    assert any("1 tensors that the files do not hold" in warning for warning in tensors.warnings)


def test_what_a_file_holds_and_the_index_does_not_list_is_a_note() -> None:
    files = shards(PARTS)
    files[INDEX] = index({"wte.weight": FIRST, "a": SECOND})
    files[SECOND] = make({"a": BIAS, "extra.weight": BIAS})
    tensors = opened(files)
    assert "extra.weight" in tensors
    assert any("extra.weight" in note for note in tensors.notes)


# --- names that leave the folder -----------------------------------------------------------------------------

ESCAPES = ("../outside.safetensors", "..", ".", "", "/etc/passwd", "below/x.safetensors", "C:\\x.safetensors", "..\\x",
           "C:x.safetensors", "a/../../outside.safetensors", "./x.safetensors", "x\0.safetensors", "\\\\host\\x")  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
def test_an_index_that_names_a_file_elsewhere_is_refused_before_anything_is_opened(name: str) -> None:
    folder = WatchedFolder(
        {INDEX: index({"a": FIRST, "b": name}), FIRST: make({"a": BIAS}), name: make({"b": BIAS})}
    )
    with pytest.raises(DamagedFileError, match="not a plain name") as caught:
        read_tensors(folder)
    assert folder.opened == [INDEX]
    assert INDEX in str(caught.value)
    assert repr(name) in str(caught.value)


def test_a_real_file_outside_is_not_read_by_either_of_its_paths(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes(make({"secret": BIAS}))
    for name in ("../outside.safetensors", str(outside)):
        (folder / INDEX).write_bytes(index({"secret": name}))
        with pytest.raises(DamagedFileError, match="plain name"):
            read_tensors(LocalFolder(folder))


@pytest.mark.parametrize(
    "content",
    [b"{}", b"[]", b"null", b'{"weight_map": null}', b'{"weight_map": {}}', b'{"weight_map": []}', b'{"weight_map": ["a"]}',
     b'{"weight_map": {"a": 1}}', b'{"weight_map": {"a": ["x"]}}', b'{"weight_map": {"a": {"b": 1}}}', b'{"weight_map": "abc"}',
     b'{"weight_map": {"a": null}}', b'{"weight_map": 5}', b"", b"{", b"\xff\xfe{}", b'{"weight_map":' + b"[" * 50_000],
)  # fmt: skip
def test_an_index_without_a_map_of_files_is_damage(content: bytes) -> None:
    error = refused({INDEX: content, FIRST: make({"a": BIAS})})
    assert isinstance(error, DamagedFileError)
    assert INDEX in str(error)


def test_what_an_index_states_about_the_whole_is_kept_as_it_is() -> None:
    files = shards(PARTS)
    files[INDEX] = json.dumps({"metadata": {"total_size": 7}, "weight_map": {"wte.weight": FIRST}}).encode()
    assert opened(files).stated == {"total_size": 7}
    files[INDEX] = json.dumps({"metadata": [1], "weight_map": {"wte.weight": FIRST}}).encode()
    assert opened(files).stated == {}


def test_counting_goes_file_by_file_and_counts_each_tensor_once() -> None:
    files = {
        FIRST: make({"x": BIAS, "y": TABLE}),
        SECOND: make({"x": BIAS}),
        INDEX: index({"x": SECOND, "y": FIRST}),
    }
    found = [
        (name, code, size)
        for batch in opened(files).batches()
        for name, code, size in zip(*batch, strict=True)
    ]
    assert sorted(found) == [("x", "F32", 12), ("y", "F32", 96)]
