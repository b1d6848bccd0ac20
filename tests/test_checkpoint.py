"""Opening what a person names: folders, files, caches; and choosing the table that is meant."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import Stored, random_table, safetensors, shards, words, write, write_checkpoint

import inspect_embed
from inspect_embed import open_checkpoint
from inspect_embed.checkpoint import Checkpoint, TableFacts, shape_text
from inspect_embed.errors import (
    AmbiguousTableError,
    DamagedFileError,
    InspectEmbedError,
    MissingTableError,
    NotACheckpointError,
    TokenError,
    UnknownFamilyError,
    UnsupportedEncodingError,
)

MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
TABLE = random_table(6, 4)
OTHER = TABLE + 1
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 6,
    "n_positions": 3,
}
TENSORS: dict[str, Stored] = {"wte.weight": TABLE, "wpe.weight": TABLE[:3], "h.0.ln_1.weight": TABLE[0]}


def refused(path: Any, kind: type[InspectEmbedError] = NotACheckpointError) -> InspectEmbedError:
    with pytest.raises(kind) as caught:
        open_checkpoint(path)
    assert caught.value.hint
    return caught.value


def opened(folder: Path, tensors: dict[str, Stored], config: dict[str, Any] | None = None) -> Checkpoint:
    return open_checkpoint(write_checkpoint(folder, tensors, config))


# --- what a person names -------------------------------------------------------------------------------------


def test_a_folder_a_file_in_it_and_text_or_path_are_one_checkpoint(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TENSORS, GPT2, ("a", "b", "c", "d", "e", "f"))
    for path in (folder, str(folder), folder / MODEL, f"{folder}/", os.path.relpath(folder)):
        checkpoint = open_checkpoint(path)
        assert checkpoint.location == os.fspath(path)
        assert checkpoint.config == GPT2
        assert checkpoint.table().tensor.name == "wte.weight"
        assert checkpoint.vocabulary is not None
        assert (checkpoint.warnings, checkpoint.notes) == ([], [])
    assert "wte" not in repr(checkpoint)
    assert "gpt2" in repr(checkpoint)


def test_files_are_given_back_at_the_end_of_a_block_and_opened_again_when_they_are_asked(
    tmp_path: Path,
) -> None:
    write_checkpoint(tmp_path, TENSORS)
    maps = Path("/proc/self/maps")

    def mapped() -> bool:
        return str(tmp_path / MODEL) in maps.read_text() if maps.exists() else False

    with open_checkpoint(tmp_path) as checkpoint:
        rows = checkpoint.table().rows([2])
        assert mapped() or not maps.exists()
    assert not mapped()
    np.testing.assert_array_equal(rows, TABLE[[2]])
    np.testing.assert_array_equal(checkpoint.table().rows([3]), TABLE[[3]])


def test_an_index_file_is_the_checkpoint_that_it_lists(tmp_path: Path) -> None:
    write(
        tmp_path,
        {**shards({FIRST: {"wte.weight": TABLE}, SECOND: {"wpe.weight": TABLE}}), "config.json": GPT2},
    )
    for path in (tmp_path, tmp_path / INDEX):
        assert sorted(open_checkpoint(path).tensors.names()) == ["wpe.weight", "wte.weight"]
    assert open_checkpoint(tmp_path / FIRST).tensors.names() == ["wte.weight"]


def test_the_current_folder_is_a_checkpoint_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, TENSORS)
    monkeypatch.chdir(tmp_path)
    for path in (".", MODEL):
        assert open_checkpoint(path).table().n_rows == 6


def hub_cache(root: Path, revisions: dict[str, dict[str, Stored]], main: str | None) -> Path:
    """A folder as the hub's library keeps it: snapshots whose files are links into blobs."""
    folder = root / "models--org--name"
    (folder / "blobs").mkdir(parents=True)
    for age, (revision, tensors) in enumerate(revisions.items()):
        snapshot = folder / "snapshots" / revision
        snapshot.mkdir(parents=True)
        contents = {
            MODEL: safetensors(tensors),
            "config.json": json.dumps(GPT2).encode(),
            "tokenizer.json": words(*"abcdef"),
        }
        for name, data in contents.items():
            blob = f"{revision}-{name.split('.')[0]}"
            (folder / "blobs" / blob).write_bytes(data)
            (snapshot / name).symlink_to(f"../../blobs/{blob}")
        os.utime(snapshot, (age, age))
    if main is not None:
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(main)
    return folder


