"""How a tokenizer.json writes spaces and bytes: told by its components, else by its tokens."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizer_makers import BYTE_LEVEL_PARTS, LLAMA_PARTS, added_token, as_json, from_json

from inspect_embed.errors import DamagedFileError
from inspect_embed.spelling import Marks

SEQUENCE = {"type": "Sequence"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
REPLACE_BACK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}

BYTES = Marks(byte_level=True)
SPACE = Marks(space="▁", byte_tokens=True)


@pytest.mark.parametrize(
    ("parts", "marks"),
    [
        (BYTE_LEVEL_PARTS, BYTES),
        ({"decoder": BYTE_LEVEL_PARTS["decoder"]}, BYTES),
        ({"normalizer": {"type": "ByteLevel"}}, BYTES),
        ({"pre_tokenizer": SEQUENCE | {"pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]}}, BYTES),
        ({"pre_tokenizer": METASPACE}, SPACE),
        ({"pre_tokenizer": SEQUENCE | {"pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}}, SPACE),
        ({"decoder": METASPACE}, SPACE),
        (LLAMA_PARTS, SPACE),
        ({"decoder": SEQUENCE | {"decoders": [REPLACE_BACK, {"type": "ByteFallback"}]}}, SPACE),
        ({"pre_tokenizer": METASPACE | {"replacement": "~"}}, Marks(space="~", byte_tokens=True)),
        ({"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}, Marks(end="</w>", byte_tokens=True)),
    ],
)
def test_components_tell(parts: dict[str, Any], marks: Marks) -> None:
    vocabulary = from_json(as_json({"a": 0, "b": 1}, **parts))
    assert vocabulary.marks == marks


@pytest.mark.parametrize(
    ("kind", "model", "marks"),
    [
        ("WordPiece", {}, Marks(inner="##", byte_tokens=True)),
        ("WordPiece", {"continuing_subword_prefix": "@"}, Marks(inner="@", byte_tokens=True)),
        ("WordPiece", {"continuing_subword_prefix": None}, Marks(inner="##", byte_tokens=True)),
        ("BPE", {"continuing_subword_prefix": "##"}, Marks(inner="##", byte_tokens=True)),
        ("BPE", {"end_of_word_suffix": "</w>"}, Marks(end="</w>", byte_tokens=True)),
        ("BPE", {"end_of_word_suffix": ""}, Marks()),
        ("WordLevel", {}, Marks(whole_words=True)),
    ],
)
def test_models_tell(kind: str, model: dict[str, Any], marks: Marks) -> None:
    assert from_json(as_json({"a": 0, "b": 1}, kind=kind, model=model)).marks == marks


@pytest.mark.parametrize(
    ("tokens", "marks"),
    [
        (["girl", "Ġgirl"], BYTES),
        (["girl", "Ġgirl", "<｜begin｜>"], BYTES),
        (["Ġg</w>", "girl</w>"], Marks(byte_level=True, end="</w>")),
        (["girl", "▁girl"], SPACE),
        (["girl</w>", "girl"], Marks(end="</w>")),
        (["girl", "##ing"], Marks(inner="##")),
        (["girl", "<0x41>"], Marks(byte_tokens=True)),
        (["Ġgirl", "ħobż"], Marks()),
        (["girl", "boy"], Marks()),
        (["</w>", "##", "_a"], Marks()),
    ],
)
def test_tokens_tell_where_components_are_silent(tokens: list[str], marks: Marks) -> None:
    assert from_json(as_json({token: n for n, token in enumerate(tokens)})).marks == marks


@pytest.mark.parametrize(
    ("kind", "vocab", "parts", "model"),
    [
        ("BPE", {"a": 0}, BYTE_LEVEL_PARTS, "byte-level BPE"),
        ("BPE", {"a": 0}, LLAMA_PARTS, "BPE"),
        ("Unigram", [["a", 0.0]], {}, "Unigram"),
        ("WordPiece", {"a": 0}, {}, "WordPiece"),
        ("WordLevel", {"a": 0}, {}, "WordLevel"),
    ],
)
def test_model_names(kind: str, vocab: Any, parts: dict[str, Any], model: str) -> None:
    assert from_json(as_json(vocab, kind=kind, **parts)).model == model


@pytest.mark.parametrize(
    ("lacking", "vocab", "more", "model"),
    [
        ("type", {"a": 0}, {"merges": []}, "BPE"),
        ("type", [["a", 0.0]], {}, "Unigram"),
        ("type", {"a": 0}, {"max_input_chars_per_word": 100}, "WordPiece"),
        ("type", {"a": 0}, {}, "WordLevel"),
    ],
)
def test_files_of_early_versions_do_not_state_the_model(
    lacking: str, vocab: Any, more: dict[str, Any], model: str
) -> None:
    content = as_json(vocab, kind="Unigram", model=more)
    del content["model"][lacking]
    assert from_json(content).model == model


@pytest.mark.parametrize(
    "vocab",
    [
        {"a": 0, "b": 1.0, "c": True, "d": None, "e": "1", "f": [1], "g": -1, "h": 2**32, "i": 10**30},
        [["a", 0.0], ["b"], [], None, 5, "xy", {"c": 1, "d": 2}, [1, 2], [None, 0.0]],
    ],
)
def test_entries_that_are_no_tokens_are_left_out_with_a_note(vocab: Any) -> None:
    vocabulary = from_json(as_json(vocab, kind="BPE" if isinstance(vocab, dict) else "Unigram"))
    assert vocabulary.find("a").id == 0
    assert vocabulary.label(0) == "a"
    [note] = vocabulary.notes
    assert "left out" in note
    assert "and" in note
    assert note.isprintable()


def test_a_list_of_pieces_keeps_its_ids_past_an_entry_that_is_none() -> None:
    vocabulary = from_json(as_json([["a", 0.0], None, ["b", 0.0]], kind="Unigram"))
    assert vocabulary.find("b").id == 2
    assert vocabulary.holes == (range(1, 2),)


@pytest.mark.parametrize(
    "added",
    [
        [
            None,
            5,
            "x",
            [],
            {},
            {"id": 3},
            {"content": "x"},
            {"id": "3", "content": "x"},
            {"id": -1, "content": "x"},
        ],
        [{"id": True, "content": "x"}, {"id": 3.0, "content": "\ud800\n"}],
    ],
)
def test_added_tokens_that_are_none_are_left_out_with_a_note(added: list[Any]) -> None:
    vocabulary = from_json(as_json({"a": 0}, added=added))
    assert vocabulary.n_tokens == 1
    [note] = vocabulary.notes
    assert note.startswith(f"{len(added)} entries")
    assert note.isprintable()


@pytest.mark.parametrize("added", [None, {}, 5, "x"])
def test_added_tokens_that_are_no_list(added: Any) -> None:
    content = as_json({"a": 0})
    content["added_tokens"] = added
    assert from_json(content).n_tokens == 1


def test_an_added_token_that_has_another_id_in_the_vocabulary() -> None:
    vocabulary = from_json(as_json({"a": 0, "<x>": 1}, added=[added_token("<x>", 7)]))
    found = vocabulary.find("<x>")
    assert found.id == 1
    assert "id 7" in found.notes[0]
    assert vocabulary.label(7) == "<x>"
    assert any("id 1" in note and "id 7" in note for note in vocabulary.notes)


@pytest.mark.parametrize(
    "content",
    [
        [],
        None,
        5,
        "text",
        {},
        {"model": None},
        {"model": []},
        {"model": {}},
        {"model": {"vocab": None}},
        {"model": {"vocab": "abc"}},
        {"model": {"vocab": {}}},
        {"model": {"vocab": []}},
        {"model": {"vocab": {"a": -1}}},
    ],
)
def test_files_without_a_vocabulary(content: Any) -> None:
    with pytest.raises(DamagedFileError, match=r"tokenizer\.json") as caught:
        from_json(content)
    assert caught.value.hint


def test_added_tokens_alone_are_a_vocabulary() -> None:
    vocabulary = from_json(as_json({}, added={"<x>": 3}))
    assert list(vocabulary.ids()) == [3]
    assert vocabulary.find("<x>").id == 3
