"""What a query names: exact first, then as the tokenizer reads it, never something else in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_makers import (
    BYTE_LEVEL_PARTS,
    LLAMA_PARTS,
    TRAINED,
    added_token,
    as_json,
    from_files,
    from_json,
    from_tokenizer,
    refusal_of,
)

from inspect_embed.errors import NotOneTokenError, TokenError, UnknownTokenError
from inspect_embed.vocabularies import Vocabulary

GPT2_LIKE = as_json(
    {
        "g": 0,
        "i": 1,
        "r": 2,
        "l": 3,
        "Ġ": 4,
        "gi": 5,
        "rl": 6,
        "girl": 7,
        "Ġgirl": 8,
        "Â·": 9,
        "Â": 10,
        "·": 11,
    },
    merges=["g i", "r l", "gi rl", "Ġ girl", "Â ·"],
    added={"<|bos|>": 12},
    post_processor={
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|bos|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [12], "tokens": ["<|bos|>"]}},
    },
    **BYTE_LEVEL_PARTS,
)


def test_a_word_and_the_word_after_a_space_are_two_tokens() -> None:
    vocabulary = from_json(GPT2_LIKE)
    assert vocabulary.find("girl").id == 7
    for typed in ("·girl", "Ġgirl", "▁girl", " girl", "raw:Ġgirl", r"\x20girl", "id:8"):
        assert vocabulary.find(typed).id == 8, typed
    assert vocabulary.find("girl").notes == ("Beside girl (id 7) there is also ·girl (id 8).",)
    assert vocabulary.find("·girl").notes == ("Beside ·girl (id 8) there is also girl (id 7).",)


def test_a_token_that_begins_with_a_real_mark_is_reached_by_its_escape() -> None:
    vocabulary = from_json(GPT2_LIKE)
    assert vocabulary.label(9) == r"\u00b7"
    assert vocabulary.find(r"\u00b7").id == vocabulary.find("raw:Â·").id == 9
    assert vocabulary.find("·").id == 4


def test_an_underscore_is_an_underscore() -> None:
    vocabulary = from_json(as_json({"▁a": 2, "a": 3, "_a": 4}))
    assert [vocabulary.find(typed).id for typed in ("_a", "▁a", " a", "·a", "a")] == [4, 2, 2, 2, 3]


def test_word_piece_begins_words_without_a_mark() -> None:
    vocabulary = from_json(as_json({"[UNK]": 0, "girl": 1, "##ing": 2, "ing": 3, "##s": 4}, kind="WordPiece"))
    assert vocabulary.find("·girl").id == vocabulary.find("girl").id == 1
    assert vocabulary.find("##ing").id == 2
    assert vocabulary.find("ing").id == 3
    assert "##ing (id 2)" in vocabulary.find("ing").notes[0]
    with pytest.raises(UnknownTokenError) as caught:
        vocabulary.find("s")
    assert "##s (id 4)" in caught.value.hint
    with pytest.raises(TokenError):
        vocabulary.find("·##ing")


def test_a_mark_that_ends_words() -> None:
    both = from_json(as_json({"girl": 0, "girl</w>": 1, "s</w>": 2}, model={"end_of_word_suffix": "</w>"}))
    assert (both.label(0), both.label(1)) == ("girl", "girl</w>")
    assert both.find("girl").id == 0
    assert both.find("girl").notes == ("Beside girl (id 0) there is also girl</w> (id 1).",)
    assert both.find("·girl").id == both.find("girl</w>").id == 1
    trained = from_tokenizer(TRAINED["BPE with </w>"]())
    found = trained.find("girl")
    assert found.token is not None
    assert found.token.raw == "girl</w>"
    assert "reads it as girl</w>" in found.notes[0]


def test_a_vocabulary_without_marks_takes_a_word_with_a_space_or_without() -> None:
    vocabulary = from_json(as_json({"girl": 0, " boy": 1, "boy": 2}))
    assert vocabulary.find("·girl").id == 0
    assert (vocabulary.find("·boy").id, vocabulary.find("boy").id) == (1, 2)


@pytest.mark.parametrize("typed", ["Girl", "GIRL", "·Girl"])
def test_the_tokenizer_s_own_normaliser_comes_second(typed: str) -> None:
    vocabulary = from_tokenizer(TRAINED["WordPiece"]())
    found = vocabulary.find(typed)
    assert found.id == vocabulary.find("girl").id
    assert found.query == typed
    assert found.notes == (
        f"tokenizer.json has no token '{typed}'; its tokenizer reads it as girl (id {found.id}).",
    )


def test_exact_beats_the_normaliser() -> None:
    content = as_json({"[UNK]": 0, "girl": 1, "Girl": 2}, kind="WordPiece", normalizer={"type": "Lowercase"})
    vocabulary = from_json(content)
    assert vocabulary.find("Girl").id == 2
    assert vocabulary.find("gIRL").id == 1


def test_only_the_normaliser_that_the_file_states() -> None:
    """No accent is stripped where the tokenizer does not strip it."""
    accents = {"[UNK]": 0, "e": 1}
    strips = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}
    assert (
        from_json(as_json(accents, kind="WordPiece", normalizer=strips | {"strip_accents": None}))
        .find("é")
        .id
        == 1
    )
    with pytest.raises(UnknownTokenError):
        from_json(as_json(accents, kind="WordPiece", normalizer=strips | {"strip_accents": False})).find("é")


def test_the_other_unicode_form_is_suggested_and_not_taken() -> None:
    vocabulary = from_json(as_json({"é": 0, "e": 1, "\u0301": 2}))
    assert vocabulary.find("é").id == 0
    with pytest.raises(NotOneTokenError) as caught:
        vocabulary.find("e\u0301")
    assert "e (id 1)" in str(caught.value)
    assert "composed form (NFC)" in caught.value.hint
    assert "é (id 0)" in caught.value.hint
    decomposed = from_json(as_json({"x": 0, "e\u0301": 1}))
    with pytest.raises(UnknownTokenError) as unknown:
        decomposed.find("é")
    assert "decomposed form (NFD)" in unknown.value.hint
    assert "id:1" in unknown.value.hint


def test_several_tokens_are_an_error_that_shows_them() -> None:
    vocabulary = from_json(GPT2_LIKE)
    with pytest.raises(NotOneTokenError) as caught:
        vocabulary.find("·girlgi")
    assert str(caught.value) == "'·girlgi' is not one token of tokenizer.json but 2: ·girl (id 8), gi (id 5)."
    assert "·girl (id 8)" in caught.value.hint
    assert "--mean" in caught.value.hint
    assert vocabulary.pieces("·girlgi") == [8, 5]
    assert vocabulary.pieces("·girl") == [8]


def test_a_long_list_of_pieces_is_cut() -> None:
    with pytest.raises(NotOneTokenError, match=r"but 8: .* and 3 more"):
        from_json(GPT2_LIKE).find("gggggggg")


def test_never_the_unknown_token() -> None:
    word_level = from_json(
        as_json({"[UNK]": 0, "girl": 1}, kind="WordLevel", pre_tokenizer={"type": "Whitespace"})
    )
    unigram = from_json(
        as_json([["<unk>", 0.0], ["▁girl", -1.0]], kind="Unigram", model={"unk_id": 0}, **LLAMA_PARTS)
    )
    bpe = from_json(as_json({"<unk>": 0, "a": 1}, model={"unk_token": "<unk>"}))
    for vocabulary in (word_level, unigram, bpe):
        for find in (vocabulary.find, vocabulary.pieces):
            with pytest.raises(UnknownTokenError, match="zebra"):
                find("zebra")
    assert word_level.find("[UNK]").id == 0


def test_never_a_part_of_the_word() -> None:
    """BPE without an unknown token leaves out in silence what it cannot spell."""
    vocabulary = from_json(as_json({"a": 0, "b": 1, "ab": 2}, merges=["a b"]))
    assert vocabulary.cut("añb") == [2]
    with pytest.raises(UnknownTokenError, match="añb"):
        vocabulary.find("añb")


def test_closest_tokens() -> None:
    vocabulary = from_json(
        as_json(
            {word: n for n, word in enumerate(["Ġgirls", "Ġgirl", "boy", "ĠGirl", "girth", "Ġswirl", "x"])},
            **BYTE_LEVEL_PARTS,
        )
    )
    with pytest.raises(TokenError) as caught:
        vocabulary.find("girl")
    assert caught.value.hint.startswith("Closest: ·girl (id 1), ·Girl (id 3), ·girls (id 0)")
    assert "boy" not in caught.value.hint
    labels = [vocabulary.label(id_) for id_ in vocabulary.closest(b" grils")]
    assert labels[0] == "·girls"


def test_closest_tokens_of_words_that_are_not_ascii() -> None:
    vocabulary = from_json(as_json({"ĠcafÃ©": 0, "ĠcafÃ©s": 1, "z": 2}, **BYTE_LEVEL_PARTS))
    assert [vocabulary.label(id_) for id_ in vocabulary.closest("café".encode())] == ["·café", "·cafés"]


@pytest.mark.parametrize(
    "query", ["", "id:", "id:-1", "id:x", "id:1.0", "id:٣", "id: 5", "raw:", "id:" + "9" * 5000]
)
def test_queries_that_name_nothing(query: str) -> None:
    with pytest.raises(TokenError) as caught:
        from_json(GPT2_LIKE).find(query)
    assert caught.value.hint


def test_an_id_without_a_token() -> None:
    found = from_json(GPT2_LIKE).find("id:400")
    assert (found.id, found.token) == (400, None)


def test_a_token_that_looks_like_a_query() -> None:
    vocabulary = from_json(as_json({"id:": 0, "raw:": 1, "id:x": 2, "raw:x": 3, "x": 4, "id:4": 5}))
    assert [vocabulary.find(typed).id for typed in ("id:", "raw:", "id:x", "raw:x", "id:4", "raw:id:4")] == [
        0, 1, 2, 4, 4, 5,
    ]  # fmt: skip


def test_a_backslash_is_an_escape_first_and_itself_second() -> None:
    vocabulary = from_json(as_json({"\n": 0, r"\nabla": 1, r"\frac": 2, "abla": 3, "\nx": 4, r"\nx": 5}))
    assert vocabulary.find(r"\n").id == 0
    assert vocabulary.find(r"\\frac").id == vocabulary.find(r"\frac").id == 2
    assert vocabulary.find(r"\\nabla").notes == ()
    found = vocabulary.find(r"\nabla")
    assert found.id == 1
    assert "backslash" in found.notes[0]
    assert vocabulary.find(r"\nx").id == 4


def test_bytes_that_are_no_character() -> None:
    byte_level = from_tokenizer(TRAINED["byte-level BPE"]())
    found = byte_level.find(r"\xe4")
    assert found.token is not None
    assert (found.token.raw, found.token.kind) == ("ä", "byte")
    byte_tokens = from_json(as_json({"<0xE4>": 0, "▁a": 1}))
    assert byte_tokens.find(r"\xe4").id == 0
    with pytest.raises(UnknownTokenError):
        byte_tokens.find(r"\xe5")


def test_arguments_of_an_ascii_locale() -> None:
    vocabulary = from_json(GPT2_LIKE)
    assert vocabulary.find("Ġgirl".encode().decode("ascii", "surrogateescape")).id == 8
    assert vocabulary.find("raw:Ġgirl".encode().decode("ascii", "surrogateescape")).id == 8
    assert vocabulary.cut("Ġgirl".encode().decode("ascii", "surrogateescape")) == [8]


def test_a_tokenizer_that_puts_a_space_first_says_so() -> None:
    """In such a vocabulary `girl` by itself can only be read as the word after a space."""
    content = as_json({"▁": 0, "g": 1, "▁g": 2}, merges=["▁ g"], **LLAMA_PARTS)
    vocabulary = from_json(content)
    assert vocabulary.find("g").id == 1
    assert vocabulary.find("·g").id == 2
    del content["model"]["vocab"]["g"]
    content["model"]["merges"] = []
    found = from_json(content).find("·g")
    assert found.id == 2


def test_words_are_found_without_the_library() -> None:
    """Merges that name a token which is not there: the library refuses the file, look-up does not."""
    vocabulary = from_json(as_json({"girl": 0, "Ġgirl": 1}, merges=["gi rl"], **BYTE_LEVEL_PARTS))
    assert (vocabulary.find("girl").id, vocabulary.find("·girl").id) == (0, 1)
    with pytest.raises(UnknownTokenError) as caught:
        vocabulary.find("girls")
    assert "No text can be cut" in caught.value.hint
    assert "girl (id 0)" in caught.value.hint


def test_a_token_listed_twice_names_both_rows() -> None:
    content = as_json([["<unk>", 0.0], ["▁a", -1.0], ["▁a", -2.0]], kind="Unigram", model={"unk_id": 0})
    vocabulary = from_json(content)
    assert vocabulary.find("·a").id == 1
    assert "·a (id 2)" in vocabulary.find("·a").notes[0]
    assert vocabulary.n_tokens == 3
    assert any("twice" in note for note in vocabulary.notes)


@pytest.fixture(scope="module", params=TRAINED)
def trained(request: pytest.FixtureRequest) -> Vocabulary:
    return from_tokenizer(TRAINED[request.param]())


@given(query=st.one_of(st.text(st.characters()), st.text("·Ġ▁# girl\\n<>/wx0\udcc4\udca0é")))
def test_any_query_is_answered_or_refused_in_words(trained: Vocabulary, query: str) -> None:
    refusal = refusal_of(trained.find, query)
    if refusal is None:
        found = trained.find(query)
        assert found.token == trained.token(found.id)
        if found.token is not None and found.token.raw in ("<unk>", "[UNK]"):
            assert query.strip("·Ġ▁ ") in ("<unk>", "[UNK]", f"id:{found.id}")
    else:
        assert isinstance(refusal, TokenError)
        assert refusal.hint.isprintable()
    for error in (refusal, refusal_of(trained.cut, query)):
        assert error is None or str(error).isprintable()


def test_files_without_a_stated_model_type() -> None:
    content: dict[str, Any] = as_json({"girl": 7, "Ġgirl": 8}, **BYTE_LEVEL_PARTS)
    del content["model"]["type"]
    vocabulary = from_files({"tokenizer.json": json.dumps(content)})
    assert vocabulary.model == "byte-level BPE"
    assert vocabulary.find("·girl").id == 8


def test_added_tokens_keep_the_file_s_ids() -> None:
    """The library would number this one 1."""
    vocabulary = from_json(as_json({"a": 0}, added=[added_token("<x>", 50)]))
    assert vocabulary.find("<x>").id == 50
    assert (vocabulary.max_id, vocabulary.n_tokens) == (50, 2)
    assert vocabulary.cut("a<x>a") == [0, 50, 0]
    assert any("<x> (50 in the file, 1 there)" in note for note in vocabulary.notes)