OLD, NEW = {"wte.weight": TABLE}, {"wte.weight": OTHER}


@pytest.mark.parametrize(
    ("main", "revision"), [("aaa", "aaa"), ("bbb\n", "bbb"), (None, "bbb"), ("gone", "bbb")]
)
def test_a_hub_cache_folder_is_the_snapshot_that_it_refers_to_or_the_newest(
    tmp_path: Path, main: str | None, revision: str
) -> None:
    folder = hub_cache(tmp_path, {"aaa": OLD, "bbb": NEW}, main)
    checkpoint = open_checkpoint(folder)
    assert any(revision in note for note in checkpoint.notes)
    np.testing.assert_array_equal(checkpoint.table().rows([0]), (TABLE if revision == "aaa" else OTHER)[[0]])
    assert checkpoint.config == GPT2
    assert checkpoint.vocabulary is not None


@pytest.mark.parametrize("below", ["snapshots/aaa", f"snapshots/aaa/{MODEL}"])
def test_a_snapshot_and_a_link_in_it_are_opened_where_they_are_and_not_where_they_lead(
    tmp_path: Path, below: str
) -> None:
    folder = hub_cache(tmp_path, {"aaa": OLD}, "aaa")
    checkpoint = open_checkpoint(folder / below)
    assert checkpoint.config == GPT2
    assert checkpoint.vocabulary is not None


def test_a_hub_cache_of_shards_is_read_through_its_links(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "aaa"
    snapshot.mkdir(parents=True)
    for n, (name, data) in enumerate(
        shards({FIRST: {"wte.weight": TABLE}, SECOND: {"wpe.weight": TABLE}}).items()
    ):
        blob = tmp_path / "models--org--name" / "blobs" / str(n)
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(data)
        (snapshot / name).symlink_to(f"../../blobs/{n}")
    assert len(open_checkpoint(tmp_path / "models--org--name").tensors) == 2


def test_a_hub_cache_without_a_snapshot_says_so(tmp_path: Path) -> None:
    folder = hub_cache(tmp_path, {}, "aaa")
    (folder / "snapshots").mkdir()
    assert "without a snapshot" in str(refused(folder))


def test_links_to_files_that_were_never_fetched_are_named(tmp_path: Path) -> None:
    folder = hub_cache(tmp_path, {"aaa": OLD}, "aaa")
    for blob in (folder / "blobs").iterdir():
        blob.unlink()
    assert MODEL in refused(folder).hint
    assert "link" in str(refused(folder / "snapshots" / "aaa" / MODEL))


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"])
def test_a_name_that_is_no_path_is_looked_for_in_the_hub_cache_and_the_error_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    below = {
        "HF_HUB_CACHE": "",
        "HF_HOME": "hub",
        "XDG_CACHE_HOME": "huggingface/hub",
        "HOME": ".cache/huggingface/hub",
    }
    folder = tmp_path / below[variable] / "models--org--name"
    hint = refused("org/name").hint
    assert str(folder) in hint
    assert "once it is fetched" in hint
    hub_cache(folder.parent, {"aaa": OLD}, "aaa")
    assert open_checkpoint("org/name").table().n_rows == 6


def test_a_name_without_an_owner_gets_that_hint_only_where_the_cache_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert "cache as" not in refused("gpt2").hint
    (tmp_path / "models--gpt2").mkdir()
    error = refused("gpt2")
    assert str(tmp_path / "models--gpt2") in str(error) + error.hint


@pytest.mark.parametrize(
    "path", ["nowhere", "./org/name", "/no/such/folder", "a/b/c", "", "x" * 5000, "nul\0byte", "·girl"]
)
def test_what_is_nowhere_is_no_checkpoint_whatever_it_is_called(path: str) -> None:
    error = refused(path)
    assert len(str(error)) < 6000
    assert "folder" in error.hint


def test_a_folder_without_tensors_says_what_it_holds(tmp_path: Path) -> None:
    assert "empty" in refused(tmp_path).hint
    (tmp_path / "notes.txt").write_text("x")
    assert "notes.txt" in refused(tmp_path).hint
    (tmp_path / "flax_model.msgpack").write_bytes(b"x")
    assert "flax_model.msgpack" in refused(tmp_path).hint
    write_checkpoint(tmp_path / "below", TENSORS)
    assert f"{tmp_path}/below" in refused(tmp_path).hint


def test_a_file_of_another_kind_is_none(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "notes.txt" in str(refused(path))


# --- the config ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"\xff\xfe", b"", b"null", b'{"a":' + b"[" * 100_000, b"version https://git-lfs"]
)
def test_a_config_that_cannot_be_read_is_a_warning_and_names_decide(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, {MODEL: safetensors(TENSORS), "config.json": content})
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config == {}
    assert any("config.json" in warning for warning in checkpoint.warnings)
    assert checkpoint.table().tensor.name == "wte.weight"


def test_a_config_with_a_byte_order_mark_and_other_scripts_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "cp1252")
    content = b"\xef\xbb\xbf" + json.dumps({**GPT2, "note": "Ġgirl 你"}, ensure_ascii=False).encode()
    write(tmp_path, {MODEL: safetensors(TENSORS), "config.json": content})
    assert open_checkpoint(tmp_path).config == {**GPT2, "note": "Ġgirl 你"}


