"""What do the rows of a token table mean? One file a vocabulary format.

A format offers `NAME`, `FILES` (the names it goes by in a folder; none where it lies inside a model's file),
`claims` (are these bytes mine, whatever their file is called?) and `read`, which gives a `Vocabulary`. Ids and tokens
come from the file itself; the `tokenizers` library is loaded only where a text is to be cut.
"""

from __future__ import annotations

import importlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast, runtime_checkable

from inspect_embed.errors import (
    DamagedFileError,
    InspectEmbedError,
    NotACheckpointError,
    NotOneTokenError,
    TokenError,
    UnknownTokenError,
    shorten,
)
from inspect_embed.spelling import (
    SPACE_MARKS,
    Marks,
    Place,
    encode,
    parse,
    parse_literally,
    quote,
    recover,
    show,
)
from inspect_embed.storage import Folder
from inspect_embed.storage.local import LocalFolder
from inspect_embed.vocabularies._files import read_text
from inspect_embed.vocabularies._library import Refusal, cut, make_plain, normalize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARIES = ("tokenizer_json", "vocab_files", "gguf", "word_list")
"""The modules of this package, one a format, in order of preference."""

NO_TOKEN = "no token"
"""The label of a row that no token names."""

CLOSEST = 5
"""How many close tokens an error names."""

TokenKind = Place | Literal["special", "added", "unused"]
"""What sort of token it is: its place in a word (see `Marks.place`), or

special   a control token, which no text holds ([CLS], <|endoftext|>)
added     a token that was added to the trained vocabulary as a whole
unused    a reserved place ([unused7], <|reserved_special_token_3|>)
"""

_UNUSED = re.compile(
    r"[\[<](?:\||<)?_?(?:unused|reserved|placeholder|dummy|PAD|pad)[A-Za-z_ -]*\d+_?(?:\||>)?[\]>]|madeupword\d+"
)

_MARKED_WORD = re.compile(rf"(?:\A| |(?<=\s))([{SPACE_MARKS}]+)(?=[^\s{SPACE_MARKS}])")


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its row, `raw` as the tokenizer's file has it, `text` as people read and type it, its kind."""

    id: int
    raw: str
    text: str
    kind: TokenKind


@dataclass(frozen=True, slots=True)
class FoundToken:
    """What a query named. `token` is None where the query was an id that no token has."""

    query: str
    id: int
    token: Token | None
    notes: tuple[str, ...] = ()


class AddedToken(NamedTuple):
    """A token that is matched as a whole, before a text is cut."""

    content: str
    id: int
    special: bool


class _Listed(Mapping[int, str]):
    """Tokens by their places in a list, which takes no time to make where a dictionary would."""

    def __init__(self, raws: Sequence[str]) -> None:
        self._raws = raws

    def __getitem__(self, id_: int) -> str:
        if not isinstance(id_, int) or not 0 <= id_ < len(self._raws):
            raise KeyError(id_)
        return self._raws[id_]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._raws)))

    def __len__(self) -> int:
        return len(self._raws)


@runtime_checkable
class _Distinct(Protocol):
    """A list that can tell how many different tokens it has without making them."""

    def count_distinct(self) -> int:
        """How many different tokens are there?"""
        ...


class _Places(Mapping[str, int]):
    """The places of tokens in a list; where it holds one twice the first place counts.

    While few are asked for the list is searched; then a dictionary is made, which takes far longer than a search.
    """

    def __init__(self, raws: Sequence[str]) -> None:
        self._raws = raws
        self._searches = 0

    @cached_property
    def _first(self) -> dict[str, int]:
        return dict(zip(reversed(self._raws), reversed(range(len(self._raws))), strict=True))

    def __getitem__(self, raw: str) -> int:
        self._searches += 1
        if self._searches > _SEARCHES or "_first" in self.__dict__:
            return self._first[raw]
        try:
            return self._raws.index(raw)
        except ValueError:
            raise KeyError(raw) from None

    def all_of(self, raw: str) -> list[int]:
        """Every place at which the list has this token."""
        place = self.get(raw)
        if place is None or ("_first" in self.__dict__ and len(self._first) == len(self._raws)):
            return [] if place is None else [place]
        places = []
        while place is not None:
            places.append(place)
            try:
                place = self._raws.index(raw, place + 1)
            except ValueError:
                place = None
        return places

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        if "_first" in self.__dict__:
            return len(self._first)
        return self._raws.count_distinct() if isinstance(self._raws, _Distinct) else len(set(self._raws))


