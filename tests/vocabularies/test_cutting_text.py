"""How a text is cut: as the tokenizers library cuts it, with the file's ids and nothing added."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizer_makers import LLAMA_PARTS, TRAINED, added_token, as_json, from_json, from_tokenizer

from inspect_embed.errors import TokenError

TEXTS = [
    "The girl saw Lily, and the boy ran to the park.",
    "naïve café: 3 girls!",
    "  two  spaces ",
    "a\nb\n\n",
    "",
    "Max said no no no",
]


@pytest.mark.parametrize("kind", TRAINED)
@pytest.mark.parametrize("text", TEXTS)
def test_as_the_library_cuts_it(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind]()
    vocabulary = from_tokenizer(tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    assert vocabulary.cut(text) == tokenizer.encode(text, add_special_tokens=False).ids
    assert vocabulary.can_cut
    assert vocabulary.cut_problem == ""


def test_padding_truncation_and_special_tokens_are_off() -> None:
    content = as_json(
        {"[UNK]": 0, "[CLS]": 1, "a": 2, "b": 3, "[PAD]": 4},
        kind="WordLevel",
        pre_tokenizer={"type": "Whitespace"},
        padding={
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 4,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        truncation={"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        post_processor={
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}},
        },
    )
    vocabulary = from_json(content)
    assert vocabulary.cut("a b a b a b") == [2, 3, 2, 3, 2, 3]
    assert vocabulary.cut("a") == [2]


def test_dropout_is_off() -> None:
    """A tokenizer saved with dropout cuts at random: here most merges would fail."""
    content = as_json({"a": 0, "b": 1, "ab": 2}, merges=["a b"], model={"dropout": 0.9})
    vocabulary = from_json(content)
    assert {tuple(vocabulary.cut("ab")) for _ in range(30)} == {(2,)}


@pytest.mark.parametrize("kind", ["byte-level BPE", "BPE with ▁", "Unigram"])
@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("·girl", " girl"),
        ("Ġgirl", " girl"),
        ("▁girl", " girl"),
        ("Lily·girl", "Lily·girl"),
        ("The ·girl ·saw", "The girl saw"),
        ("a · b", "a · b"),
        ("_girl", "_girl"),
        (r"a\nb", r"a\nb"),
    ],
)
def test_marks_are_translated_where_they_lead_a_word(kind: str, typed: str, plain: str) -> None:
    tokenizer = TRAINED[kind]()
    vocabulary = from_tokenizer(tokenizer)
    assert vocabulary.cut(typed) == tokenizer.encode(plain, add_special_tokens=False).ids


def test_a_mark_alone_is_a_space() -> None:
    vocabulary = from_tokenizer(TRAINED["byte-level BPE"]())
    assert vocabulary.cut("··") == vocabulary.cut("  ")


def test_a_leading_space_is_not_doubled_by_a_tokenizer_that_puts_one_first() -> None:
    content = as_json({"▁": 0, "a": 1, "▁a": 2}, merges=["▁ a"], model={"unk_token": None}, **LLAMA_PARTS)
    vocabulary = from_json(content)
    assert vocabulary.cut("a a") == [2, 2]
    assert vocabulary.cut("·a a") == vocabulary.cut(" a a") == [2, 2]


def test_ids_are_the_file_s_where_the_library_numbers_anew() -> None:
    added = [added_token("<x>", 50), added_token("<y>", 40, special=False)]
    vocabulary = from_json(as_json({"a": 3, "b": 7}, added=added))
    assert vocabulary.cut("a<y>b<x>") == [3, 40, 7, 50]
    assert [note for note in vocabulary.notes if "other ids" in note]


def test_an_unknown_piece_is_the_unknown_token_of_the_file() -> None:
    content = as_json([["a", -1.0], ["<unk>", 0.0]], kind="Unigram", model={"unk_id": 1})
    assert from_json(content).cut("aba") == [0, 1, 0]


REFUSED: dict[str, dict[str, Any]] = {
    "a merge of a token that is not there": as_json({"girl": 0}, merges=["gi rl"]),
    "merges of another shape": as_json({"girl": 0}, merges=[["a", "b", "c"]]),
    "a panic": as_json({"girl": 0}, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "a broken expression": as_json(
        {"girl": 0},
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "((("}, "behavior": "Isolated", "invert": False},
    ),
    "an unknown component": as_json({"girl": 0}, pre_tokenizer={"type": "FromTheFuture"}),
    "an unknown model": as_json({"girl": 0}, kind="Mind"),
    "a lone surrogate": as_json({"girl": 0, "\ud800": 1}),
    "a number that is too high": as_json({"girl": 0}, added=[{"id": 2**40, "content": "x"}]),
    "merges that lack the mark of inner pieces": as_json(
        {"girl": 0, "é": 1, "b": 2}, merges=["b é"], model={"continuing_subword_prefix": "#"}
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_the_library_refuses_still_name_tokens(
    case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    vocabulary = from_json(REFUSED[case])
    assert vocabulary.find("girl").id == 0
    assert not vocabulary.can_cut
    assert vocabulary.cut_problem.isprintable()
    with pytest.raises(TokenError, match="No text can be cut") as caught:
        vocabulary.cut("girl")
    assert caught.value.hint
    assert capfd.readouterr() == ("", ""), "the library's own messages are not for users"


def test_merges_as_pairs_and_as_strings_are_read_alike() -> None:
    for merges in (["a b"], [["a", "b"]]):
        vocabulary = from_json(as_json({"a": 0, "b": 1, "ab": 2}, merges=merges))
        assert vocabulary.find("ab").id == 2
        assert vocabulary.cut("ab") == [2]


def test_parts_that_have_no_say_do_not_stop_a_cut() -> None:
    """A decoder that this version of the library does not know says nothing of how text is cut."""
    content = as_json({"a": 0, "b": 1, "ab": 2}, merges=["a b"], decoder={"type": "FromTheFuture"})
    assert from_json(content).cut("ab") == [2]


def test_standard_error_is_given_back(capfd: pytest.CaptureFixture[str]) -> None:
    vocabulary = from_json(REFUSED["a panic"])
    assert not vocabulary.can_cut
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


def test_closed_standard_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(REFUSED["a panic"]), encoding="utf-8")
    code = (
        "import os, sys\n"
        "os.close(2)\n"
        "from inspect_embed.vocabularies import open_vocabulary\n"
        "from inspect_embed.storage.memory import MemoryFolder\n"
        "print(open_vocabulary(MemoryFolder({}), sys.argv[1]).can_cut)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, check=True)
    assert done.stdout.strip() == b"False"


def test_text_that_is_no_text() -> None:
    vocabulary = from_tokenizer(TRAINED["byte-level BPE"]())
    with pytest.raises(TokenError):
        vocabulary.cut("\ud800")


def test_a_vocabulary_whose_unknown_token_is_missing() -> None:
    vocabulary = from_json(as_json({"a": 0}, kind="WordLevel", pre_tokenizer={"type": "Whitespace"}))
    assert vocabulary.cut("a a") == [0, 0]
    with pytest.raises(TokenError, match="cannot cut this text"):
        vocabulary.cut("b")


def test_byte_level_parts_in_a_sequence_are_seen() -> None:
    parts = {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": r"\s?\w+"}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        }
    }
    vocabulary = from_json(as_json({"Ġ": 0, "a": 1, "Ġa": 2}, merges=["Ġ a"], **parts))
    assert vocabulary.model == "byte-level BPE"
    assert vocabulary.cut("a·a a") != []
    assert vocabulary.cut("a a") == [1, 2]