# --- which table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["wte.weight", "transformer.wte.weight", "module._orig_mod.transformer.wte.weight", "_orig_mod.module.wte.weight",
     "model.embed_tokens.weight", "model.model.embed_tokens.weight", "base.encoder.embeddings.word_embeddings.weight",
     "embeddings"],
)  # fmt: skip
def test_a_table_is_found_whatever_its_name_wears(tmp_path: Path, name: str) -> None:
    table = opened(tmp_path, {name: TABLE}).table()
    assert table.tensor.name == name
    np.testing.assert_array_equal(table.rows([5]), TABLE[[5]])


T5: dict[str, Any] = {
    "encoder.embed_tokens.weight": TABLE,
    "decoder.embed_tokens.weight": OTHER,
    "lm_head.weight": TABLE * 2,
}


def test_several_tables_of_different_values_are_listed_and_none_is_chosen(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, T5, {"model_type": "t5"})
    with pytest.raises(AmbiguousTableError) as caught:
        checkpoint.table()
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        assert name in str(caught.value)
    assert "lm_head" not in str(caught.value)
    assert "--tensor" in caught.value.hint
    with pytest.raises(AmbiguousTableError):
        checkpoint.table("input")


@pytest.mark.parametrize(
    "name", ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"]
)
def test_a_choice_among_them_is_followed(tmp_path: Path, name: str) -> None:
    np.testing.assert_array_equal(opened(tmp_path, T5).table(tensor=name).rows([2]), T5[name][[2]])


def test_several_tables_of_equal_values_are_one(tmp_path: Path) -> None:
    tensors = {**T5, "decoder.embed_tokens.weight": TABLE}
    np.testing.assert_array_equal(opened(tmp_path, tensors).table().rows([2]), TABLE[[2]])


def test_an_output_head_is_never_taken_for_the_input(tmp_path: Path) -> None:
    checkpoint = opened(
        tmp_path, {"lm_head.weight": OTHER, "model.embed_tokens.weight": TABLE, "model.norm.weight": TABLE[0]}
    )
    np.testing.assert_array_equal(checkpoint.table().rows([0]), TABLE[[0]])
    np.testing.assert_array_equal(checkpoint.table("output").rows([0]), OTHER[[0]])


