"""GGUF: one file, or a split one. The header is walked through once; values and long lists stay where they are.

A file says what it holds, first in pairs of a key and a value (the architecture, the vocabulary), then in a list of
tensors. Its shapes name the width of a row first.

Source: ggml, docs/gguf.md; the keys as gguf-py/gguf/constants.py and src/llama-arch.cpp have them.
"""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload
from weakref import WeakKeyDictionary

from inspect_embed.encodings import ENCODINGS, Encoding
from inspect_embed.errors import CheckpointError, DamagedFileError, NotACheckpointError, shorten
from inspect_embed.formats import TensorEntry
from inspect_embed.formats._impostors import refuse_impostors
from inspect_embed.formats._listed import ListedTensors, open_file, quote
from inspect_embed.storage import ByteSource, Folder

NAME = "GGUF"
SUFFIXES = (".gguf",)
MAGIC = b"GGUF"

_VERSIONS = (2, 3)
_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_WINDOW = 1 << 20
_LONGEST_NAME = 65_535
_LONGEST_ARCHITECTURE = 64
_LONGEST_TEXT = 1 << 24
_MOST_PAIRS = 100_000
_MOST_TENSORS = 1 << 20
_MOST_DIMENSIONS = 8
_MOST_TEXTS = 1 << 24
_DEEPEST_LIST = 4
_LARGEST_SIZE = 1 << 60
_AGAIN = "Fetch the file again."

_TYPES: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
"""Encodings by their number in a file.

Source: ggml.h, enum ggml_type.
"""

_WITHDRAWN: Mapping[int, str] = {
    4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}  # fmt: skip
"""Numbers that ggml gave up: named, counted by the bytes that they take, and not read."""

_SCALARS: Mapping[int, struct.Struct] = {
    code: struct.Struct("<" + letter)
    for code, letter in {
        0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
    }.items()
}  # fmt: skip
_TEXT, _LIST = 8, 9

