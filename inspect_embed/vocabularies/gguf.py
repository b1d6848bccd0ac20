"""The vocabulary inside a GGUF file: a list of tokens, their types, and merges or scores by which text is cut.

How text is prepared is named, not spelled out; what the names stand for is on record here, and text is not cut where
a name is not on record.

Source: llama.cpp, src/llama-vocab.cpp (what each kind of tokenizer and each name of a pre-tokenizer does).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from inspect_embed.errors import DamagedFileError
from inspect_embed.formats._listed import quote
from inspect_embed.formats.gguf import Header, read_bytes, read_header, read_numbers, read_texts, recognizes
from inspect_embed.spelling import Marks, guess_marks
from inspect_embed.storage import Folder
from inspect_embed.vocabularies import AddedToken, Vocabulary
from inspect_embed.vocabularies._files import is_id

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "GGUF"
FILES = ()

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of tokens.

Source: llama.h, enum llama_token_type.
"""

_TEXTS, _WHOLE, _FLOATS, _BYTES = 8, (4, 5), (4, 5, 6, 12), (0, 1)

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_WORDS = _LLAMA3_WORDS.replace("{1,3}", "")
_CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}*{_CASED[1]}+|[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}+{_CASED[1]}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SHORT_FORMS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}*{_CASED[1]}+{_SHORT_FORMS}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}+{_CASED[1]}*{_SHORT_FORMS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Words:
    """How a pre-tokenizer parts a text into words, and whether a word that is a token is cut at all."""

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    keeps_tokens: bool = False


PRE_TOKENIZERS = (
    Words(
        (
            "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum", "modern-bert",
            "jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4", "mpt", "olmo", "jais", "trillion", "granite-docling",
        ),
        (_GPT2_WORDS,),
    ),
    Words(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
        (r"\p{N}", _GPT2_WORDS),
    ),
    Words(
        (
            "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
        ),
        (_LLAMA3_WORDS,),
        keeps_tokens=True,
    ),
    Words(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), (_LLAMA3_WORDS,)),
    Words(
        (
            "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2",
        ),
        (_QWEN2_WORDS,),
    ),
    Words(("tekken",), (_TEKKEN_WORDS,), keeps_tokens=True),
    Words(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), (_GPT4O_WORDS,)),
)  # fmt: skip
"""Pre-tokenizers on record, by the names that files give them."""

_WORDS_OF = {name: words for words in PRE_TOKENIZERS for name in words.names}


@dataclass(frozen=True, slots=True)
class _Tokenizer:
    """What a file says of its tokenizer; long lists are read when they are asked for."""

    folder: Folder
    header: Header
    tokens: Sequence[str]
    types: bytes
    added: Sequence[AddedToken]

    def flag(self, key: str, default: bool) -> bool:
        """What this key says, or the default."""
        said = self.header.flag(f"tokenizer.ggml.{key}")
        return default if said is None else said

    def merges(self) -> list[tuple[str, str]]:
        """Which two pieces are joined, in the order in which they were learned."""
        listed = self.header.long_list("tokenizer.ggml.merges", _TEXTS)
        lines = read_texts(self.folder, self.header.name, listed) if listed else []
        pairs = ((line, line.find(" ", 1)) for line in lines)
        return [(line[:space], line[space + 1 :]) for line, space in pairs if space > 0]

    def scores(self) -> list[float]:
        """How likely each token is; as many as there are tokens, or none."""
        listed = self.header.long_list("tokenizer.ggml.scores", *_FLOATS)
        if listed is None or listed.n_items != len(self.tokens):
            return []
        return [float(score) for score in read_numbers(self.folder, self.header.name, listed)]

    def ids(self) -> dict[str, int]:
        """The id of each token; of two that are spelled alike, the first one's."""
        return dict(zip(reversed(self.tokens), reversed(range(len(self.tokens))), strict=True))


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of tokenizer: what people call it, how it writes spaces, what makes the library's own of it."""

    model: str
    marks: Marks
    make: Callable[[_Tokenizer], Tokenizer]
    refuse: Callable[[_Tokenizer], str]
    """Why a text cannot be cut; empty where it can."""
    adds_space: bool = False
    """Whether a space is put before a text where the file does not say."""


