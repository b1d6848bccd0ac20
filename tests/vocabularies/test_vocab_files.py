"""The older files: vocab.json with merges.txt and without, vocab.txt, and what stands beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizer_makers import SENTENCES, TRAINED, from_files
from tokenizers import ByteLevelBPETokenizer, Tokenizer

from inspect_embed.errors import DamagedFileError, NotOneTokenError, TokenError, UnknownTokenError

TEXTS = [*dict.fromkeys(SENTENCES), "  the   girl ", "Girls' café №5"]


def split(tokenizer: Tokenizer, folder: Path) -> dict[str, bytes]:
    """The older files of a trained model."""
    names = [Path(name) for name in tokenizer.model.save(str(folder))]
    return {path.name: path.read_bytes() for path in names}


def test_gpt2_files(tmp_path: Path) -> None:
    """Against the library's own reader of these two files."""
    files = split(TRAINED["byte-level BPE"](), tmp_path)
    assert set(files) == {"vocab.json", "merges.txt"}
    vocabulary = from_files(files)
    assert vocabulary.model == "byte-level BPE"
    theirs = ByteLevelBPETokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"), add_prefix_space=False
    )
    for text in TEXTS:
        assert vocabulary.cut(text) == theirs.encode(text).ids
    assert vocabulary.find("·girl").id != vocabulary.find("girl").id
    token = vocabulary.find("<|endoftext|>").token
    assert token is not None
    assert token.kind == "special"
    assert vocabulary.cut("a<|endoftext|>")[-1] == token.id


def test_a_space_put_first_is_stated_beside(tmp_path: Path) -> None:
    files = split(TRAINED["byte-level BPE"](), tmp_path)
    config = {"tokenizer_config.json": b'{"add_prefix_space": true}'}
    plain, spaced = from_files(files), from_files(files | config)
    assert spaced.cut("girl") == plain.cut(" girl") != plain.cut("girl")


@pytest.mark.parametrize("kind", ["BPE with </w>", "byte-level BPE with </w>"])
def test_files_with_a_mark_that_ends_words(kind: str, tmp_path: Path) -> None:
    tokenizer = TRAINED[kind]()
    vocabulary = from_files(split(tokenizer, tmp_path))
    assert vocabulary.marks.end == "</w>"
    text = "the girl saw a big red ball"
    assert vocabulary.cut(text) == tokenizer.encode(text).ids
    assert vocabulary.find("·girl").token == vocabulary.find("girl</w>").token


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_word_piece_list(line_end: str, tmp_path: Path) -> None:
    tokenizer = TRAINED["WordPiece"]()
    files = split(tokenizer, tmp_path)
    text = files["vocab.txt"].decode().replace("\n", line_end)
    vocabulary = from_files({"vocab.txt": text})
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for sentence in TEXTS:
        assert vocabulary.cut(sentence) == tokenizer.encode(sentence, add_special_tokens=False).ids
    assert vocabulary.model == "WordPiece"
    assert vocabulary.find("·girl").id == vocabulary.find("girl").id == tokenizer.token_to_id("girl")
    token = vocabulary.find("[CLS]").token
    assert token is not None
    assert token.kind == "special"


@pytest.mark.parametrize(
    ("tokens", "config", "drops", "noted"),
    [
        (["[UNK]", "girl", "##s"], None, True, True),
        (["[UNK]", "girl", "##s", "Girl"], None, False, True),
        (["[UNK]", "girl", "##s", "Girl"], {"do_lower_case": True}, True, False),
        (["[UNK]", "girl", "##s"], {"do_lower_case": False}, False, False),
        (["[UNK]", "girl", "##s"], {"do_lower_case": "no"}, True, True),
    ],
)
def test_whether_case_is_dropped(
    tokens: list[str], config: dict[str, object] | None, drops: bool, noted: bool
) -> None:
    files = {"vocab.txt": "\n".join(tokens)}
    if config is not None:
        files["tokenizer_config.json"] = json.dumps(config)
    vocabulary = from_files(files)
    assert vocabulary.cut("GIRLs") == ([1, 2] if drops else [0])
    assert any("case" in note for note in vocabulary.notes) == noted


def test_accents_are_kept_where_the_config_says_so() -> None:
    files = {"vocab.txt": "[UNK]\ncafe\n##s\ncafé"}
    keeps = files | {"tokenizer_config.json": '{"do_lower_case": true, "strip_accents": false}'}
    assert (from_files(files).cut("Café"), from_files(keeps).cut("Café")) == ([1], [3])