_TOKEN_TABLES = ("token_embd.weight", "output.weight")
"""Tensors with a row for each token."""

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class LongList:
    """A list in the header that has not been read: what its items are, how many, and where they lie.

    `starts` are the places of its texts, counted from its own; each begins with its length. Nothing for other lists.
    """

    kind: int
    n_items: int
    start: int
    stop: int
    starts: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ListedTensor:
    """A tensor as the header lists it; `offset` counts from where the data begin."""

    name: str
    dimensions: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says of itself."""

    name: str
    size: int
    pairs: Mapping[str, Scalar | LongList]
    tensors: tuple[ListedTensor, ...]
    data_start: int

    def text(self, key: str) -> str | None:
        """The text of this key; None where it has none."""
        value = self.pairs.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        """The whole number of this key; None where it has none."""
        value = self.pairs.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, key: str) -> bool | None:
        """Whether this key says yes; None where it says nothing."""
        value = self.pairs.get(key)
        return value if isinstance(value, bool) else None

    def long_list(self, key: str, *kinds: int) -> LongList | None:
        """The list of this key; None where there is none, or where its items are of another kind."""
        value = self.pairs.get(key)
        return value if isinstance(value, LongList) and (not kinds or value.kind in kinds) else None


class GGUFTensors(ListedTensors):
    """The tensors of one GGUF file or of a split one; a `TensorSet`."""

    format = NAME

    def read(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        """Bytes start to stop of a tensor, as a read-only view; DamagedFileError where they are not there."""
        return self._read_range(entry, entry.start + start, entry.start + stop)


def claims(names: Iterable[str], chosen: str | None) -> bool:
    """Is this folder, or the file chosen in it, a GGUF checkpoint?"""
    return any(name.lower().endswith(SUFFIXES) for name in (names if chosen is None else (chosen,)))


def recognizes(start: bytes) -> bool:
    """Do these first bytes begin a GGUF file?"""
    return start.startswith(MAGIC)


def read_tensors(folder: Folder, chosen: str | None = None, allow_partial: bool = False) -> GGUFTensors:
    """Which tensors does this checkpoint hold?

    `chosen` is a file of the folder; a part of a split file stands for the whole. Parts that are missing, cut short or
    unreadable beside others that are not become warnings. Cost: the headers. Errors: DamagedFileError,
    NotACheckpointError.
    """
    names = folder.names()
    files, missing = _choose_files(names, chosen, folder.location)
    tensors = GGUFTensors(folder, allow_partial)
    tensors.missing_files = tuple(missing)
    if missing:
        tensors.warnings += (f"{len(missing)} parts of a split file are not there: {shorten(missing)}.",)
    headers: list[Header] = []
    for file in files:
        try:
            headers.append(read_header(folder, file))
        except CheckpointError as error:
            if len(files) == 1:
                raise
            tensors.missing_files += (file,)
            tensors.warnings += (f"{error} Its tensors are missing.",)
    if not headers:
        raise DamagedFileError(f"None of the {len(files)} parts can be read: {tensors.warnings[0]}", _AGAIN)
    tensors.files = tuple(header.name for header in headers)
    main = next((header for header in headers if "general.architecture" in header.pairs), headers[0])
    tokens = main.long_list("tokenizer.ggml.tokens", _TEXT)
    for header in headers:
        _add_tensors(tensors, header, tokens.n_items if tokens else None)
    stated = main.integer("split.tensors.count")
    if stated is not None and stated != len(tensors) and not tensors.missing_files:
        tensors.warnings += (f"{main.name} promises {stated:,} tensors; its parts hold {len(tensors):,}.",)
    tensors.metadata = {key: value for key, value in main.pairs.items() if isinstance(value, str)}
    tensors.config = describe(main, tensors.names())
    tensors.vocabulary_file = main.name if tokens else None
    return tensors


def _choose_files(names: list[str], chosen: str | None, location: str) -> tuple[list[str], list[str]]:
    """The files that make one model, and those missing among them."""
    here = [name for name in names if name.lower().endswith(SUFFIXES)] if chosen is None else [chosen]
    groups = dict.fromkeys(_group(name) for name in here)
    if len(groups) > 1:
        # A projector of images is written beside the model that it belongs to.
        groups = dict.fromkeys(group for group in groups if "mmproj" not in group.lower()) or groups
    if len(groups) > 1:
        raise NotACheckpointError(
            f"{location} holds {len(groups)} GGUF models: {shorten(groups)}.", "Name the file that is meant."
        )
    (group,) = groups
    files = [name for name in names if _group(name) == group]
    parts = _SPLIT.fullmatch(files[0])
    if parts is None:
        return files, []
    # The count is a claim of the name alone: no more are listed than could matter to a reader.
    wanted = range(1, min(int(parts["count"]), 10_000) + 1)
    present = {int(match["number"]) for match in map(_SPLIT.fullmatch, files) if match}
    absent = [n for n in wanted if n not in present]
    return files, [f"{parts['stem']}-{n:05d}-of-{parts['count']}{files[0][-5:]}" for n in absent]


def _group(name: str) -> str:
    """The name that the parts of one split file share."""
    parts = _SPLIT.fullmatch(name)
    return f"{parts['stem']}-of-{parts['count']}" if parts else name


def _add_tensors(tensors: GGUFTensors, header: Header, n_tokens: int | None) -> None:
    offsets = sorted({listed.offset for listed in header.tensors})
    entries = [_make_entry(header, listed, offsets, n_tokens, tensors) for listed in header.tensors]
    end = max((entry.stop for entry in entries), default=header.data_start)
    total = sum(entry.n_bytes for entry in entries)
    if total > end - header.data_start:
        raise DamagedFileError(
            f"The header of {header.name} contradicts itself: its tensors take {total:,} bytes and share "
            f"{end - header.data_start:,}.",
            "Fetch the file again, or ask who wrote it.",
        )
    for entry in entries:
        tensors._add(entry)
    if end > header.size:
        problem = f"{header.name} is cut short: it needs {end:,} bytes and has {header.size:,}."
        tensors._short[header.name] = problem
        tensors.warnings += (problem,)


def _make_entry(
    header: Header, listed: ListedTensor, offsets: list[int], n_tokens: int | None, tensors: GGUFTensors
) -> TensorEntry:
    """A tensor of the header, held against the size of its blocks; `offsets` are those of all, ascending."""
    shape = tuple(reversed(listed.dimensions))
    if (
        listed.name in _TOKEN_TABLES
        and n_tokens is not None
        and len(shape) == 2
        and shape[0] != n_tokens == shape[1]
    ):
        # Whoever wrote this shape named the rows first.
        shape = listed.dimensions
        tensors.notes += (
            f"The shape of {listed.name} is written the other way round; its {n_tokens:,} rows are the tokens.",
        )
    start = header.data_start + listed.offset
    n_elements, width = math.prod(shape), shape[-1] if shape else 1
    if max(n_elements, start) >= _LARGEST_SIZE:
        raise DamagedFileError(
            f"The header of {header.name} is damaged at {quote(listed.name)}: no file holds so many numbers.",
            _AGAIN,
        )
    encoding = ENCODINGS.get(_TYPES.get(listed.kind, ""))
    if encoding is None:
        # What can be told is how many bytes lie between this tensor and the next.
        after = bisect_right(offsets, listed.offset)
        stop = header.data_start + offsets[after] if after < len(offsets) else header.size
        n_bytes = max(stop - start, 0)
        name = _WITHDRAWN.get(listed.kind, f"GGML type {listed.kind}")
        encoding = Encoding(name, max(n_elements, 1), n_bytes)
    elif width % encoding.block_elements:
        raise DamagedFileError(
            f"The header of {header.name} is damaged at {quote(listed.name)}: rows of {width:,} numbers cannot be "
            f"whole blocks of {encoding.name}, which hold {encoding.block_elements}.",
            _AGAIN,
        )
    return TensorEntry(
        listed.name, shape, encoding, header.name, start, start + encoding.count_bytes(n_elements)
    )


# --- the model in the words of config.json ---------------------------------------------------------------------

_MODEL_TYPES: Mapping[str, str] = {
    "gptneox": "gpt_neox", "starcoder": "gpt_bigcode", "phi2": "phi", "gemma-embedding": "gemma3_text", "command-r": "cohere",
    "deepseek2": "deepseek_v2", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "qwen2vl": "qwen2_vl",
    "qwen3vl": "qwen3_vl", "t5encoder": "t5", "llama4": "llama4_text", "glm4moe": "glm4_moe", "ernie4_5-moe": "ernie4_5_moe",
    "phimoe": "phimoe", "granitemoe": "granitemoe", "nomic-bert-moe": "nomic_bert", "jina-bert-v2": "jina_bert",
    "hunyuan-moe": "hunyuan_v1_moe", "hunyuan-dense": "hunyuan_v1_dense", "bailingmoe": "bailing_moe", "falcon-h1": "falcon_h1",
}  # fmt: skip
"""`model_type` of architectures that have another name in GGUF."""

_CONFIG_KEYS: Mapping[str, str] = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "vocab_size": "vocab_size",
    "embedding_scale": "embedding_multiplier",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
}
"""Keys of an architecture, and what config.json calls them."""

_LOCAL_THETA: Mapping[str, float] = dict.fromkeys(("gemma3", "gemma3n", "gemma-embedding"), 10_000.0)
"""What turns the layers of sliding attention where the file does not say.

