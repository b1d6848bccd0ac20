"""Tokenizer files that are damaged or made to harm: refused in words, or read as far as they make sense."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_makers import BYTE_LEVEL_PARTS, LLAMA_PARTS, added_token, as_json, from_files, refusal_of

from inspect_embed.errors import DamagedFileError, InspectEmbedError

words = st.one_of(
    st.sampled_from(["a", "Ġa", "▁a", "##a", "a</w>", "<0x41>", "", "\ud800", "·", "\n"]), st.text(max_size=3)
)
numbers = st.one_of(
    st.integers(-2, 5), st.sampled_from([2**31, 2**32, 2**64, 10**40, 1.5, True, False, None, "0", -1e308])
)
scalars = st.one_of(st.none(), st.booleans(), numbers, words)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
component_types = st.sampled_from(
    ["ByteLevel", "Metaspace", "Replace", "Prepend", "Sequence", "BPEDecoder", "WordPiece", "Lowercase"]
)
components = st.recursive(
    st.one_of(
        st.none(),
        anything,
        st.fixed_dictionaries(
            {"type": component_types | scalars},
            optional={
                "replacement": scalars,
                "suffix": scalars,
                "prepend": scalars,
                "content": scalars,
                "pattern": st.fixed_dictionaries({"String": scalars}) | anything,
            },
        ),
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("Sequence")},
        optional={
            key: st.lists(inner, max_size=3) | anything
            for key in ("normalizers", "pretokenizers", "decoders")
        },
    ),
    max_leaves=4,
)
vocabs = st.one_of(
    st.dictionaries(words, st.integers(0, 5), max_size=5),
    st.dictionaries(words, numbers, max_size=5),
    st.lists(st.tuples(words, st.floats(-9, 0)) | anything, max_size=5),
    anything,
)
models = st.fixed_dictionaries(
    {"vocab": vocabs},
    optional={
        "type": st.sampled_from(["BPE", "Unigram", "WordPiece", "WordLevel"]) | scalars,
        "merges": st.lists(st.tuples(words, words) | words, max_size=3) | anything,
        "unk_token": scalars,
        "unk_id": scalars,
        "continuing_subword_prefix": scalars,
        "end_of_word_suffix": scalars,
        "byte_fallback": scalars,
        "max_input_chars_per_word": scalars,
        "dropout": scalars,
    },
)
added_tokens = st.lists(
    st.fixed_dictionaries(
        {"content": scalars, "id": numbers},
        optional=dict.fromkeys(("special", "single_word", "lstrip", "rstrip", "normalized"), scalars),
    )
    | anything,
    max_size=4,
)
tokenizers = st.fixed_dictionaries(
    {"model": models | anything},
    optional={
        "added_tokens": added_tokens | anything,
        "normalizer": components,
        "pre_tokenizer": components,
        "decoder": components,
        "post_processor": components,
        "padding": anything,
        "truncation": anything,
    },
)


def use(files: dict[str, bytes]) -> None:
    """Everything that a command does with a vocabulary; whatever is refused is refused in words."""
    refusal = refused_in_words(from_files, files)
    if refusal is not None:
        assert isinstance(refusal, DamagedFileError)
        assert refusal.hint
        return
    vocabulary = from_files(files)
    ids = vocabulary.ids()
    assert list(ids) == sorted(set(ids))
    assert vocabulary.n_tokens + sum(map(len, vocabulary.holes)) == vocabulary.max_id + 1
    assert set(vocabulary.duplicates) <= set(ids)
    for id_ in ids:
        token = vocabulary.token(id_)
        assert token is not None
        assert token.text == vocabulary.label(id_)
        assert token.text.isprintable()
        assert vocabulary.bytes_of(id_) is not None
        assert vocabulary.find(f"id:{id_}").token == token
    assert sum(map(len, vocabulary.ids_of_bytes.values())) == len(ids)
    assert [token.id for token in vocabulary.grep("")] == list(ids)
    for call in (vocabulary.find, vocabulary.cut, vocabulary.pieces):
        for text in ("a", "·a", "aa é", "##a", "<0x41>", "raw:a"):
            refused_in_words(call, text)
    assert all(note.isprintable() for note in vocabulary.notes)


def refused_in_words(call: Callable[[Any], object], argument: object) -> InspectEmbedError | None:
    refusal = refusal_of(call, argument)
    if refusal is not None:
        assert str(refusal).isprintable()
        assert refusal.hint.isprintable()
    return refusal


@settings(max_examples=150, deadline=None)
@given(content=tokenizers | anything)
def test_any_json_as_tokenizer_json(content: Any) -> None:
    use({"tokenizer.json": json.dumps(content).encode()})


odd_tokens = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "Ġ",
        "Ġa",
        "▁",
        "▁a",
        "##a",
        "a##b",
        "a</w>",
        "<0x41>",
        "é",
        "##é",
        "é</w>",
        "",
        "<unk>",
        "[UNK]",
    ]
)
odd_normalizers = st.sampled_from(
    [
        None,
        {"type": "NFD"},
        {"type": "StripAccents"},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": "a*"}, "content": ""},
        *LLAMA_PARTS.values(),
    ]
)
odd_pre_tokenizers = st.sampled_from(
    [
        None,
        {"type": "BertPreTokenizer"},
        {"type": "Punctuation", "behavior": "Removed"},
        {"type": "CharDelimiterSplit", "delimiter": "a"},
        {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False},
        {"type": "Metaspace", "replacement": "é", "prepend_scheme": "always", "split": True},
        BYTE_LEVEL_PARTS["pre_tokenizer"],
    ]
)


@st.composite
def odd_tokenizers(draw: st.DrawFn) -> dict[str, Any]:
    """Files that the library takes, for the most part, and that no one would train."""
    tokens = draw(st.lists(odd_tokens, min_size=1, max_size=8, unique=True))
    kind = draw(st.sampled_from(["BPE", "WordPiece", "WordLevel", "Unigram"]))
    mark = draw(st.sampled_from([None, "", "##", "é"]))
    model: dict[str, Any] = {}
    merges: list[list[str]] = []
    if kind == "BPE":
        merges = [[a, b] for a in tokens for b in tokens if a + b.removeprefix(mark or "") in tokens]
        end = draw(st.sampled_from([None, "", "</w>", "é"]))
        model = {
            "continuing_subword_prefix": mark,
            "end_of_word_suffix": end,
            "byte_fallback": draw(st.booleans()),
        }
        model |= {
            "unk_token": draw(st.sampled_from([None, tokens[0]])),
            "dropout": draw(st.sampled_from([None, 1.0])),
        }
    elif kind == "WordPiece":
        model = {"continuing_subword_prefix": mark or "", "unk_token": tokens[0]}
    elif kind == "Unigram":
        model = {"unk_id": draw(st.sampled_from([None, 0]))}
    ids = [draw(st.integers(0, 9)) for _ in tokens]
    vocab: Any = (
        [[token, -1.0] for token in tokens] if kind == "Unigram" else dict(zip(tokens, ids, strict=True))
    )
    added = [
        added_token(draw(odd_tokens), draw(st.integers(0, 20)), special=draw(st.booleans()))
        for _ in range(draw(st.integers(0, 2)))
    ]
    parts = {"normalizer": draw(odd_normalizers), "pre_tokenizer": draw(odd_pre_tokenizers)}
    return as_json(vocab, kind=kind, merges=merges, model=model, added=added, **parts)


@settings(max_examples=200, deadline=None)
@given(content=odd_tokenizers())
def test_tokenizers_that_no_one_would_train(content: dict[str, Any]) -> None:
    use({"tokenizer.json": json.dumps(content).encode()})


@settings(max_examples=100, deadline=None)
@given(content=vocabs, merges=st.text(), beside=anything, added=anything)
def test_any_json_as_vocab_json(content: Any, merges: str, beside: Any, added: Any) -> None:
    files = {
        "vocab.json": json.dumps(content),
        "merges.txt": merges,
        "tokenizer_config.json": json.dumps(beside),
    }
    files |= {"added_tokens.json": json.dumps(added), "special_tokens_map.json": json.dumps(beside)}
    use({name: text.encode(errors="replace") for name, text in files.items()})


@settings(max_examples=100, deadline=None)
@given(data=st.one_of(st.binary(), st.text("ab#\n\r \u2028[]UNKé").map(str.encode)), beside=anything)
def test_any_bytes_as_vocab_txt(data: bytes, beside: Any) -> None:
    use({"vocab.txt": data, "tokenizer_config.json": json.dumps(beside).encode()})


WHOLE = json.dumps(
    as_json({"a": 0, "Ġ": 1, "Ġa": 2, "é": 3}, merges=["Ġ a"], added={"<x>": 4}, **BYTE_LEVEL_PARTS)
).encode()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=3), st.booleans())
def test_cut_short_or_overwritten(place: int, noise: bytes, cut: bool) -> None:
    use({"tokenizer.json": WHOLE[:place] + noise + (b"" if cut else WHOLE[place + len(noise) :])})


@pytest.mark.parametrize("place", range(0, len(WHOLE), 7))
def test_every_truncation_is_damage(place: int) -> None:
    with pytest.raises(DamagedFileError, match="not JSON"):
        from_files({"tokenizer.json": WHOLE[:place]})


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json"])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 200_000, "nested too deeply"),
        (b'{"model":' * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"{'a': 0}", "not JSON"),
        (b"<!doctype html>", "not JSON"),
        (b"\x00" * 100, "not JSON"),
    ],
)
def test_what_is_no_json(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(DamagedFileError, match=reason):
        from_files({name: data})


def test_deep_components_do_not_exhaust_the_stack() -> None:
    part: dict[str, Any] = {"type": "ByteLevel"}
    for _ in range(150):
        part = {"type": "Sequence", "pretokenizers": [part]}
    use({"tokenizer.json": json.dumps(as_json({"a": 0}, pre_tokenizer=part)).encode()})


def test_memory_stays_near_the_size_of_the_file() -> None:
    """A number in the file sizes nothing: not the highest id, not the room for padding."""
    data = json.dumps(
        as_json({"a": 0, "b": 2**32 - 1}, added={"<x>": 2**31}, padding={"strategy": {"Fixed": 2**31}})
    ).encode()
    tracemalloc.start()
    try:
        vocabulary = from_files({"tokenizer.json": data})
        assert vocabulary.holes
        assert vocabulary.gaps(100)
        assert vocabulary.find("b").id == 2**32 - 1
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