def test_only_line_feeds_part_tokens() -> None:
    odd = ["a", "\u2028", "b\x0bc", "\x85", "", "d", "d"]
    vocabulary = from_files({"vocab.txt": "\n".join(odd) + "\n"})
    assert vocabulary.n_tokens == len(odd)
    assert vocabulary.find(r"\u2028").id == 1
    assert vocabulary.label(4) == r"\&"
    assert vocabulary.find("d").id == 5
    assert "id 6" in vocabulary.find("d").notes[0]


def test_a_list_of_words_names_tokens_and_cuts_nothing() -> None:
    vocabulary = from_files({"vocab.txt": "the\ngirl\nsaw"})
    assert vocabulary.find("·girl").id == vocabulary.find("girl").id == 1
    assert vocabulary.bytes_of(1) == b" girl"
    with pytest.raises(TokenError, match="does not say how text is cut"):
        vocabulary.cut("the girl")


def test_ids_without_merges_name_tokens_and_cut_nothing() -> None:
    vocabulary = from_files({"vocab.json": json.dumps({"girl": 0, "Ġgirl": 1})})
    assert (vocabulary.find("girl").id, vocabulary.find("·girl").id) == (0, 1)
    assert not vocabulary.can_cut
    assert "merges.txt" in vocabulary.cut_problem
    with pytest.raises(UnknownTokenError, match="girls") as caught:
        vocabulary.find("girls")
    assert "girl (id 0)" in caught.value.hint


def test_sentencepiece_ids_are_read_and_not_cut() -> None:
    files = {"vocab.json": json.dumps({"▁girl": 0, "girl": 1}), "merges.txt": "g i\n"}
    vocabulary = from_files(files)
    assert vocabulary.find("·girl").id == 0
    assert not vocabulary.can_cut


def test_tokens_that_are_added_beside() -> None:
    files = {
        "vocab.json": json.dumps({"a": 0, "Ġa": 1, "<s>": 2}),
        "merges.txt": "#version: 0.2\nĠ a\n",
        "added_tokens.json": json.dumps({"<tool>": 50, "bad": -1, "worse": "7"}),
        "special_tokens_map.json": json.dumps(
            {"bos_token": "<s>", "additional_special_tokens": ["<tool>", 5]}
        ),
        "tokenizer_config.json": json.dumps(
            {
                "added_tokens_decoder": {
                    "51": {"content": "<end>", "special": True},
                    "x": {"content": "y"},
                    "52": 5,
                }
            }
        ),
    }
    vocabulary = from_files(files)
    assert list(vocabulary.ids()) == [0, 1, 2, 50, 51]
    for word, id_ in {"<s>": 2, "<tool>": 50, "<end>": 51}.items():
        token = vocabulary.find(word).token
        assert token is not None
        assert (token.id, token.kind) == (id_, "special")


def test_added_tokens_are_cut_as_wholes_with_their_own_ids() -> None:
    files = {
        "vocab.json": json.dumps({"a": 0, "Ġ": 1, "Ġa": 2}),
        "merges.txt": "#version: 0.2\nĠ a\n",
        "added_tokens.json": json.dumps({"<tool>": 50}),
    }
    assert from_files(files).cut("a a<tool>a") == [0, 2, 50, 0]


def test_damaged_files_beside_are_named_and_not_used() -> None:
    files = {
        "vocab.json": json.dumps({"a": 0}),
        "tokenizer_config.json": "{",
        "special_tokens_map.json": "[]",
    }
    vocabulary = from_files(files)
    assert vocabulary.find("a").id == 0
    assert any("tokenizer_config.json" in note for note in vocabulary.notes)


def test_merges_of_tokens_that_are_not_there() -> None:
    vocabulary = from_files({"vocab.json": json.dumps({"a": 0, "Ġa": 1}), "merges.txt": "x y\n"})
    assert vocabulary.find("·a").id == 1
    assert "cannot use vocab.json" in vocabulary.cut_problem


def test_a_word_of_several_tokens(tmp_path: Path) -> None:
    vocabulary = from_files(split(TRAINED["byte-level BPE"](), tmp_path))
    with pytest.raises(NotOneTokenError, match="·girl"):
        vocabulary.find("·girlxx")


@pytest.mark.parametrize(
    "text", ["", "[]", "5", "{}", '{"eng": {"a": 0}}', "{", '{"a": 1e999}', '{"a": NaN}']
)
def test_vocab_json_without_ids(text: str) -> None:
    with pytest.raises(DamagedFileError, match=r"vocab\.json"):
        from_files({"vocab.json": text})


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff\xfe", b"\xef\xbb\xbf"])
def test_vocab_txt_without_tokens(data: bytes) -> None:
    with pytest.raises(DamagedFileError, match=r"vocab\.txt"):
        from_files({"vocab.txt": data})
