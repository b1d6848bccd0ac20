"""The spelling of tokens: what is shown can be typed, and nothing misleads."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inspect_embed import spelling
from inspect_embed.spelling import Marks, byte_level_decode, byte_level_encode, parse, show, to_ascii

BYTE_LEVEL = Marks(byte_level=True)
METASPACE = Marks(space="▁", byte_tokens=True)
WORDPIECE = Marks(inner="##")
WORD_ENDS = Marks(end="</w>")
FAMILIES = [
    BYTE_LEVEL,
    METASPACE,
    WORDPIECE,
    WORD_ENDS,
    Marks(end="</w>", byte_level=True),
    Marks(whole_words=True),
    Marks(),
]

texts = st.one_of(
    st.text(st.characters()),
    st.text("·Ġ▁ \\nxu0&<>\n\t\r\u0301\u200b\u00a0\ue000\U000e0100aé你"),
)
raws = st.one_of(st.binary(), texts.map(spelling.encode))


@given(raws)
@example(b"")
@example(b"\\&")
@example(" \u0301".encode())
@example(b"\xed\xa0\x80\xed\xb2\x80")
def test_what_is_shown_can_be_typed(raw: bytes) -> None:
    assert parse(show(raw)) == raw
    assert parse(show(raw, ascii=True)) == raw


@given(raws)
def test_a_spelling_shows_every_byte_and_hides_none(raw: bytes) -> None:
    shown = show(raw)
    assert shown
    assert not shown.startswith(" ")
    assert not shown.endswith(" ")
    assert "  " not in shown
    for char in shown:
        assert char == " " or unicodedata.category(char)[0] not in "CZ", ascii(shown)
    shown.encode()  # no lone surrogate is left


@given(raws)
def test_ascii_is_ascii(raw: bytes) -> None:
    shown = show(raw, ascii=True)
    assert shown.isascii()
    assert shown.isprintable()
    assert to_ascii(show(raw)) == shown


@given(st.text(st.characters()))
def test_any_text_can_be_typed(text: str) -> None:
    assert isinstance(parse(text), bytes)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b" girl", "·girl"),
        (b"girl", "girl"),
        (b"    ", "····"),
        (b"a b", "a b"),
        (b"a ", r"a\x20"),
        (b"a  b", r"a\x20 b"),
        (b"\n\n", r"\n\n"),
        (b"\t", r"\t"),
        (b" \r", r"·\r"),
        (b"\x00", r"\x00"),
        (b"\x1b[31m", r"\x1b[31m"),
        (b"\xe4\xbd", r"\xe4\xbd"),
        (b"", r"\&"),
        (b"\\frac", r"\\frac"),
        ("·".encode(), r"\u00b7"),
        (" ·".encode(), r"·\u00b7"),
        ("a·b".encode(), r"a\u00b7b"),
        ("Ġa".encode(), r"\u0120a"),
        (" ▁a".encode(), r"·\u2581a"),
        ("aĠ".encode(), "aĠ"),
        ("\u00a0".encode(), r"\u00a0"),
        ("\u3000".encode(), r"\u3000"),
        ("\u0085".encode(), r"\u0085"),
        ("\u200b".encode(), r"\u200b"),
        ("\u202e".encode(), r"\u202e"),
        ("\ufeff".encode(), r"\ufeff"),
        ("\ufe0f".encode(), r"\ufe0f"),
        ("\u3164".encode(), r"\u3164"),
        ("\ufffd".encode(), r"\ufffd"),
        ("\ue000".encode(), r"\ue000"),
        ("\u0378".encode(), r"\u0378"),
        ("\U000e0041".encode(), r"\U000e0041"),
        ("\u0301".encode(), r"\u0301"),
        ("e\u0301".encode(), "e\u0301"),
        ("\ud800".encode(errors="surrogatepass"), r"\ud800"),
        ("é你ا🙂".encode(), "é你ا🙂"),
        (b"[/INST]", "[/INST]"),
        (b":smile:", ":smile:"),
        (b"null", "null"),
        (b'"', '"'),
        (b"$_$", "$_$"),
        (b"_a", "_a"),
    ],
)
def test_spellings(raw: bytes, shown: str) -> None:
    assert show(raw) == shown
    assert parse(shown) == raw


@pytest.mark.parametrize("typed", ["·girl", "Ġgirl", "▁girl", " girl", r"\x20girl", r"·g\u0069rl"])
def test_every_mark_of_a_leading_space_means_the_same(typed: str) -> None:
    assert parse(typed) == b" girl"


def test_examples() -> None:
    results = doctest.testmod(spelling)
    assert results.attempted
    assert not results.failed


def test_marks_mean_a_space_only_where_they_lead() -> None:
    assert parse("a·bĠc▁d") == "a·bĠc▁d".encode()
    assert parse("_a") == b"_a"


def test_a_backslash_that_begins_no_escape_is_a_backslash() -> None:
    assert parse(r"\frac\x4\u12\U00110000") == rb"\frac\x4\u12\U00110000"
    assert parse(r"\nabla") == b"\nabla"
    assert spelling.parse_literally(r"\nabla") == rb"\nabla"


def test_ascii_keeps_the_leading_space() -> None:
    assert show(" né".encode(), ascii=True) == r"\x20n\u00e9"
    assert show("  🙂".encode(), ascii=True) == r"\x20\x20\U0001f642"


def test_an_argument_that_an_ascii_locale_could_not_read_is_recovered() -> None:
    """The interpreter itself hands over the argument, under a locale that knows no Ġ."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "import sys; from inspect_embed.spelling import parse; print(ascii(sys.argv[1:]), *map(parse, sys.argv[1:]))"
    arguments = [b"-c", code.encode(), "Ġgirl".encode(), b"\xe4"]
    done = subprocess.run(
        [os.fsencode(sys.executable), *arguments], env=environment, capture_output=True, check=True
    )
    assert b"\\udcc4" in done.stdout, "the locale did read it: the test shows nothing"
    assert done.stdout.split()[-2:] == [b"girl'", b"b'\\xe4'"]
    assert b"b' girl'" in done.stdout