_SEARCHES = 32
"""So many searches take less time than the dictionary."""


class Vocabulary:
    """Which token is in which row, what is it called, and how is a text cut into tokens?

    source     name of the file
    model      what kind of tokenizer it is: "byte-level BPE", "BPE", "Unigram", "WordPiece", "WordLevel", "word list"
    marks      how the file writes spaces and the places in a word
    """

    def __init__(
        self,
        source: str,
        model: str,
        marks: Marks,
        entries: Mapping[str, int] | Sequence[str],
        added: Iterable[AddedToken] = (),
        unknown: str | int | None = None,
        make_cutter: Callable[[], Tokenizer] | str = "",
        prepends_space: bool = False,
        unused: Iterable[int] = (),
        notes: Iterable[str] = (),
    ) -> None:
        """Take what a reader found.

        `entries` are the trained tokens: ids by token, or tokens in the order of their ids. `unknown` is the token,
        or its id, that stands for what cannot be spelled. `make_cutter` makes the library's tokenizer, or says why
        there is none. `prepends_space` says that the tokenizer itself puts a space before a text, even where there is
        one. `unused` are ids that the file itself calls so.
        """
        self.source = source
        self.model = model
        self.marks = marks
        self._notes = list(notes)
        if isinstance(entries, Mapping):
            self._raws: Collection[str] = entries.keys()
            self._ids: Collection[int] = entries.values()
            self._id_of = entries
        else:
            self._raws, self._ids = entries, range(len(entries))
            self._id_of = _Places(entries)
        self._added: dict[int, AddedToken] = {}
        self._literal: dict[str, list[int]] = {}
        self._renamed: list[int] = []
        for token in added:
            self._add(token)
        self._unknown = self._ids_of_raw(unknown) if isinstance(unknown, str) else [unknown]
        self._make_cutter = make_cutter
        self._prepends_space = prepends_space
        self._unused = frozenset(unused)
        if not self._ids and not self._added:
            raise DamagedFileError(
                f"{source} holds no token.", "Name another tokenizer with --tokenizer PATH."
            )

    def _add(self, token: AddedToken) -> None:
        known = token.id if self._lists(token) else self._id_of.get(token.content)
        if known is not None and known != token.id:
            self._notes.append(
                f"{show(encode(token.content))} has id {known} in the vocabulary and id {token.id} among the added "
                f"tokens of {self.source}; both are kept."
            )
        if token.id in self._added and self._added[token.id].content != token.content:
            self._renamed.append(token.id)
        if token.special or known != token.id:
            ids = self._literal.setdefault(token.content, [])
            if token.id not in ids:
                ids.append(token.id)
        self._added.setdefault(token.id, token)

    def _lists(self, token: AddedToken) -> bool:
        """Whether this added token stands in its place in a list of trained tokens."""
        return isinstance(self._id_of, _Places) and self._raw_of.get(token.id) == token.content

    @cached_property
    def _oddities(self) -> tuple[str, ...]:
        """What is odd about the tokens as a whole: to tell it, all of them are looked at."""
        found = []
        n = len(self._raws) - len(self._id_of)
        if n:
            found.append(f"{n:,} tokens of {self.source} stand in it twice, under different ids.")
        if self.duplicates:
            ids = shorten(self.duplicates)
            found.append(f"Ids that more than one token of {self.source} has: {ids}. The first one is shown.")
        return tuple(found)

    def __repr__(self) -> str:
        return f"<Vocabulary {self.source}: {self.model}, {self.n_tokens:,} tokens>"

    # Facts

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the file, a sentence each; loading the library for a cut can add to them."""
        return (*self._notes, *self._oddities)

    @cached_property
    def _raw_of(self) -> Mapping[int, str]:
        """The first trained token of each id."""
        if isinstance(self._ids, range):
            return _Listed(cast(Sequence[str], self._raws))
        raw_of = dict(zip(self._ids, self._raws, strict=True))
        if len(raw_of) < len(self._ids):
            raw_of = {}
            for raw, id_ in zip(self._raws, self._ids, strict=True):
                raw_of.setdefault(id_, raw)
        return raw_of

    @cached_property
    def _sorted_ids(self) -> Sequence[int]:
        if isinstance(self._ids, range):
            beyond = sorted(id_ for id_ in self._added if id_ not in self._ids)
            return [*self._ids, *beyond] if beyond else self._ids
        return sorted(self._raw_of.keys() | self._added.keys() if self._added else self._raw_of)

    def ids(self) -> Sequence[int]:
        """Every id that a token has, ascending."""
        return self._sorted_ids

    @property
    def n_tokens(self) -> int:
        """How many ids have a token."""
        return len(self._sorted_ids)

    @property
    def max_id(self) -> int:
        """The highest id that a token has."""
        return self._sorted_ids[-1]

    @property
    def holes(self) -> tuple[range, ...]:
        """Ids below the highest that no token has."""
        return self.gaps(self.max_id)

    def gaps(self, n_rows: int) -> tuple[range, ...]:
        """Rows that no token names, of a table of n_rows rows."""
        ids = self._sorted_ids
        if ids[-1] == len(ids) - 1:
            return (range(len(ids), n_rows),) if n_rows > len(ids) else ()
        edges = [-1, *(id_ for id_ in ids if id_ < n_rows), n_rows]
        return tuple(range(before + 1, after) for before, after in pairwise(edges) if after - before > 1)

    def beyond(self, n_rows: int) -> list[int]:
        """Ids whose row a table of n_rows rows does not have."""
        return [id_ for id_ in self._sorted_ids if id_ >= n_rows] if self.max_id >= n_rows else []

    @cached_property
    def duplicates(self) -> tuple[int, ...]:
        """Ids that more than one token has, ascending."""
        twice = set(self._renamed)
        if len(self._raw_of) < len(self._ids):
            twice |= {id_ for id_, n in Counter(self._ids).items() if n > 1}
        twice |= {
            id_ for id_, token in self._added.items() if self._raw_of.get(id_, token.content) != token.content
        }
        return tuple(sorted(twice))

    # Tokens

    def __contains__(self, id_: object) -> bool:
        """Whether a token has this id."""
        return id_ in self._raw_of or id_ in self._added

    def token(self, id_: int) -> Token | None:
        """Which token is in this row? None where there is none."""
        raw, literal = self._raw(id_)
        if raw is None:
            return None
        return Token(id_, raw, show(encode(raw)) if literal else self.marks.show(raw), self._kind(id_, raw))

    def label(self, id_: int) -> str:
        """What do people call this row? The token's text, or "no token"."""
        raw, literal = self._raw(id_)
        if raw is None:
            return NO_TOKEN
        return show(encode(raw)) if literal else self.marks.show(raw)

    def bytes_of(self, id_: int) -> bytes | None:
        """Which bytes is this token in a text, with the space before a word?

        The same bytes are the same token in two vocabularies, however their files write it. Several tokens of one
        vocabulary can have the same bytes (`A` and `<0x41>`).
        """
        raw, literal = self._raw(id_)
        if raw is None:
            return None
        return encode(raw) if literal else self.marks.bytes_of(raw)

    @cached_property
    def ids_of_bytes(self) -> dict[bytes, list[int]]:
        """Which ids have these bytes, ascending? Made as a whole, for matching two vocabularies."""
        index: dict[bytes, list[int]] = {}
        for id_ in self._sorted_ids:
            index.setdefault(cast(bytes, self.bytes_of(id_)), []).append(id_)
        return index

    def grep(self, pattern: str) -> Iterator[Token]:
        """Which tokens' texts does this regular expression match, anywhere in them? In the order of their ids."""
        try:
            matches = re.compile(pattern).search
        except (re.error, OverflowError, RecursionError) as error:
            raise TokenError(
                f"{quote(pattern)} is no regular expression: {error}.",
                "A sign that is to stand for itself takes a backslash before it.",
            ) from None
        return (cast(Token, self.token(id_)) for id_ in self._sorted_ids if matches(self.label(id_)))

    def _raw(self, id_: int) -> tuple[str | None, bool]:
        """The token as its file has it; whether it stands for its own characters."""
        raw = self._raw_of.get(id_)
        added = self._added.get(id_)
        if raw is None:
            return (None, False) if added is None else (added.content, True)
        return raw, added is not None and added.special and added.content == raw

    def _kind(self, id_: int, raw: str) -> TokenKind:
        if id_ in self._unused or _UNUSED.fullmatch(raw):
            return "unused"
        added = self._added.get(id_)
        if added is not None and added.content == raw:
            return "special" if added.special else "added"
        return self.marks.place(raw)

    # Queries

    def find(self, query: str) -> FoundToken:
        """Which token does this query name?

        `id:477` is an id and `raw:Ġgirl` the file's own spelling; all else is the spelling that is shown, in which a
        leading `·`, `Ġ`, `▁` or space is a space. What is not in the vocabulary as typed is read as the tokenizer itself
        reads it, and a note says so.

        UnknownTokenError where there is no such token, NotOneTokenError where it is several.

        >>> from inspect_embed.storage.memory import MemoryFolder
        >>> folder = MemoryFolder({"vocab.json": '{"girl": 7, "Ġgirl": 8}'.encode()})
        >>> found = open_vocabulary(folder).find("·girl")
        >>> found.id, found.token.raw, found.notes
        (8, 'Ġgirl', ('Beside ·girl (id 8) there is also girl (id 7).',))
        """
        query = recover(query)
        if not query:
            raise TokenError("An empty word names no token.", "A space is typed as ·, a line break as \\n.")
        digits = query.removeprefix("id:")
        if digits != query and digits.isascii() and digits.isdigit() and len(digits) <= 19:
            return FoundToken(query, int(digits), self.token(int(digits)))
        if query.startswith("raw:") and (ids := self._ids_of_raw(query.removeprefix("raw:"))):
            return self._found(query, ids)
        typed = parse(query)
        if ids := self._ids_of_typed(typed):
            return self._found(query, ids, self._kin(typed, ids))
        if query.startswith("id:"):
            raise UnknownTokenError(f"{quote(query)} is no id.", "An id is a whole number from 0: id:477.")
        if query.startswith("raw:"):
            raise UnknownTokenError(
                f"{self.source} holds no token that it spells {quote(query.removeprefix('raw:'))}.",
                self._hint(parse(query.removeprefix("raw:"))),
            )
        if ids := self._ids_of_typed(parse_literally(query)):
            note = f"{quote(query)} was read with its backslash as a sign of its own: {self._name(ids[0])}."
            return FoundToken(query, ids[0], self.token(ids[0]), (note,))
        return self._find_by_cutting(query, typed)

    def pieces(self, query: str) -> list[int]:
        """Which tokens is this word, one or several? For the mean of a word's pieces.

        UnknownTokenError where it cannot be spelled with the vocabulary.
        """
        try:
            return [self.find(query).id]
        except NotOneTokenError:
            return self._cut_typed(parse(recover(query)))

    def closest(self, typed: bytes, n: int = CLOSEST) -> list[int]:
        """Which tokens are spelled most like these bytes? At most n ids, the likest first.

        The same letters in another place of a word or in other cases come first, then by the share of letters in
        common.
        """
        import difflib

        text = typed.decode(errors="replace").strip()
        raws: list[str] = []
        for form in dict.fromkeys((text, text.lower(), text.capitalize(), text.upper())):
            raws += self.marks.variants(encode(form))
        for word in self.marks.write(encode(text))[:1]:
            for core in difflib.get_close_matches(word, self._cores_like(word), n):
                raws += self.marks.variants(self.marks.decode(core))
        return list(dict.fromkeys(id_ for raw in raws for id_ in self._ids_of_raw(raw)))[:n]

    def _cores_like(self, word: str) -> list[str]:
        """Tokens without their marks that are about as long as a word and begin, or else go on, as it does.

        A quick sieve, so that a slow comparison sees hundreds of tokens and not all.
        """
        first, rest = word[:1].lower() + word[:1].upper(), word[1:]
        letters = set(word)
        enough = 0.6 * len(letters)
        lead, end = SPACE_MARKS + self.marks.space + self.marks.inner, self.marks.end
        longest = len(word) + 2 + max(len(self.marks.inner + end), 1)
        cores = {
            core
            for raw in self._raws
            if len(word) - 2 <= len(raw) <= longest
            and (core := raw.lstrip(lead).removesuffix(end))
            and (core[0] in first or core.endswith(rest))
            and len(letters.intersection(core)) >= enough
        }
        return sorted(cores)

    def _ids_of_raw(self, raw: str) -> list[int]:
        """Every id of a token that the file spells so; trained tokens before added ones."""
        if isinstance(self._id_of, _Places):
            ids = self._id_of.all_of(raw)
        else:
            id_ = self._id_of.get(raw)
            ids = [] if id_ is None else [id_]
        return list(dict.fromkeys([*ids, *self._literal.get(raw, ())]))

    def _ids_of_typed(self, typed: bytes) -> list[int]:
        """Every id of a token that is these bytes as they were typed, likeliest first."""
        ids = [id_ for raw in self.marks.raws(typed) for id_ in self._ids_of_raw(raw)]
        if self._literal:
            ids += self._literal.get(typed.decode(errors="replace"), ())
        return list(dict.fromkeys(ids))

    def _kin(self, typed: bytes, ids: Sequence[int]) -> list[int]:
        """Ids of the same letters in another place of a word."""
        kin = [id_ for raw in self.marks.variants(typed) for id_ in self._ids_of_raw(raw)]
        return [id_ for id_ in dict.fromkeys(kin) if id_ not in ids]

    def _found(self, query: str, ids: Sequence[int], kin: Sequence[int] = ()) -> FoundToken:
        others = [*ids[1:], *kin]
        notes: tuple[str, ...] = ()
        if others:
            notes = (f"Beside {self._name(ids[0])} there is also {shorten(map(self._name, others))}.",)
        return FoundToken(query, ids[0], self.token(ids[0]), notes)

    def _find_by_cutting(self, query: str, typed: bytes) -> FoundToken:
        """The one token that the tokenizer itself makes of this word; else the error that says what it makes."""
        problem = ""
        try:
            pieces = self._cut_typed(typed)
        except TokenError as error:
            pieces, problem = [], str(error)
        if len(pieces) == 1:
            note = f"{self.source} has no token {quote(query)}; its tokenizer reads it as {self._name(pieces[0])}."
            return FoundToken(query, pieces[0], self.token(pieces[0]), (note,))
        if pieces:
            raise NotOneTokenError(
                f"{quote(query)} is not one token of {self.source} but {len(pieces)}: "
                f"{shorten(map(self._name, pieces))}.",
                f"{self._hint(typed)} --mean takes the mean of the pieces.",
            )
        raise UnknownTokenError(
            f"{self.source} has no token {quote(query)}.", f"{self._hint(typed)} {problem}".strip()
        )

    def _hint(self, typed: bytes) -> str:
        """The other Unicode form where that one is a token, then the closest tokens."""
        sentences = []
        text = typed.decode(errors="replace")
        for form, kind in (("NFC", "composed"), ("NFD", "decomposed")):
            other = unicodedata.normalize(cast(Literal["NFC", "NFD"], form), text)
            if other != text and (ids := self._ids_of_typed(encode(other))):
                sentences.append(
                    f"Its {kind} form ({form}) is a token: {self._name(ids[0])}; ask for id:{ids[0]}."
                )
        closest = self.closest(typed)
        sentences.append(
            f"Closest: {', '.join(map(self._name, closest))}." if closest else "No token is close to it."
        )
        return " ".join(sentences)

    def _name(self, id_: int) -> str:
        return f"{self.label(id_)} (id {id_})"

    # Texts

    def cut(self, text: str) -> list[int]:
        """How is this text cut into tokens? Ids, with no special token added, no padding and no end.

        A `·`, `Ġ` or `▁` that leads a word is the space before it. TokenError where text cannot be cut.
        """
        text = recover(text)
        if text and not text.strip(SPACE_MARKS):
            return self._cut(" " * len(text))
        return self._cut(_MARKED_WORD.sub(lambda word: " " * len(word[1]), text))

    @property
    def can_cut(self) -> bool:
        """Whether a text can be cut; loads the library."""
        return not self.cut_problem

    @property
    def cut_problem(self) -> str:
        """Why no text can be cut; empty where it can. Loads the library."""
        return self._cutter if isinstance(self._cutter, str) else ""

    @cached_property
    def _cutter(self) -> Tokenizer | str:
        if isinstance(self._make_cutter, str):
            return self._make_cutter
        try:
            cutter = make_plain(self._make_cutter)
        except Refusal as refusal:
            return f"The tokenizers library cannot use {self.source}: {refusal}"
        moved = [
            f"{show(encode(token.content))} ({token.id} in the file, {its_id} there)"
            for token in self._added.values()
            if (its_id := cutter.token_to_id(token.content)) not in (None, token.id)
        ]
        if moved:
            self._notes.append(
                f"The tokenizers library gives {len(moved):,} added tokens of {self.source} other ids: "
                f"{shorten(moved)}. The file's ids are used here."
            )
        return cutter

    def _cut_typed(self, typed: bytes) -> list[int]:
        """The pieces of a word; none where the vocabulary cannot spell all of it."""
        try:
            text = typed.decode()
        except UnicodeDecodeError:
            return []
        pieces = self._cut(text)
        if any(id_ in pieces for id_ in self._unknown):
            return []
        # BPE without an unknown token leaves out what it cannot spell.
        spelled = b"".join(map(self._letters, pieces)).decode(errors="replace")
        wanted = normalize(cast("Tokenizer", self._cutter), text)
        return pieces if self._without_spaces(spelled) == self._without_spaces(wanted) else []

    def _letters(self, id_: int) -> bytes:
        """The bytes of a token without any mark of a word's beginning or end."""
        raw, literal = self._raw(id_)
        if raw is None or literal:
            return encode(raw or "")
        byte = self.marks.byte_of(raw)
        return self.marks.decode(self.marks.split(raw)[1]) if byte is None else bytes([byte])

    def _without_spaces(self, text: str) -> str:
        """Letters to compare: normalisers see control tokens too, and may change their case."""
        return "".join(text.replace(self.marks.space or " ", " ").split()).casefold()

    def _cut(self, text: str) -> list[int]:
        cutter = self._cutter
        if isinstance(cutter, str):
            raise TokenError(f"No text can be cut. {cutter}", "Ask for single tokens, or for ids (id:477).")
        if self._prepends_space:
            text = text.removeprefix(" ")
        try:
            pieces = cut(cutter, text)
        except Refusal as refusal:
            raise TokenError(
                f"The tokenizers library cannot cut this text with {self.source}: {refusal}",
                "Ask for single tokens, or for ids (id:477).",
            ) from None
        return [self._own_id(raw, id_) for raw, id_ in pieces]

    def _own_id(self, raw: str, its_id: int) -> int:
        """The file's id of a piece that the library made; the library numbers some tokens anew."""
        if self._raw_of.get(its_id) == raw:
            return its_id
        ids = self._ids_of_raw(raw)
        # A piece that the file does not hold is what the unknown token stands for.
        return ids[0] if ids else its_id


