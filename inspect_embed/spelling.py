r"""How do the bytes of a token look to people, and which bytes did they mean by what they typed?

A token is bytes. Its spelling shows every one of them:

    ·girl       a leading space is a middle dot; a run of leading spaces is a run of them
    \n \t \r    line breaks and tabs; \\ is a backslash
    \xe4        a byte that is no character by itself
    \u00b7      a character that would mislead: a real middle dot, a leading Ġ or ▁, controls, blanks,
                zero-width and bidirectional controls, private, unassigned and replacement characters, lone
                surrogates, an accent that has nothing before it to sit on
    a\x20 b     a space that ends a token, or that another space follows; a single space inside is itself
    \&          no bytes at all

`parse(show(raw)) == raw` for all bytes. In ASCII, a leading space is `\x20` and every character beyond ASCII an
escape; `parse` reads that too. A byte token `<0x41>` is spelled as its vocabulary spells it, and is the one
exemption: `parse` takes it for six characters.

A vocabulary's file spells its tokens in a way of its own, which `Marks` describes and undoes.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

SPACE_MARKS = "·Ġ▁"
"""What stands for a space where it leads: the mark that is shown, GPT-2's, SentencePiece's."""

EMPTY = r"\&"
"""The spelling of no bytes at all, as in Haskell's strings."""

_BLANKS = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFFC, 0xFFFD),
    (0xE0100, 0xE01EF),
)
"""Letters, marks and symbols that show nothing, or that stand for what could not be shown: first and last.

Source: Unicode, DerivedCoreProperties.txt, Default_Ignorable_Code_Point; U+2800 is the empty Braille pattern,
U+FFFC and U+FFFD stand for an object and a character that are not there.
"""

_UNSHOWN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_NAMED = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\"}
_NAMED_BYTES = {spelling.encode(): char.encode() for char, spelling in _NAMED.items()}
_ESCAPE = re.compile(rb"\\(?:[nrt\\]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})")
_OPEN_SPACE = re.compile(r" (?= |\Z)")

# The bytes of a lone surrogate, but for those that Python lets stand for a single byte (U+DC80 to U+DCFF).
_SURROGATE_BYTES = re.compile(rb"(\xed[\xa0-\xb1\xb4-\xbf][\x80-\xbf])")


def show(raw: bytes, *, ascii: bool = False) -> str:
    r"""How are these bytes spelled?

    `ascii` spells them in ASCII alone. No two byte strings are spelled alike.

    >>> print(show(b" girl"), show(b"\xe4\n"), show(b" girl", ascii=True))
    ·girl \xe4\n \x20girl
    """
    if not raw:
        return EMPTY
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = _decode_broken(raw)
    body = text.lstrip(" ")
    shown = body.translate(_SHOWN)
    if body and (body[0] in SPACE_MARKS or unicodedata.combining(body[0])):
        shown = _escape(body[0]) + body[1:].translate(_SHOWN)
    if " " in shown:
        shown = _OPEN_SPACE.sub(r"\\x20", shown)
    shown = "·" * (len(text) - len(body)) + shown
    return to_ascii(shown) if ascii else shown


def to_ascii(spelling: str) -> str:
    r"""How is a spelling written in ASCII alone? `·girl` becomes `\x20girl`; `parse` reads both alike."""
    body = spelling.lstrip("·")
    lead = r"\x20" * (len(spelling) - len(body))
    return lead + "".join(c if c.isascii() else _escape(c) for c in body)


def parse(text: str) -> bytes:
    r"""Which bytes does a spelling mean?

    Leading `·`, `Ġ`, `▁` and spaces are a space each. A backslash that begins no escape (`\frac`) stands for itself.
    Every text means some bytes.

    >>> parse("·girl"), parse("Ġgirl"), parse(r"\xe4\n")
    (b' girl', b' girl', b'\xe4\n')
    """
    text = recover(text)
    if text == EMPTY:
        return b""
    body = text.lstrip(SPACE_MARKS + " ")
    spaces = b" " * (len(text) - len(body))
    return spaces + _ESCAPE.sub(_unescape, _encode_typed(body))


def parse_literally(text: str) -> bytes:
    """Which bytes does a spelling mean if a backslash is a backslash?"""
    return parse(text.replace("\\", r"\\"))


def quote(text: str) -> str:
    """What a person typed, between quotes: as it was typed, but for what cannot be shown."""
    return "'" + "".join(c if c.isprintable() else _escape(c) for c in text) + "'"


def recover(text: str) -> str:
    """What did the user type, where the locale could not read it?

    Under an ASCII locale the bytes of an argument that are not ASCII arrive as lone surrogates. Text without them,
    and bytes that are not UTF-8 either, stay as they are.
    """
    if not _SURROGATE.search(text):
        return text
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text