def claims(name: str, data: bytes) -> bool:
    """Whether these first bytes begin a GGUF file, whatever it is called."""
    return recognizes(data)


def read(folder: Folder, name: str) -> Vocabulary:
    """Which tokens does this file have? DamagedFileError where it has none."""
    header = read_header(folder, name)
    listed = header.long_list("tokenizer.ggml.tokens", _TEXTS)
    if listed is None or not listed.n_items:
        raise DamagedFileError(f"{name} holds no vocabulary.", "Name a tokenizer with --tokenizer PATH.")
    tokens = read_texts(folder, name, listed)
    notes: list[str] = []
    types = _read_types(folder, header, len(tokens), notes)
    unknown = _unknown(header, types)
    added = [
        AddedToken(tokens[id_], id_, types[id_] != USER_DEFINED)
        for id_ in _of_types(types, UNKNOWN, CONTROL, USER_DEFINED)
    ]
    tokenizer = _Tokenizer(folder, header, tokens, types, added)
    named = header.text("tokenizer.ggml.model") or "none"
    kind = _KINDS.get(named)
    refusal = (
        kind.refuse(tokenizer)
        if kind
        else f"How a tokenizer of the kind {quote(named)} cuts is not on record."
    )
    return Vocabulary(
        source=name,
        model=kind.model if kind else quote(named).strip("'"),
        marks=kind.marks if kind else guess_marks(tokens),
        entries=tokens,
        added=added,
        unknown=unknown,
        unused=_of_types(types, UNUSED),
        make_cutter=partial(kind.make, tokenizer) if kind and not refusal else refusal,
        prepends_space=kind is _KINDS["llama"] and tokenizer.flag("add_space_prefix", kind.adds_space),
        notes=notes,
    )


def _read_types(folder: Folder, header: Header, n_tokens: int, notes: list[str]) -> bytes:
    """The type of each token, a byte each; nothing where the file does not say."""
    listed = header.long_list("tokenizer.ggml.token_type", *_WHOLE)
    if listed is None:
        return b""
    if listed.n_items != n_tokens:
        notes.append(
            f"{header.name} has {n_tokens:,} tokens and types for {listed.n_items:,}; the types were not used."
        )
        return b""
    # Numbers of four bytes, of which one says all: no type is above 6.
    return read_bytes(folder, header.name, listed)[::4]


def _of_types(types: bytes, *wanted: int) -> Iterator[int]:
    """Ids of the tokens of these types."""
    return (match.start() for match in re.finditer(b"[" + bytes(wanted) + b"]", types))


def _unknown(header: Header, types: bytes) -> int | None:
    """The id of the token that stands for what cannot be spelled."""
    stated = header.integer("tokenizer.ggml.unknown_token_id")
    listed = header.long_list("tokenizer.ggml.tokens", _TEXTS)
    if is_id(stated) and listed is not None and stated < listed.n_items:
        return stated
    return next(_of_types(types, UNKNOWN), None)


# --- how each kind cuts ----------------------------------------------------------------------------------------


def _make_byte_level(tokenizer: _Tokenizer) -> Tokenizer:
    from tokenizers import Regex, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    words = _WORDS_OF[tokenizer.header.text("tokenizer.ggml.pre") or ""]
    library = Library(
        models.BPE(vocab=tokenizer.ids(), merges=tokenizer.merges(), ignore_merges=words.keeps_tokens)
    )
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in words.patterns),
            pre_tokenizers.ByteLevel(
                add_prefix_space=tokenizer.flag("add_space_prefix", False), use_regex=False
            ),
        ]
    )
    return _with_whole_tokens(library, tokenizer.added)


def _refuse_byte_level(tokenizer: _Tokenizer) -> str:
    if tokenizer.header.long_list("tokenizer.ggml.merges", _TEXTS) is None:
        return f"{tokenizer.header.name} has no merges, which alone say how text is cut."
    named = tokenizer.header.text("tokenizer.ggml.pre")
    if named in _WORDS_OF:
        return ""
    said = (
        f"names the pre-tokenizer {quote(named)}, which is not on record"
        if named
        else "names no pre-tokenizer"
    )
    return f"{tokenizer.header.name} {said}: how words are parted is not known."