def test_byte_alphabet() -> None:
    assert len(set(spelling.BYTE_ALPHABET)) == 256
    assert byte_level_encode(b" \n\x00a\xff") == "ĠĊĀaÿ"
    assert byte_level_decode("ĠĊĀaÿ") == b" \n\x00a\xff"


def test_byte_alphabet_is_the_tokenizers_library_s() -> None:
    from tokenizers import pre_tokenizers

    assert set(spelling.BYTE_ALPHABET) == set(pre_tokenizers.ByteLevel.alphabet())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for text in ("".join(map(chr, range(256))), "你好 🙂"):
        assert byte_level.pre_tokenize_str(text)[0][0] == byte_level_encode(text.encode())


@given(st.binary())
def test_byte_level_is_undone(raw: bytes) -> None:
    assert byte_level_decode(byte_level_encode(raw)) == raw


@pytest.mark.parametrize("text", [" ", "a b", "\u00a0", "\u00ad", "\x7f", "ń", "你"])
def test_byte_level_refuses_what_is_not_in_its_alphabet(text: str) -> None:
    assert (byte_level_decode(text) is None) == (text not in spelling.BYTE_ALPHABET)


@pytest.mark.parametrize(
    ("marks", "raw", "text", "data", "place"),
    [
        (BYTE_LEVEL, "Ġgirl", "·girl", b" girl", "word-start"),
        (BYTE_LEVEL, "girl", "girl", b"girl", "inner"),
        (BYTE_LEVEL, "ä½", r"\xe4\xbd", b"\xe4\xbd", "byte"),
        (BYTE_LEVEL, "Â·", r"\u00b7", "·".encode(), "inner"),
        (BYTE_LEVEL, "<0x41>", "<0x41>", b"<0x41>", "inner"),
        (BYTE_LEVEL, "你", "你", "你".encode(), "inner"),
        (METASPACE, "▁girl", "·girl", b" girl", "word-start"),
        (METASPACE, "girl", "girl", b"girl", "inner"),
        (METASPACE, "▁▁", "··", b"  ", "word-start"),
        (METASPACE, "_a", "_a", b"_a", "inner"),
        (METASPACE, "Ġa", r"\u0120a", "Ġa".encode(), "inner"),
        (METASPACE, "<0x41>", "<0x41>", b"A", "byte"),
        (METASPACE, "<0x0A>", "<0x0A>", b"\n", "byte"),
        (WORDPIECE, "girl", "girl", b" girl", "word-start"),
        (WORDPIECE, "##ing", "##ing", b"ing", "inner"),
        (WORDPIECE, "##", "##", b"##", "word-start"),
        (WORDPIECE, ",", ",", b",", "word-start"),
        (WORDPIECE, "女", "女", "女".encode(), "word-start"),
        (WORD_ENDS, "girl</w>", "girl</w>", b" girl", "word-end"),
        (WORD_ENDS, "girl", "girl", b"girl", "inner"),
        (WORD_ENDS, "</w>", "</w>", b"</w>", "inner"),
        (Marks(end="</w>", byte_level=True), "Ã©</w>", "é</w>", " é".encode(), "word-end"),
        (Marks(), "girl", "girl", b"girl", "plain"),
        (Marks(), " girl", "·girl", b" girl", "word-start"),
        (Marks(whole_words=True), "girl", "girl", b" girl", "word-start"),
    ],
)
def test_marks_are_undone(marks: Marks, raw: str, text: str, data: bytes, place: str) -> None:
    assert (marks.show(raw), marks.bytes_of(raw), marks.place(raw)) == (text, data, place)