class _Reader(Protocol):
    """What a module of this package offers."""

    NAME: str
    FILES: tuple[str, ...]

    def claims(self, name: str, data: bytes) -> bool:
        """Are these bytes of a file called so in this format?"""
        ...

    def read(self, folder: Folder, name: str) -> Vocabulary:
        """The vocabulary in a file of this format."""
        ...


def _readers() -> Iterator[_Reader]:
    """Each reader when it is asked: the later ones are not loaded where an earlier one knows the files."""
    return (cast(_Reader, importlib.import_module(f"{__name__}.{module}")) for module in VOCABULARIES)


def open_vocabulary(
    folder: Folder, tokenizer: str | os.PathLike[str] | None = None, model_file: str | None = None
) -> Vocabulary | None:
    """Which vocabulary does this checkpoint use?

    `tokenizer`, a file or a folder that holds one, takes the place of the checkpoint's own. `model_file` is a file of
    the model that holds a vocabulary too, which goes before the files beside it. None where the folder has none that
    can be read (`explain_absence` says why); NotACheckpointError where `tokenizer` has none. A file that is damaged
    gives way to the next, with a note; DamagedFileError where there is no next.
    """
    if tokenizer is not None:
        return _open_path(Path(tokenizer))
    names = set(folder.names())
    failures: list[InspectEmbedError] = []
    if model_file is not None:
        try:
            inside = _read_model_file(folder, model_file)
        except DamagedFileError as error:
            failures.append(error)
        else:
            if inside is not None:
                return inside
    for reader in _readers():
        for name in reader.FILES:
            if name not in names:
                continue
            try:
                vocabulary = reader.read(folder, name)
            except DamagedFileError as error:
                failures.append(error)
                continue
            vocabulary._notes.extend(f"{failure} Tokens come from {name}." for failure in failures)
            return vocabulary
    if failures:
        raise failures[0]
    return None