def test_the_width_is_that_of_the_tensor_and_not_of_the_config(tmp_path: Path) -> None:
    tensors: dict[str, Stored] = {"albert.embeddings.word_embeddings.weight": random_table(30, 4)}
    config = {"model_type": "albert", "hidden_size": 768, "vocab_size": 30, "embedding_size": 4}
    assert opened(tmp_path, tensors, config).table().width == 4


def test_a_tied_head_is_the_input_table_and_a_note_says_so(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, TENSORS, GPT2)
    output = checkpoint.table("output")
    assert checkpoint.found.tied is True
    assert (output.role, output.tensor.name) == ("output", "wte.weight")
    assert any("tied" in note for note in output.notes)
    assert checkpoint.table().role == "input"
    assert not checkpoint.table().notes


def test_a_head_that_the_config_calls_tied_is_read_from_the_file_that_has_it(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, {**TENSORS, "lm_head.weight": OTHER}, {**GPT2, "tie_word_embeddings": True})
    assert checkpoint.found.tied is False
    np.testing.assert_array_equal(checkpoint.table("output").rows([1]), OTHER[[1]])
    assert any("tied" in note for note in checkpoint.found.notes)


def test_a_model_without_a_head_says_so(tmp_path: Path) -> None:
    tensors: dict[str, Stored] = {
        "embeddings.word_embeddings.weight": TABLE,
        "embeddings.LayerNorm.weight": TABLE[0],
    }
    checkpoint = opened(tmp_path, tensors, {"model_type": "bert", "architectures": ["BertModel"]})
    with pytest.raises(MissingTableError, match="no output table"):
        checkpoint.table("output")


def test_a_position_table_knows_which_row_is_the_first_place(tmp_path: Path) -> None:
    tensors: dict[str, Stored] = {
        "model.decoder.embed_tokens.weight": TABLE,
        "model.decoder.embed_positions.weight": random_table(8, 4),
    }
    config = {
        "model_type": "opt",
        "architectures": ["OPTForCausalLM"],
        "vocab_size": 6,
        "max_position_embeddings": 6,
    }
    table = opened(tmp_path, tensors, config).table("position")
    assert table.labels.find("1").row == 2
    assert table.labels.text(7) == "place 6"
    assert int(table.labels.named(8).sum()) == 6


def test_a_model_without_a_position_table_says_what_it_has_instead(tmp_path: Path) -> None:
    tensors: dict[str, Stored] = {"model.embed_tokens.weight": TABLE, "model.norm.weight": TABLE[0]}
    checkpoint = opened(tmp_path, tensors, {"model_type": "llama", "rope_theta": 10000.0})
    with pytest.raises(MissingTableError, match=r"no position table.*rotary"):
        checkpoint.table("position")


def test_a_table_of_whole_numbers_is_refused_by_name(tmp_path: Path) -> None:
    checkpoint = opened(
        tmp_path, {"model.embed_tokens.weight": np.zeros((6, 4), np.int64)}, {"model_type": "llama"}
    )
    with pytest.raises(UnsupportedEncodingError, match=r"model\.embed_tokens\.weight holds I64"):
        checkpoint.table().rows([0])


ADAPTER: dict[str, Stored] = {
    "base_model.model.model.embed_tokens.lora_embedding_A": random_table(2, 10),
    "base_model.model.model.embed_tokens.lora_embedding_B": random_table(4, 2),
}


def test_an_adapter_names_its_base_model_and_its_factors_are_no_table(tmp_path: Path) -> None:
    files = {
        "adapter_model.safetensors": safetensors(ADAPTER),
        "adapter_config.json": {"base_model_name_or_path": "org/base"},
    }
    checkpoint = open_checkpoint(write(tmp_path, files))
    with pytest.raises(MissingTableError, match="adapter for org/base") as caught:
        checkpoint.table()
    assert "base model" in caught.value.hint


@pytest.mark.parametrize("content", [b"{}", b"{", b'{"base_model_name_or_path": 5}', b"[]"])
def test_an_adapter_whose_config_says_nothing_is_an_adapter_still(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, {"adapter_model.safetensors": safetensors(ADAPTER), "adapter_config.json": content})
    with pytest.raises(MissingTableError, match="is an adapter:"):
        open_checkpoint(tmp_path).table()