def _make_sentence_piece(tokenizer: _Tokenizer) -> Tokenizer:
    """Pieces are joined by the score of what they make: the best first. As merges: every two tokens that make a third."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers

    ids, scores = tokenizer.ids(), tokenizer.scores()
    made = [
        (-scores[id_], id_, ids[piece[:cut]], ids[piece[cut:]])
        for id_, piece in enumerate(tokenizer.tokens)
        if not tokenizer.types or tokenizer.types[id_] in (NORMAL, USER_DEFINED, UNUSED)
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    made.sort()
    tokens = tokenizer.tokens
    unknown = _unknown(tokenizer.header, tokenizer.types)
    library = Library(
        models.BPE(
            vocab=ids,
            merges=[(tokens[left], tokens[right]) for _, _, left, right in made],
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prepend = (
        [normalizers.Prepend("▁")] if tokenizer.flag("add_space_prefix", _KINDS["llama"].adds_space) else []
    )
    library.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    return _with_whole_tokens(library, tokenizer.added)


def _make_unigram(tokenizer: _Tokenizer) -> Tokenizer:
    from tokenizers import Regex, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Library

    header = tokenizer.header
    unknown = _unknown(header, tokenizer.types)
    pieces = list(zip(tokenizer.tokens, tokenizer.scores(), strict=True))
    library = Library(models.Unigram(pieces, unk_id=unknown, byte_fallback=False))
    steps: list[normalizers.Normalizer] = []
    listed = header.long_list("tokenizer.ggml.precompiled_charsmap", *_BYTES)
    if listed is not None and listed.n_items:
        letters = bytes(n & 0xFF for n in read_numbers(tokenizer.folder, header.name, listed))
        steps.append(normalizers.Precompiled(letters))
    if tokenizer.flag("remove_extra_whitespaces", False):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if steps:
        library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme="always" if tokenizer.flag("add_space_prefix", True) else "never"
    )
    return _with_whole_tokens(library, tokenizer.added)


def _refuse_without_scores(tokenizer: _Tokenizer) -> str:
    listed = tokenizer.header.long_list("tokenizer.ggml.scores", *_FLOATS)
    if listed is None or listed.n_items != len(tokenizer.tokens):
        return f"{tokenizer.header.name} has no score for each token, which alone say how text is cut."
    return ""


def _make_word_piece(tokenizer: _Tokenizer) -> Tokenizer:
    """The longest token first, word by word; a token that begins a word is written with a ▁ in these files."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

    tokens = tokenizer.tokens
    unknown = _unknown(tokenizer.header, tokenizer.types)
    drops_case = tokenizer.flag("normalizer.lowercase", not any(token != token.lower() for token in tokens if "[" not in token))  # fmt: skip
    library = Library(
        models.WordPiece(
            vocab=tokenizer.ids(),
            unk_token="[UNK]" if unknown is None else tokens[unknown],
            continuing_subword_prefix="",
        )
    )
    library.normalizer = normalizers.BertNormalizer(
        lowercase=drops_case, strip_accents=tokenizer.flag("normalizer.strip_accents", drops_case)
    )
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.BertPreTokenizer(),
            pre_tokenizers.Metaspace(prepend_scheme="always", split=False),
        ]
    )
    return _with_whole_tokens(library, tokenizer.added)


def _never(tokenizer: _Tokenizer) -> str:
    return ""


def _with_whole_tokens(library: Tokenizer, added: Iterable[AddedToken]) -> Tokenizer:
    """Have these tokens matched as wholes, before a text is cut."""
    from tokenizers import AddedToken as Added

    for token in added:
        whole = Added(token.content, special=token.special, normalized=not token.special)
        (library.add_special_tokens if token.special else library.add_tokens)([whole])
    return library


_KINDS: Mapping[str, _Kind] = {
    "gpt2": _Kind("byte-level BPE", Marks(byte_level=True), _make_byte_level, _refuse_byte_level),
    "llama": _Kind(
        "BPE",
        Marks(space="▁", byte_tokens=True),
        _make_sentence_piece,
        _refuse_without_scores,
        adds_space=True,
    ),
    "t5": _Kind("Unigram", Marks(space="▁", byte_tokens=True), _make_unigram, _refuse_without_scores),
    "bert": _Kind("WordPiece", Marks(space="▁"), _make_word_piece, _never),
}
"""Kinds of tokenizers on record, by the value of `tokenizer.ggml.model`."""