def _read_model_file(folder: Folder, name: str) -> Vocabulary | None:
    """The vocabulary inside a model's file; None where no reader knows the file by its first bytes."""
    source = folder.open(name)
    try:
        start = bytes(source.read(0, 64))
    finally:
        source.close()
    for reader in _readers():
        if not reader.FILES and reader.claims(name, start):
            return reader.read(folder, name)
    return None


def explain_absence(folder: Folder) -> str:
    """Why has this folder no vocabulary that can be read? One sentence."""
    known = [name for reader in _readers() for name in reader.FILES]
    unread = [name for name in folder.names() if _unread_kind(name)]
    if unread:
        return f"{unread[0]} is {_unread_kind(unread[0])}, which cannot be read here, and there is no {known[0]}."
    return f"There is no {', '.join(known[:-1])} or {known[-1]}."


def _unread_kind(name: str) -> str:
    """What a tokenizer file is that no reader reads; empty for every other file."""
    if name.endswith((".model", ".spm")) or name.startswith("tokenizer.model"):
        return "a SentencePiece model"
    if name.endswith(".tiktoken"):
        return "a tiktoken list of ranks"
    return "a Tekken vocabulary" if name == "tekken.json" else ""


def _open_path(path: Path) -> Vocabulary:
    hint = (
        "--tokenizer takes a tokenizer.json, vocab.json, vocab.txt or .gguf file, or a folder that holds one."
    )
    if path.is_dir():
        folder = LocalFolder(path)
        vocabulary = open_vocabulary(folder)
        if vocabulary is None:
            raise NotACheckpointError(f"{path} holds no tokenizer: {explain_absence(folder)}", hint)
        return vocabulary
    if not path.is_file():
        raise NotACheckpointError(f"There is no tokenizer at {path}.", hint)
    if _unread_kind(path.name):
        raise NotACheckpointError(f"{path} is {_unread_kind(path.name)}, which cannot be read here.", hint)
    folder = LocalFolder(path.parent)
    inside = _read_model_file(folder, path.name)
    if inside is not None:
        return inside
    data = read_text(folder, path.name).encode()
    for reader in _readers():
        if reader.claims(path.name, data):
            return reader.read(folder, path.name)
    raise NotACheckpointError(f"{path} is no tokenizer file that can be read here.", hint)