def encode(text: str) -> bytes:
    """The bytes of a text in UTF-8; a lone surrogate, which has none, is given the three that it would have."""
    return text.encode(errors="surrogatepass")


_SURROGATE = re.compile("[\ud800-\udfff]")


def _encode_typed(text: str) -> bytes:
    """The bytes of what was typed: a surrogate that stands for a byte is that byte."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return encode(text)


def _decode_broken(raw: bytes) -> str:
    """Characters where there are some; lone surrogates; U+DC80 to U+DCFF for any other byte."""
    parts = _SURROGATE_BYTES.split(raw)
    parts_read = (
        part.decode(errors="surrogatepass" if n % 2 else "surrogateescape") for n, part in enumerate(parts)
    )
    return "".join(parts_read)


def _unescape(escape: re.Match[bytes]) -> bytes:
    spelled = escape[0]
    if spelled in _NAMED_BYTES:
        return _NAMED_BYTES[spelled]
    number = int(spelled[2:], 16)
    return bytes([number]) if spelled[1:2] == b"x" else encode(chr(number))


def _escape(char: str) -> str:
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Shown(dict[int, str]):
    """What each character is shown as, filled in as characters are met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = char == " " or not (
            char in "·\\"
            or unicodedata.category(char) in _UNSHOWN_CATEGORIES
            or any(first <= code <= last for first, last in _BLANKS)
        )
        self[code] = shown = char if plain else _escape(char)
        return shown


_SHOWN = _Shown()


def _byte_alphabet() -> str:
    """Printable bytes stand for themselves in Latin-1; the others take the characters from U+0100 on, in turn."""
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in itself else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
"""The character that stands for each byte in a byte-level vocabulary; a space is Ġ.

Source: GPT-2, encoder.py, bytes_to_unicode.
"""

_LETTER_OF_BYTE = dict(enumerate(BYTE_ALPHABET))
# Latin-1 characters outside the alphabet must not pass for bytes.
_BYTE_OF_LETTER = dict.fromkeys(range(256), 0xFFFF) | {
    ord(letter): byte for byte, letter in enumerate(BYTE_ALPHABET)
}


def byte_level_encode(raw: bytes) -> str:
    """How does a byte-level vocabulary write these bytes?"""
    return raw.decode("latin-1").translate(_LETTER_OF_BYTE)


def byte_level_decode(text: str) -> bytes | None:
    """Which bytes does a byte-level vocabulary write so? None where a character is not in its alphabet."""
    try:
        return text.translate(_BYTE_OF_LETTER).encode("latin-1")
    except UnicodeEncodeError:
        return None


