"""Which tokens a text can reach: tokenizers whose unreachable tokens are known by construction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inspect_embed.errors import TokenError
from inspect_embed.storage.local import LocalFolder
from inspect_embed.vocabularies import open_vocabulary
from inspect_embed.vocabularies._reach import find_reach, holds_impossible_byte

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def reach(folder: Path, tokenizer: dict[str, Any]) -> dict[str, str]:
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    vocabulary = open_vocabulary(LocalFolder(folder))
    assert vocabulary is not None
    found = find_reach(vocabulary)
    assert list(found) == list(vocabulary.ids())
    return {vocabulary.token(id_).raw: way for id_, way in found.items()}  # type: ignore[union-attr]


def test_a_merge_that_another_one_forestalls_is_never_made(tmp_path: Path) -> None:
    words = ["a", "b", "c", "Ġ", "ab", "bc", "abc", "Ġa", "Ä", "<end>"]
    found = reach(
        tmp_path,
        {
            "pre_tokenizer": BYTE_LEVEL,
            "decoder": BYTE_LEVEL,
            "added_tokens": [
                {
                    "id": 9,
                    "content": "<end>",
                    "special": True,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                }
            ],
            "model": {
                "type": "BPE",
                "vocab": {word: id_ for id_, word in enumerate(words)},
                # "a b" comes first, so that "abc" is cut to "ab" and "c": no text is cut to "abc".
                "merges": [["a", "b"], ["b", "c"], ["a", "bc"], ["Ġ", "a"]],
            },
        },
    )
    assert found == {
        **dict.fromkeys(["a", "b", "c", "Ġ", "ab", "bc", "Ġa"], "text"),
        "abc": "unreachable",
        "Ä": "partial UTF-8",
        "<end>": "special",
    }


def test_a_piece_that_continues_a_word_is_reached_behind_a_letter(tmp_path: Path) -> None:
    words = ["[UNK]", "[unused0]", "a", "b", "##b", "x", "##ing", "ing", "##!", "!", "Q"]
    found = reach(
        tmp_path,
        {
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {word: id_ for id_, word in enumerate(words)},
            },
        },
    )
    reached = {"a", "b", "##b", "x", "##ing", "ing", "!"}
    assert {word for word, way in found.items() if way == "text"} - {"[UNK]"} == reached
    # A sign is a word of its own, a capital is made small, and brackets are cut away from what they hold.
    assert found["##!"] == found["Q"] == found["[unused0]"] == "unreachable"


def test_byte_tokens_of_letters_that_are_tokens_are_out_of_reach(tmp_path: Path) -> None:
    words = ["<unk>", "▁", "a", "b", "▁a", "<0x61>", "<0x0A>", "<0xC3>", "<0xFF>"]
    found = reach(
        tmp_path,
        {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Prepend", "prepend": "▁"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                ],
            },
            "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            "model": {
                "type": "BPE",
                "unk_token": "<unk>",
                "fuse_unk": True,
                "byte_fallback": True,
                "vocab": {word: id_ for id_, word in enumerate(words)},
                "merges": [["▁", "a"]],
            },
        },
    )
    assert found["▁a"] == found["a"] == found["b"] == found["<0x0A>"] == "text"
    assert found["<0x61>"] == "unreachable"
    assert found["<0xC3>"] == found["<0xFF>"] == "partial UTF-8"


def test_a_tokenizer_that_the_library_cannot_use_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match="not known"):
        reach(tmp_path, {"normalizer": {"type": "Nonsense"}, "model": {"type": "BPE", "vocab": {"a": 0}}})


@pytest.mark.parametrize(
    ("data", "impossible"),
    [(b"abc", False), (b"\xc3", False), (b"\xf4", False), (b"\xc0", True), (b"a\xf5", True), (b"\xff", True)],
)
def test_bytes_that_utf8_does_not_use(data: bytes, impossible: bool) -> None:
    assert holds_impossible_byte(data) is impossible
