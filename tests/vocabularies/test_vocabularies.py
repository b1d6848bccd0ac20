"""Which vocabulary a folder has, and the facts about any vocabulary."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizer_makers import (
    BYTE_LEVEL_PARTS,
    TRAINED,
    added_token,
    as_json,
    from_files,
    from_json,
    from_tokenizer,
)

from inspect_embed import vocabularies
from inspect_embed.errors import DamagedFileError, NotACheckpointError, TokenError
from inspect_embed.spelling import parse
from inspect_embed.storage.memory import MemoryFolder
from inspect_embed.vocabularies import explain_absence, open_vocabulary

TOKENIZER = json.dumps(as_json({"from_tokenizer_json": 0}, kind="WordLevel"))
VOCAB = json.dumps({"from_vocab_json": 0, "b": 1})


def test_every_module_is_listed() -> None:
    folder = Path(vocabularies.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert modules == set(vocabularies.VOCABULARIES)
    files = [name for reader in vocabularies._readers() for name in reader.FILES]
    assert files == ["tokenizer.json", "vocab.json", "vocab.txt"]


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({"tokenizer.json": TOKENIZER, "vocab.json": VOCAB, "vocab.txt": "t"}, "tokenizer.json"),
        ({"vocab.json": VOCAB, "vocab.txt": "t"}, "vocab.json"),
        ({"vocab.txt": "t", "tokenizer.model": "x"}, "vocab.txt"),
    ],
)
def test_order_of_preference(files: dict[str, str], source: str) -> None:
    assert from_files(files).source == source


def test_no_vocabulary() -> None:
    folder = MemoryFolder({"config.json": b"{}"})
    assert open_vocabulary(folder) is None
    assert explain_absence(folder) == "There is no tokenizer.json, vocab.json or vocab.txt."


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tokenizer.model", "SentencePiece"),
        ("spiece.model", "SentencePiece"),
        ("source.spm", "SentencePiece"),
        ("qwen.tiktoken", "tiktoken"),
        ("tekken.json", "Tekken"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, kind: str, tmp_path: Path) -> None:
    folder = MemoryFolder({name: b"\x00", "config.json": b"{}"})
    assert open_vocabulary(folder) is None
    assert name in explain_absence(folder)
    assert kind in explain_absence(folder)
    (tmp_path / name).write_bytes(b"\x00")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(NotACheckpointError, match=name) as caught:
            open_vocabulary(MemoryFolder({}), path)
        assert "--tokenizer" in caught.value.hint


def test_a_damaged_file_gives_way_to_the_next_with_a_note() -> None:
    vocabulary = from_files({"tokenizer.json": TOKENIZER[:40], "vocab.json": VOCAB})
    assert vocabulary.source == "vocab.json"
    assert any("tokenizer.json is not JSON" in note and "vocab.json" in note for note in vocabulary.notes)
    with pytest.raises(DamagedFileError, match=r"tokenizer\.json"):
        from_files({"tokenizer.json": TOKENIZER[:40]})


def test_a_pointer_to_a_file_is_not_the_file() -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 17\n"
    with pytest.raises(DamagedFileError, match="git-lfs pointer"):
        from_files({"tokenizer.json": pointer})


def test_tokenizer_by_path(tmp_path: Path) -> None:
    """A file is known by what it holds, whatever it is called."""
    nothing = MemoryFolder({"tokenizer.json": TOKENIZER.encode()})
    for name, text, expected in [
        ("my_tokenizer_config.json", TOKENIZER, "from_tokenizer_json"),
        ("ids.json", json.dumps({"from_vocab_json": 0, "model": 1, "vocab": 2}), "from_vocab_json"),
        ("words.txt", "from_list\n", "from_list"),
    ]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        vocabulary = open_vocabulary(nothing, tmp_path / name)
        assert vocabulary is not None
        assert (vocabulary.source, vocabulary.find(expected).id) == (name, 0)
    (tmp_path / "tokenizer.json").write_text(TOKENIZER, encoding="utf-8")
    vocabulary = open_vocabulary(MemoryFolder({}), str(tmp_path))
    assert vocabulary is not None
    assert vocabulary.source == "tokenizer.json"


def test_tokenizer_path_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\x00" * 9)
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(NotACheckpointError):
            open_vocabulary(MemoryFolder({}), path)
    with pytest.raises((NotACheckpointError, DamagedFileError), match=r"weights\.bin"):
        open_vocabulary(MemoryFolder({}), tmp_path / "weights.bin")


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf" + TOKENIZER.encode()])
def test_byte_order_mark(data: bytes) -> None:
    vocabulary = from_files({"tokenizer.json": data})
    assert vocabulary.find("from_tokenizer_json").id == 0
    vocabulary = from_files({"vocab.txt": b"\xef\xbb\xbfthe\r\ngirl\r\n"})
    assert [vocabulary.label(id_) for id_ in vocabulary.ids()] == ["the", "girl"]


def test_files_are_utf_8_under_any_locale(tmp_path: Path) -> None:
    content = as_json({"girl": 7, "Ġgirl": 8}, **BYTE_LEVEL_PARTS)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    code = (
        "import sys, locale\n"
        "locale.getpreferredencoding = lambda *_: 'cp1252'\n"
        "from inspect_embed.vocabularies import open_vocabulary\n"
        "from inspect_embed.storage.memory import MemoryFolder\n"
        "v = open_vocabulary(MemoryFolder({}), sys.argv[1])\n"
        "print(v.find(sys.argv[2]).id, ascii(v.find(sys.argv[2]).token.raw))"
    )
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", code, str(tmp_path), "Ġgirl"]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout.split() == [b"8", b"'\\u0120girl'"], done.stderr


def test_opening_and_looking_up_load_no_library(tmp_path: Path) -> None:
    content = as_json({"girl": 7, "Ġgirl": 8}, **BYTE_LEVEL_PARTS)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    code = (
        "import sys\n"
        "from inspect_embed.vocabularies import open_vocabulary\n"
        "from inspect_embed.storage.memory import MemoryFolder\n"
        "v = open_vocabulary(MemoryFolder({}), sys.argv[1])\n"
        "v.find('·girl'), v.label(7), v.ids(), v.notes\n"
        "print([name for name in ('tokenizers', 'numpy', 'difflib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("kind", TRAINED)
def test_ids_and_spellings_are_the_library_s(kind: str) -> None:
    tokenizer = TRAINED[kind]()
    vocabulary = from_tokenizer(tokenizer)
    expected = tokenizer.get_vocab(with_added_tokens=True)
    assert list(vocabulary.ids()) == sorted(expected.values())
    assert vocabulary.n_tokens == tokenizer.get_vocab_size(with_added_tokens=True)
    for raw, id_ in expected.items():
        token = vocabulary.token(id_)
        assert token is not None
        assert (token.id, token.raw) == (id_, raw)
        assert vocabulary.label(id_) == token.text
        assert vocabulary.find(f"raw:{raw}").id == id_
        assert vocabulary.find(f"id:{id_}").token == token
        assert id_ in vocabulary
    assert vocabulary.notes == ()
    assert vocabulary.holes == vocabulary.duplicates == ()


@pytest.mark.parametrize("kind", TRAINED)
def test_every_token_is_found_by_the_text_it_is_shown_with(kind: str) -> None:
    vocabulary = from_tokenizer(TRAINED[kind]())
    for id_ in vocabulary.ids():
        assert vocabulary.find(vocabulary.label(id_)).id == id_


@pytest.mark.parametrize("kind", TRAINED)
def test_bytes_are_the_text_that_the_library_decodes(kind: str) -> None:
    """All tokens of a cut, joined, are the text: with a space before each word, where tokens tell no better."""
    tokenizer = TRAINED[kind]()
    vocabulary = from_tokenizer(tokenizer)
    text = "the girl saw a big red ball"
    joined = b"".join(vocabulary.bytes_of(id_) or b"" for id_ in vocabulary.cut(text))
    assert joined.decode().strip() == text


@pytest.mark.parametrize("kind", TRAINED)
def test_a_space_led_girl_is_the_same_bytes_in_every_kind(kind: str) -> None:
    vocabulary = from_tokenizer(TRAINED[kind]())
    found = {vocabulary.find(typed).id for typed in ("·girl", "Ġgirl", "▁girl", " girl")}
    assert len(found) == 1
    assert vocabulary.bytes_of(found.pop()) == b" girl"
    assert vocabulary.ids_of_bytes[b" girl"] == [vocabulary.find("·girl").id]


def test_labels_are_told_apart_and_no_token_is_lost() -> None:
    """Byte tokens and space-led tokens decode to the same text; neither hides the other."""
    content = as_json({"<0x0A>": 1, "▁A": 2, "A": 5, "<0x41>": 6})
    vocabulary = from_json(content)
    assert [vocabulary.label(id_) for id_ in (1, 2, 5, 6)] == ["<0x0A>", "·A", "A", "<0x41>"]
    assert [vocabulary.bytes_of(id_) for id_ in (1, 2, 5, 6)] == [b"\n", b" A", b"A", b"A"]
    assert vocabulary.ids_of_bytes[b"A"] == [5, 6]
    found = vocabulary.find("A")
    assert found.id == 5
    assert "·A (id 2)" in found.notes[0]
    assert "<0x41> (id 6)" in found.notes[0]
    assert vocabulary.find("<0x41>").id == 6
    assert vocabulary.find(r"\n").id == 1


def test_holes_duplicates_and_counts_are_separate_facts() -> None:
    content = as_json({"a": 0, "b": 1, "d": 3}, added=[added_token("a", 0)])
    vocabulary = from_json(content)
    assert list(vocabulary.ids()) == [0, 1, 3]
    assert (vocabulary.n_tokens, vocabulary.max_id) == (3, 3)
    assert vocabulary.holes == (range(2, 3),)
    assert vocabulary.duplicates == ()
    assert vocabulary.label(2) == "no token"
    assert vocabulary.token(2) is None
    assert vocabulary.bytes_of(2) is None
    assert 2 not in vocabulary
    assert vocabulary.find("d").id == 3


def test_tokens_that_share_an_id() -> None:
    vocabulary = from_json(as_json({"a": 0, "b": 1, "c": 1}, added=[added_token("<x>", 0)]))
    assert vocabulary.duplicates == (0, 1)
    assert vocabulary.n_tokens == 2
    assert vocabulary.label(1) == "b"
    assert [vocabulary.find(word).id for word in ("a", "b", "c", "<x>")] == [0, 1, 1, 0]
    assert any("0, 1" in note for note in vocabulary.notes)


def test_rows_and_tokens_that_do_not_match() -> None:
    vocabulary = from_json(as_json({f"t{n}": n for n in range(5)}))
    assert vocabulary.gaps(8) == (range(5, 8),)
    assert vocabulary.gaps(5) == vocabulary.gaps(4) == ()
    assert vocabulary.beyond(4) == [4]
    assert vocabulary.beyond(5) == vocabulary.beyond(8) == []
    sparse = from_json(as_json({"a": 1, "b": 4, "c": 5}))
    assert sparse.gaps(9) == (range(1), range(2, 4), range(6, 9))
    assert sparse.gaps(5) == (range(1), range(2, 4))


def test_highest_ids_cost_nothing() -> None:
    vocabulary = from_json(as_json({"a": 0, "b": 2**32 - 1}))
    assert vocabulary.holes == (range(1, 2**32 - 1),)
    assert vocabulary.n_tokens == 2


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("[unused7]", "unused"),
        ("<unused12>", "unused"),
        ("<|reserved_special_token_3|>", "unused"),
        ("[PAD151645]", "unused"),
        ("<|endoftext|>", "special"),
        ("<tool>", "added"),
        ("Ġgirl", "word-start"),
        ("girl", "inner"),
        ("ä", "byte"),
    ],
)
def test_kinds(raw: str, kind: str) -> None:
    added = [added_token("<|endoftext|>", 90), added_token("<tool>", 91, special=False)]
    added += [added_token(raw, 92)] if kind == "unused" else []
    vocabulary = from_json(as_json({"Ġgirl": 0, "girl": 1, "ä": 2}, added=added, **BYTE_LEVEL_PARTS))
    token = vocabulary.find(f"raw:{raw}").token
    assert token is not None
    assert token.kind == kind


@pytest.mark.parametrize(
    "content",
    [
        "\u0000",
        "\u001b",
        "\n",
        "",
        "\ud800",
        "[/INST]",
        "[bold]",
        ":smile:",
        "$$",
        "null",
        "NaN",
        '"',
        "a b",
        "·x",
    ],
)
@pytest.mark.parametrize("added", [False, True])
def test_odd_tokens_keep_every_character_and_show_no_control(content: str, added: bool) -> None:
    vocab = {"ordinary": 0} if added else {"ordinary": 0, content: 1}
    vocabulary = from_json(as_json(vocab, added={content: 1} if added else {}))
    label = vocabulary.label(1)
    assert label
    assert label.isprintable()
    assert parse(label) == content.encode(errors="surrogatepass")
    assert vocabulary.find(label).id == 1


def test_added_tokens_stand_for_their_own_characters() -> None:
    """In them no sign is a byte or a space of the vocabulary's alphabet."""
    vocabulary = from_json(
        as_json({"Ġ": 0, "Ã©": 1}, added={"é": 2, "  ": 3, "<｜x▁y｜>": 4}, **BYTE_LEVEL_PARTS)
    )
    assert [vocabulary.label(id_) for id_ in (1, 2, 3, 4)] == ["é", "é", "··", "<｜x▁y｜>"]
    assert vocabulary.find("é").id == 1
    assert "id 2" in vocabulary.find("é").notes[0]
    assert vocabulary.find("··").id == 3
    assert vocabulary.find("<｜x▁y｜>").id == 4


def test_examples() -> None:
    results = doctest.testmod(vocabularies)
    assert results.attempted
    assert not results.failed


def test_grep() -> None:
    vocabulary = from_tokenizer(TRAINED["byte-level BPE"]())
    texts = [token.text for token in vocabulary.grep("^·?girl$")]
    assert sorted(texts) == ["girl", "·girl"]
    ids = [token.id for token in vocabulary.grep("")]
    assert ids == list(vocabulary.ids())
    for pattern in ("(", "[", "a{99999999999999}", "*"):
        with pytest.raises(TokenError, match="regular expression"):
            vocabulary.grep(pattern)