Source: llama.cpp, src/llama-model.cpp, rope_freq_base_train_swa.
"""

_SCALING_KEYS: Mapping[str, str] = {
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attention_factor",
}


def describe(header: Header, names: Sequence[str]) -> dict[str, Any]:
    """What does the header say of the model, in the words of config.json? Empty where it names no architecture."""
    architecture = header.text("general.architecture")
    if architecture is None or len(architecture) > _LONGEST_ARCHITECTURE:
        return {}
    config: dict[str, Any] = {
        "model_type": _MODEL_TYPES.get(architecture, architecture.replace("-", "_")),
    }
    for key, word in _CONFIG_KEYS.items():
        value = header.pairs.get(f"{architecture}.{key}")
        if isinstance(value, int | float):
            config[word] = value
    if architecture in _LOCAL_THETA:
        config.setdefault("rope_local_base_freq", _LOCAL_THETA[architecture])
    tokens = header.long_list("tokenizer.ggml.tokens", _TEXT)
    if tokens is not None:
        config["vocab_size"] = tokens.n_items
    _describe_positions(header, architecture, config)
    if "output.weight" not in names and _writes_text(header, architecture):
        config["tie_word_embeddings"] = True
    return config


def _describe_positions(header: Header, architecture: str, config: dict[str, Any]) -> None:
    turned = header.integer(f"{architecture}.rope.dimension_count")
    if turned:
        config["rotary_dim"] = turned
        width, heads = config.get("hidden_size"), config.get("num_attention_heads")
        if "head_dim" not in config and type(width) is int and type(heads) is int and heads > 0:
            config["head_dim"] = width // heads
        head = config.get("head_dim")
        if type(head) is int and 0 < turned < head:
            config["partial_rotary_factor"] = turned / head
        elif type(head) is int and turned > head:
            config["head_dim"] = turned
    scaling = header.text(f"{architecture}.rope.scaling.type")
    if scaling is not None and scaling != "none":
        numbers = {word: header.pairs.get(f"{architecture}.{key}") for key, word in _SCALING_KEYS.items()}
        config["rope_scaling"] = {
            "rope_type": scaling,
            **{word: value for word, value in numbers.items() if isinstance(value, int | float)},
        }
    bias = header.pairs.get(f"{architecture}.attention.max_alibi_bias")
    if isinstance(bias, float) and bias > 0:
        config["alibi"] = True


def _writes_text(header: Header, architecture: str) -> bool:
    """Whether the model has an output head: without a tensor of its own, llama.cpp takes the token table for it."""
    return (
        header.flag(f"{architecture}.attention.causal") is not False
        and f"{architecture}.pooling_type" not in header.pairs
        and architecture not in ("t5encoder", "clip")
    )


# --- the header ------------------------------------------------------------------------------------------------


class _Cursor:
    """A place in a file's bytes, of which a window is held; every length is held against the file's size."""

    def __init__(self, source: ByteSource, name: str) -> None:
        self._source = source
        self._name = name
        self._window = memoryview(b"")
        self._base = 0
        self._at = 0

    @property
    def place(self) -> int:
        """Bytes from the beginning of the file."""
        return self._base + self._at

    @property
    def left(self) -> int:
        """Bytes to the end of the file."""
        return self._source.size - self.place

    def cut_short(self, needed: int) -> DamagedFileError:
        """The error for a file that ends before this many further bytes."""
        return DamagedFileError(
            f"{self._name} is cut short inside its header: it needs at least {self.place + needed:,} bytes and has "
            f"{self._source.size:,}.",
            _AGAIN,
        )

    def damaged(self, what: str) -> DamagedFileError:
        """The error for a header that cannot be so."""
        return DamagedFileError(f"The header of {self._name} is damaged: {what}.", _AGAIN)

    def need(self, n_bytes: int) -> None:
        """Have this many bytes in the window."""
        if len(self._window) - self._at >= n_bytes:
            return
        if n_bytes > self.left:
            raise self.cut_short(n_bytes)
        self._base, self._at = self.place, 0
        self._window = self._source.read(self._base, self._base + max(_WINDOW, n_bytes))

    def skip(self, n_bytes: int) -> None:
        """Go this many bytes further."""
        if n_bytes > self.left:
            raise self.cut_short(n_bytes)
        self._at += n_bytes

    def number(self, form: struct.Struct) -> Any:
        """The number at this place."""
        self.need(form.size)
        (value,) = form.unpack_from(self._window, self._at)
        self._at += form.size
        return value

    def text(self, longest: int) -> str:
        """The text at this place, behind its length."""
        length = self.number(_U64)
        if length > self.left:
            raise self.cut_short(length)
        if length > longest:
            raise self.damaged(f"a name or text of {length:,} bytes")
        self.need(length)
        raw = bytes(self._window[self._at : self._at + length])
        self._at += length
        return raw.decode("utf-8", "surrogateescape")

    def skip_texts(self, count: int) -> list[int]:
        """Go past this many texts: where each begins. One plain loop: a vocabulary has hundreds of thousands."""
        unpack, size, origin = _U64.unpack_from, self._source.size, self.place
        starts: list[int] = []
        keep = starts.append
        while len(starts) < count:
            self.need(8)
            window, at, base = self._window, self._at, self._base - origin
            try:
                for _ in range(count - len(starts)):
                    length = unpack(window, at)[0]
                    keep(base + at)
                    at += length + 8
            except (struct.error, OverflowError):
                pass  # the window ends here, or the text is longer than any file
            self._at = at
            if self._base + at > size:
                raise DamagedFileError(
                    f"{self._name} is cut short inside its header: a list of texts runs past its {size:,} bytes.",
                    _AGAIN,
                )
        return starts


_U32, _U64 = _SCALARS[4], _SCALARS[10]


def read_header(folder: Folder, name: str) -> Header:
    """What does this file say of itself? Texts in lists, and values of tensors, are not read.

    Errors: NotACheckpointError where it is no GGUF file, DamagedFileError where it is cut short or contradicts itself.
    """
    known = _HEADERS.setdefault(folder, {})
    if name not in known:
        source = open_file(folder, name)
        try:
            known[name] = _read_header(source, name)
        finally:
            source.close()
    return known[name]


_HEADERS: WeakKeyDictionary[Folder, dict[str, Header]] = WeakKeyDictionary()
"""Headers that were read, while their folder is in use: the vocabulary is read from the file that the tensors are in."""


def _read_header(source: ByteSource, name: str) -> Header:
    start = bytes(source.read(0, 1024))
    if not start.startswith(MAGIC):
        refuse_impostors(start, source.size, name, "a GGUF file")
        raise NotACheckpointError(
            f"{name} is not a GGUF file: it begins with {start[:4]!r}, not with {MAGIC!r}.",
            "Check where the file came from.",
        )
    cursor = _Cursor(source, name)
    cursor.skip(4)
    version = cursor.number(_U32)
    if version and version & 0xFFFF == 0:
        raise NotACheckpointError(
            f"{name} is a big-endian GGUF file, written for other processors; only little-endian ones are read.",
            "Look for the usual file of the same model.",
        )
    if version not in _VERSIONS:
        raise NotACheckpointError(
            f"{name} is a GGUF file of version {version}; versions 2 and 3 are read.",
            "Look for a newer file of the same model." if version < 2 else "Look for a newer inspect-embed.",
        )
    n_tensors, n_pairs = cursor.number(_U64), cursor.number(_U64)
    # The shortest pair has a key without letters and one byte; the shortest tensor has no name and no dimension.
    for count, most, shortest, what in (
        (n_pairs, _MOST_PAIRS, 13, "pairs of metadata"),
        (n_tensors, _MOST_TENSORS, 24, "tensors"),
    ):
        if count > most:
            raise cursor.damaged(f"it promises {count:,} {what}")
        if count * shortest > cursor.left:
            raise cursor.cut_short(count * shortest)
    pairs: dict[str, Scalar | LongList] = {}
    for _ in range(n_pairs):
        key = cursor.text(_LONGEST_NAME)
        if key in pairs:
            raise cursor.damaged(f"the key {quote(key)} stands in it twice")
        pairs[key] = _read_value(cursor, cursor.number(_U32))
    tensors = tuple(_read_listed(cursor) for _ in range(n_tensors))
    alignment = pairs.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise cursor.damaged("the alignment is no power of two")
    data_start = -(-cursor.place // alignment) * alignment
    return Header(name, source.size, pairs, tensors, data_start)


def _read_value(cursor: _Cursor, kind: int) -> Scalar | LongList:
    if kind == _TEXT:
        return cursor.text(_LONGEST_TEXT)
    if kind == _LIST:
        return _skip_list(cursor, 1)
    if kind not in _SCALARS:
        raise cursor.damaged(f"a value of the unknown kind {kind}")
    value: Scalar = cursor.number(_SCALARS[kind])
    return value


def _skip_list(cursor: _Cursor, depth: int) -> LongList:
    kind, count = cursor.number(_U32), cursor.number(_U64)
    start = cursor.place
    starts: list[int] = []
    if kind in _SCALARS:
        cursor.skip(count * _SCALARS[kind].size)
    elif kind in (_TEXT, _LIST):
        shortest = 8 if kind == _TEXT else 12
        if count * shortest > cursor.left:
            raise cursor.cut_short(count * shortest)
        if count > _MOST_TEXTS:
            raise cursor.damaged(f"a list of {count:,} texts or lists")
        if kind == _TEXT:
            starts = cursor.skip_texts(count)
        elif depth == _DEEPEST_LIST:
            raise cursor.damaged("its lists are nested too deeply")
        else:
            for _ in range(count):
                _skip_list(cursor, depth + 1)
    else:
        raise cursor.damaged(f"a list of the unknown kind {kind}")
    return LongList(kind, count, start, cursor.place, starts)


def _read_listed(cursor: _Cursor) -> ListedTensor:
    name = cursor.text(_LONGEST_NAME)
    n_dimensions = cursor.number(_U32)
    if n_dimensions > _MOST_DIMENSIONS:
        raise cursor.damaged(f"{quote(name)} has {n_dimensions:,} dimensions")
    dimensions = tuple(cursor.number(_U64) for _ in range(n_dimensions))
    return ListedTensor(name, dimensions, cursor.number(_U32), cursor.number(_U64))


# --- long lists ------------------------------------------------------------------------------------------------


class Texts(Sequence[str]):
    """The texts of a list, which are made when they are asked for; bytes that are no characters become lone surrogates."""

    def __init__(self, folder: Folder, name: str, listed: LongList) -> None:
        self._data = read_bytes(folder, name, listed)
        self._starts = listed.starts

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[n] for n in range(*place.indices(len(self)))]
        start = self._starts[place]
        stop = start + 8 + int.from_bytes(self._data[start : start + 8], "little")
        return self._data[start + 8 : stop].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._all)

    def index(self, text: object, start: int = 0, stop: int | None = None) -> int:
        """The first place of this text; ValueError where it is none of them. Searches bytes, and makes no text."""
        if isinstance(text, str):
            raw = text.encode("utf-8", "surrogateescape" if not text.isascii() else "strict")
            wanted = len(raw).to_bytes(8, "little") + raw
            at = self._data.find(wanted, self._starts[start] if start < len(self) else len(self._data))
            while at >= 0:
                # What is found may lie across the borders of others.
                place = bisect_left(self._starts, at)
                if place < len(self) and self._starts[place] == at:
                    return place
                at = self._data.find(wanted, at + 1)
        raise ValueError("there is no such text in the list")

    def __contains__(self, text: object) -> bool:
        try:
            self.index(text)
        except ValueError:
            return False
        return True

    def count_distinct(self) -> int:
        """How many different texts are there? None of them is made."""
        ends = [*self._starts[1:], len(self._data)]
        return len(set(map(self._data.__getitem__, map(slice, self._starts, ends))))

    @cached_property
    def _all(self) -> list[str]:
        data, texts = self._data, list[str]()
        unpack, keep, at = _U64.unpack_from, texts.append, 0
        try:
            for _ in range(len(self)):
                start = at + 8
                at = start + unpack(data, at)[0]
                keep(data[start:at].decode())  # without arguments: a vocabulary has hundreds of thousands
        except UnicodeDecodeError:
            return [self[n] for n in range(len(self))]
        return texts


def read_texts(folder: Folder, name: str, listed: LongList) -> Texts:
    """Which texts does this list hold?"""
    return Texts(folder, name, listed)


def read_bytes(folder: Folder, name: str, listed: LongList) -> bytes:
    """As which bytes does this list stand in the file?"""
    source = open_file(folder, name)
    try:
        return bytes(source.read(listed.start, listed.stop))
    finally:
        source.close()


def read_numbers(folder: Folder, name: str, listed: LongList) -> list[Any]:
    """Which numbers does this list hold? Also bytes, for a list of bytes."""
    data = read_bytes(folder, name, listed)
    letter = _SCALARS[listed.kind].format[1:]
    return list(struct.unpack(f"<{listed.n_items}{letter}", data))