Place = Literal["word-start", "inner", "word-end", "plain", "byte"]
"""Where in a word a token stands by its marks; `Marks.place` says what each means."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")

# Kana and ideographs: in their scripts no space comes before a word.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class Marks:
    """How does a vocabulary's file write spaces, bytes, and the places where words begin and end?

    byte_level    bytes are written in GPT-2's alphabet
    space         the character that stands for a space (SentencePiece's ▁); empty where none does
    inner         what leads a piece that continues a word (WordPiece's ##); pieces without it begin one
    end           what closes a piece that ends a word (</w>)
    whole_words   every token is a word or a sign (WordLevel)
    byte_tokens   `<0x41>` is a byte
    """

    byte_level: bool = False
    space: str = ""
    inner: str = ""
    end: str = ""
    whole_words: bool = False
    byte_tokens: bool = False

    @property
    def spaces_are_written(self) -> bool:
        """Whether the space before a word is a part of its token in the file; elsewhere an affix tells, or nothing."""
        return (self.byte_level or bool(self.space)) and not self.end and not self.unmarked_begins

    @property
    def unmarked_begins(self) -> bool:
        """Whether a token without a mark begins a word, so that `·girl` and `girl` are one token."""
        return bool(self.inner) or self.whole_words

    def byte_of(self, raw: str) -> int | None:
        """Which byte is this byte token? None for every other token."""
        if not self.byte_tokens or not raw.startswith("<0x"):
            return None
        match = _BYTE_TOKEN.fullmatch(raw)
        return int(match[1], 16) if match else None

    def split(self, raw: str) -> tuple[str, str, str]:
        """The mark before, the piece, the mark behind. A token that is nothing but a mark is a piece."""
        before = self.inner if self.inner and raw.startswith(self.inner) and raw != self.inner else ""
        piece = raw[len(before) :]
        behind = self.end if self.end and piece.endswith(self.end) and piece != self.end else ""
        return before, piece[: len(piece) - len(behind)], behind

    def decode(self, piece: str) -> bytes:
        """Which bytes does a piece without affixes hold?"""
        if self.byte_level:
            data = byte_level_decode(piece)
            if data is not None:
                return data
        return encode(piece.replace(self.space, " ") if self.space else piece)

    def show(self, raw: str) -> str:
        """How do people read this token?"""
        if self.byte_of(raw) is not None:
            return raw
        before, piece, behind = self.split(raw)
        return before + show(self.decode(piece)) + behind

    def bytes_of(self, raw: str) -> bytes:
        """Which bytes is this token in a text, the space before a word among them?

        A piece that begins a word without a mark is given the space that comes before words; a sign or an ideograph
        is not. A piece that ends a word by its mark is taken for the whole word.
        """
        byte = self.byte_of(raw)
        if byte is not None:
            return bytes([byte])
        before, piece, behind = self.split(raw)
        data = self.decode(piece)
        begins = not before and (bool(behind) or self.unmarked_begins)
        if not begins or data.startswith(b" "):
            return data
        first = data.decode(errors="replace")[:1]
        return b" " + data if first.isalnum() and not _UNSPACED.match(first) else data

    def place(self, raw: str) -> Place:
        """Where in a word does this token stand?

        word-start  it begins a word: a space leads it, or it lacks the mark of those that continue one
        inner       it continues a word, or stands where no space comes before it
        word-end    its mark says that it ends a word; most are whole words
        plain       this vocabulary does not tell
        byte        a byte token, or bytes that are no characters by themselves
        """
        if self.byte_of(raw) is not None:
            return "byte"
        before, piece, behind = self.split(raw)
        data = self.decode(piece)
        try:
            data.decode(errors="surrogatepass")
        except UnicodeDecodeError:
            return "byte"
        if behind:
            return "word-end"
        if self.unmarked_begins:
            return "inner" if before else "word-start"
        if data.startswith(b" "):
            return "word-start"
        return "inner" if self.spaces_are_written or self.end else "plain"

    def raws(self, typed: bytes) -> list[str]:
        """Which spellings in the file are these bytes, as a person typed them, likeliest first?"""
        found = self.write(typed)
        if not self.spaces_are_written and typed.startswith(b" ") and len(typed) > 1:
            before, body, behind = self._split_typed(typed[1:])
            if not before:
                found += [piece + (behind or self.end) for piece in self.write(body)]
        elif self.inner or self.end:
            before, body, behind = self._split_typed(typed)
            found += [before + piece + behind for piece in self.write(body)]
        if self.byte_tokens and len(typed) == 1:
            found.append(f"<0x{typed[0]:02X}>")
        return list(dict.fromkeys(found))

    def variants(self, typed: bytes) -> list[str]:
        """Which spellings in the file are the same letters, in whatever place of a word?"""
        _, body, _ = self._split_typed(typed.removeprefix(b" "))
        if not body:
            return []
        if not self.inner and not self.end:
            return self.write(b" " + body) + self.write(body)
        return [
            before + piece + behind
            for piece in self.write(body)
            for behind in dict.fromkeys((self.end, ""))
            for before in dict.fromkeys(("", self.inner))
        ]

    def _split_typed(self, typed: bytes) -> tuple[str, bytes, str]:
        """As `split`, for bytes that a person typed."""
        inner, end = encode(self.inner), encode(self.end)
        before = self.inner if inner and typed.startswith(inner) and typed != inner else ""
        body = typed[len(inner) :] if before else typed
        behind = self.end if end and body.endswith(end) and body != end else ""
        return before, body[: len(body) - len(end)] if behind else body, behind

    def write(self, data: bytes) -> list[str]:
        """How does the file write these bytes as a piece without affixes? Likeliest first; nothing where it cannot."""
        written = []
        if self.byte_level:
            written.append(byte_level_encode(data))
        try:
            text = data.decode(errors="surrogatepass")
        except UnicodeDecodeError:
            return written
        if self.byte_level:
            # A token that is not in the alphabet stands for itself.
            return written if byte_level_decode(text) is not None else [*written, text]
        if not self.space:
            return [text]
        # A real ▁ cannot be told from a space in such a file: it is always read as one.
        return [] if self.space in text else [text.replace(" ", self.space)]


def guess_marks(raws: Collection[str]) -> Marks:
    """How does a file write spaces and places in words, by its tokens alone?"""
    lines = "\n" + "\n".join(raws) + "\n"
    end = "</w>" if re.search("[^\n]</w>\n", lines) else ""
    if "\nĠ" in lines:
        letters = {*BYTE_ALPHABET, "\n"}
        # Only control tokens may hold other characters.
        if set(lines) <= letters or all(
            byte_level_decode(raw) is not None or raw.startswith("<") for raw in raws
        ):
            return Marks(byte_level=True, end=end)
    if "\n▁" in lines:
        return Marks(space="▁", byte_tokens=True)
    if end:
        return Marks(end=end)
    return Marks(inner="##" if re.search("\n##[^\n]", lines) else "", byte_tokens="\n<0x" in lines)