def test_a_full_copy_inside_an_adapter_is_shown_when_it_is_asked_for(tmp_path: Path) -> None:
    name = "base_model.model.model.embed_tokens.weight"
    tensors = {**ADAPTER, name: TABLE}
    checkpoint = open_checkpoint(write(tmp_path, {"adapter_model.safetensors": safetensors(tensors)}))
    np.testing.assert_array_equal(checkpoint.table(tensor=name).rows([1]), TABLE[[1]])


def test_nothing_that_looks_like_a_table_lists_what_could_be_named(tmp_path: Path) -> None:
    checkpoint = opened(
        tmp_path, {"encoder.proj.weight": TABLE, "encoder.proj.bias": TABLE[0]}, {"model_type": "new"}
    )
    with pytest.raises(UnknownFamilyError) as caught:
        checkpoint.table()
    assert "encoder.proj.weight" in caught.value.hint
    np.testing.assert_array_equal(checkpoint.table(tensor="encoder.proj.weight").rows([1]), TABLE[[1]])
    with pytest.raises(UnknownFamilyError):
        opened(tmp_path / "empty", {}).table()


# --- a tensor by its name ------------------------------------------------------------------------------------


def test_the_end_of_a_name_is_enough_where_it_is_the_only_one(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, {"a.x.weight": TABLE, "b.x.weight": OTHER, "b.y.weight": TABLE})
    assert checkpoint.find_tensor("y.weight").name == "b.y.weight"
    assert checkpoint.find_tensor("b.x.weight").name == "b.x.weight"
    with pytest.raises(AmbiguousTableError, match=r"a\.x\.weight, b\.x\.weight"):
        checkpoint.find_tensor("x.weight")
    with pytest.raises(MissingTableError):
        checkpoint.find_tensor("eight")


def test_a_name_that_no_tensor_has_brings_the_closest_ones(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, {"wte.weight": TABLE, "h.0.attn.bias": TABLE})
    with pytest.raises(MissingTableError, match=r"'wte\.wieght'") as caught:
        checkpoint.table(tensor="wte.wieght")
    assert "wte.weight" in caught.value.hint
    with pytest.raises(MissingTableError) as caught:
        opened(tmp_path / "empty", {}).find_tensor("wte.weight")
    assert "no tensors" in caught.value.hint


def test_a_role_that_is_none_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="role must be one of"):
        opened(tmp_path, TENSORS).table("outptu")


def test_a_table_is_opened_once(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, TENSORS, GPT2)
    assert checkpoint.table() is checkpoint.table("input")
    assert checkpoint.table("position") is not checkpoint.table()


# --- files that are missing or broken ------------------------------------------------------------------------


def partial(
    folder: Path, present: dict[str, Stored], missing: dict[str, Stored], config: dict[str, Any]
) -> Checkpoint:
    files = shards({FIRST: present, SECOND: missing})
    del files[SECOND]
    return open_checkpoint(write(folder, {**files, "config.json": config}))


def test_the_table_in_a_shard_that_is_there_answers_with_a_warning(tmp_path: Path) -> None:
    checkpoint = partial(tmp_path, {"wte.weight": TABLE}, {"h.0.ln_1.weight": TABLE[0]}, GPT2)
    np.testing.assert_array_equal(checkpoint.table().rows([3]), TABLE[[3]])
    assert any(SECOND in warning for warning in checkpoint.warnings)
    assert checkpoint.found.tied is True, "the index tells that no head is missing"


def test_the_table_in_a_shard_that_is_missing_is_said_to_be_there(tmp_path: Path) -> None:
    checkpoint = partial(tmp_path, {"h.0.ln_1.weight": TABLE[0]}, {"wte.weight": TABLE}, GPT2)
    with pytest.raises(UnknownFamilyError, match=SECOND):
        checkpoint.table()


