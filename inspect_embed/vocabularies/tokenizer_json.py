"""The `tokenizer.json` of the tokenizers library: trained tokens, added tokens, and how text is prepared and cut.

Source: huggingface/tokenizers, tokenizers/src/tokenizer/serialization.rs, and the (de)serialisation of each model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inspect_embed.errors import DamagedFileError
from inspect_embed.spelling import Marks, encode, guess_marks, show
from inspect_embed.storage import Folder
from inspect_embed.vocabularies import AddedToken, Vocabulary
from inspect_embed.vocabularies._files import is_id, keep_sound_ids, note_left_out, read_json, read_text
from inspect_embed.vocabularies._library import Refusal, library_call

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "tokenizer.json"
FILES = ("tokenizer.json",)

_MODEL = re.compile(rb'"model"\s*:\s*\{')
_NO_SAY = ("truncation", "padding", "post_processor", "decoder")
_CHILDREN = ("normalizers", "pretokenizers", "decoders", "processors")


def claims(name: str, data: bytes) -> bool:
    """Whether this is a JSON file with a tokenizer's model in it, whatever it is called."""
    return name.endswith(".json") and _MODEL.search(data) is not None


def read(folder: Folder, name: str) -> Vocabulary:
    """Which tokens does this tokenizer have?

    Entries of the wrong type are left out, with a note. DamagedFileError where there is no vocabulary at all.
    """
    content = read_json(folder, name)
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(model, dict):
        raise DamagedFileError(f"{name} holds no tokenizer: it has no model.", "Fetch the file again.")
    kind = _kind(model)
    entries, notes = _entries(model.get("vocab"), name)
    added, added_notes = _added_tokens(content.get("added_tokens"), name)
    marks = _marks(content, model, kind, entries)
    return Vocabulary(
        source=name,
        model=f"byte-level {kind}" if marks.byte_level else kind,
        marks=marks,
        entries=entries,
        added=added,
        unknown=_unknown(model),
        make_cutter=_cutter_maker(folder, name, model),
        prepends_space=bool(marks.space)
        and any(
            part.get("type") == "Prepend" and part.get("prepend") == marks.space
            for part in _components(content.get("normalizer"))
        ),
        notes=notes + added_notes,
    )


def _kind(model: Mapping[str, Any]) -> str:
    """The model's type; files of early versions do not state it."""
    stated = model.get("type")
    if isinstance(stated, str) and stated:
        return show(encode(stated))
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    if "merges" in model:
        return "BPE"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _entries(vocab: object, name: str) -> tuple[Mapping[str, int] | Sequence[str], list[str]]:
    """The trained tokens: ids by token, or tokens by id where they are listed with their scores."""
    if isinstance(vocab, dict):
        return keep_sound_ids(vocab, name)
    if not isinstance(vocab, list):
        raise DamagedFileError(f"{name} holds no vocabulary.", "Fetch the file again.")
    try:
        pieces = [piece for piece, _ in vocab]
    except (TypeError, ValueError):
        pieces = [None]
    if set(map(type, pieces)) <= {str}:
        return pieces, []
    sound: dict[str, int] = {}
    left_out = []
    for id_, entry in enumerate(vocab):
        if isinstance(entry, list) and entry and isinstance(entry[0], str):
            sound.setdefault(entry[0], id_)
        else:
            left_out.append(f"number {id_}")
    return sound, note_left_out(left_out, name)


def _added_tokens(listed: object, name: str) -> tuple[list[AddedToken], list[str]]:
    tokens = []
    left_out = []
    for n, entry in enumerate(listed if isinstance(listed, list) else []):
        fields = entry if isinstance(entry, dict) else {}
        content, id_ = fields.get("content"), fields.get("id")
        if isinstance(content, str) and is_id(id_):
            tokens.append(AddedToken(content, id_, fields.get("special") is True))
        else:
            left_out.append(show(encode(content)) if isinstance(content, str) else f"added token {n}")
    return tokens, note_left_out(left_out, name)


def _unknown(model: Mapping[str, Any]) -> str | int | None:
    token, id_ = model.get("unk_token"), model.get("unk_id")
    if isinstance(token, str):
        return token
    return id_ if is_id(id_) else None


def _components(*roots: object) -> Iterator[Mapping[str, Any]]:
    """Every component, however deep the sequences are that hold it."""
    waiting = list(roots)
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            for key in _CHILDREN:
                children = part.get(key)
                waiting.extend(children if isinstance(children, list) else [])


def _marks(content: Mapping[str, Any], model: Mapping[str, Any], kind: str, entries: Iterable[str]) -> Marks:
    """How the file writes spaces and places in words: by its components, else by its tokens."""
    parts = list(
        _components(
            content.get("normalizer"),
            content.get("pre_tokenizer"),
            content.get("decoder"),
            content.get("post_processor"),
        )
    )
    byte_level = any(part.get("type") == "ByteLevel" for part in parts)
    space = "" if byte_level else next(filter(None, map(_space_of, parts)), "")
    inner = _text(model.get("continuing_subword_prefix"), "##" if kind == "WordPiece" else "")
    end = _text(model.get("end_of_word_suffix"), "") or next(
        (_text(part.get("suffix"), "</w>") for part in parts if part.get("type") == "BPEDecoder"), ""
    )
    if byte_level or space or inner or end:
        return Marks(byte_level, space, inner, end, byte_tokens=not byte_level)
    guess = guess_marks(list(entries))
    if kind == "WordLevel" and not guess.spaces_are_written:
        return Marks(whole_words=True)
    return guess


def _text(value: object, default: str) -> str:
    return value if isinstance(value, str) else default


def _space_of(part: Mapping[str, Any]) -> str:
    """The sign that this component writes for a space, or reads as one; empty for all other components."""
    if part.get("type") == "Metaspace":
        return _text(part.get("replacement"), "▁").strip()
    if part.get("type") != "Replace":
        return ""
    pattern = part.get("pattern")
    found = pattern.get("String") if isinstance(pattern, dict) else None
    put = part.get("content")
    if found == " " and isinstance(put, str) and put.strip():
        return put
    return found if put == " " and isinstance(found, str) and found.strip() else ""


def _cutter_maker(folder: Folder, name: str, model: Mapping[str, Any]) -> Callable[[], Tokenizer] | str:
    """What makes the library's tokenizer, or why it must not."""
    if _breaks_characters(model):
        return f"A merge of {name} ends in a piece that lacks the model's mark of inner pieces."

    def make() -> Tokenizer:
        from tokenizers import Tokenizer

        try:
            with library_call():
                return Tokenizer.from_str(read_text(folder, name))
        except Refusal:
            content = read_json(folder, name)
            if not isinstance(content, dict):
                raise
            # What the library knows no more, or not yet, may be a part that has no say in how a text is cut.
            return Tokenizer.from_str(json.dumps(content | dict.fromkeys(_NO_SAY)))

    return make


def _breaks_characters(model: Mapping[str, Any]) -> bool:
    """Whether the library would end the whole process over this model.

    BPE with a mark for inner pieces takes as many bytes off the second part of each merge as the mark has, whether it
    is there or not; where that cuts into a character, the library aborts.
    """
    mark, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not isinstance(mark, str) or not mark or not isinstance(merges, list):
        return False
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        second = parts[-1] if isinstance(parts, list) and parts else None
        if not isinstance(second, str) or not second.startswith(mark):
            return True
    return False