@pytest.mark.parametrize("marks", FAMILIES, ids=repr)
@given(raw=texts)
def test_a_token_is_found_by_the_spelling_it_is_shown_with(marks: Marks, raw: str) -> None:
    if marks.space and marks.byte_of(raw) is None and " " in raw:
        return  # no vocabulary that writes ▁ for a space holds a space
    shown = marks.show(raw)
    if marks.byte_of(raw) is None:
        assert raw in marks.raws(parse(shown))


@pytest.mark.parametrize("marks", FAMILIES, ids=repr)
def test_a_leading_space_finds_the_beginning_of_a_word(marks: Marks) -> None:
    begins = {"Ġgirl", "▁girl", "girl", "girl</w>", " girl"}
    wanted = [raw for raw in marks.raws(b" girl") if raw in begins]
    assert wanted
    assert marks.bytes_of(wanted[0]) in (b" girl", b"girl")


def test_a_middle_dot_is_not_a_space_in_a_word_piece_vocabulary() -> None:
    assert WORDPIECE.raws(parse("##ing")) == ["##ing"]
    assert "##ing" not in WORDPIECE.raws(parse("·##ing"))
    assert WORDPIECE.raws(parse("·girl"))[-1] == WORDPIECE.raws(parse("girl"))[-1] == "girl"


def test_a_real_mark_is_no_space_in_a_sentencepiece_vocabulary() -> None:
    assert METASPACE.raws(parse(r"\u2581a")) == []
    assert METASPACE.raws(parse("_a")) == ["_a"]


def test_variants_are_the_same_letters_elsewhere_in_a_word() -> None:
    assert BYTE_LEVEL.variants(b"girl")[:1] == ["Ġgirl"]
    assert METASPACE.variants(b" girl") == ["▁girl", "girl"]
    assert WORDPIECE.variants(b"##girl") == ["girl", "##girl"]
    assert WORD_ENDS.variants(b"girl") == ["girl</w>", "girl"]
    assert BYTE_LEVEL.variants(b" ") == []


def test_a_byte_is_found_by_its_own_spelling_and_by_its_character() -> None:
    assert METASPACE.raws(b"A") == ["A", "<0x41>"]
    assert METASPACE.raws(b"\xe4") == ["<0xE4>"]
    assert METASPACE.raws(parse("<0x41>")) == ["<0x41>"]