@pytest.mark.parametrize(
    "head", ["lm_head.weight", "model.lm_head.weight", "output.weight", "embed_out.weight"]
)
def test_a_head_in_a_missing_shard_is_not_called_tied(tmp_path: Path, head: str) -> None:
    checkpoint = partial(tmp_path, {"wte.weight": TABLE, "wpe.weight": TABLE[:3]}, {head: OTHER}, GPT2)
    assert checkpoint.found.tied is None
    assert any("missing" in note for note in checkpoint.found.notes)
    with pytest.raises(MissingTableError, match=SECOND):
        checkpoint.table("output")


def test_without_an_index_nobody_knows_what_a_missing_shard_holds(tmp_path: Path) -> None:
    write(tmp_path, {FIRST: safetensors(TENSORS), "config.json": GPT2})
    assert open_checkpoint(tmp_path).found.tied is None


def test_a_file_cut_short_answers_from_its_header_and_refuses_values_until_it_is_told(tmp_path: Path) -> None:
    data = safetensors({"wte.weight": TABLE, "wpe.weight": TABLE[:3]})
    write(tmp_path, {MODEL: data[:-5], "config.json": GPT2})
    checkpoint = open_checkpoint(tmp_path)
    assert inspect_embed.info(checkpoint).tables.input is not None
    assert any("cut short" in warning for warning in checkpoint.warnings)
    with pytest.raises(DamagedFileError, match="cut short"):
        checkpoint.table().rows([0])
    allowed = open_checkpoint(tmp_path, allow_partial=True)
    np.testing.assert_array_equal(allowed.table().rows([0]), TABLE[[0]])
    with pytest.raises(DamagedFileError, match=r"wpe\.weight"):
        allowed.table("position").rows([2])


@pytest.mark.parametrize("content", [b"{", b"version https://git-lfs.github.com/spec/v1\nsize 5\n", b"\xff"])
def test_a_damaged_tokenizer_stops_no_question_that_needs_none(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, {MODEL: safetensors(TENSORS), "config.json": GPT2, "tokenizer.json": content})
    checkpoint = open_checkpoint(tmp_path)
    found = inspect_embed.neighbors(checkpoint, ["id:0"], k=1)
    assert found.results[0].id == 0
    assert any("tokenizer.json" in warning for warning in checkpoint.warnings)
    with pytest.raises(TokenError, match=r"tokenizer\.json"):
        inspect_embed.neighbors(checkpoint, ["girl"])
    with pytest.raises(DamagedFileError):
        _ = open_checkpoint(tmp_path, tokenizer=tmp_path / "tokenizer.json").vocabulary


def test_without_a_tokenizer_the_error_says_what_there_is_instead(tmp_path: Path) -> None:
    write(tmp_path, {MODEL: safetensors(TENSORS), "tokenizer.model": b"\n\x07"})
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.vocabulary is None
    assert "tokenizer.model" in checkpoint.vocabulary_absence
    with pytest.raises(TokenError, match=r"tokenizer\.model"):
        checkpoint.table().labels.find("girl")


def test_a_tokenizer_named_beside_the_checkpoint_takes_the_place_of_its_own(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", TENSORS, GPT2, tuple("abcdef"))
    write(tmp_path / "t", {"tokenizer.json": words(*"uvwxyz")})
    assert open_checkpoint(folder).table().labels.find("c").row == 2
    for tokenizer in (tmp_path / "t", str(tmp_path / "t" / "tokenizer.json")):
        checkpoint = open_checkpoint(folder, tokenizer)
        assert checkpoint.vocabulary_absence == ""
        assert checkpoint.table().labels.find("w").row == 2


# --- facts ---------------------------------------------------------------------------------------------------


def test_shapes_are_written_as_people_write_them() -> None:
    assert [shape_text(shape) for shape in ((50257, 768), (5,), ())] == ["50,257 x 768", "5", "scalar"]


def test_the_facts_of_a_table_are_one_line(tmp_path: Path) -> None:
    facts = TableFacts.of(opened(tmp_path, TENSORS).table())
    assert facts == TableFacts("input", "wte.weight", (6, 4), "F32")
    assert str(facts) == "input table wte.weight 6 x 4 F32"
