"""The older files of the transformers library: `vocab.json`, with `merges.txt` or without, and `vocab.txt`.

`vocab.json` gives the id of each token, `merges.txt` how BPE cuts with them; `vocab.txt` is a token a line, in the
order of their ids. Files beside them add to it: `added_tokens.json` (ids), `tokenizer_config.json` and
`special_tokens_map.json` (which are control tokens, whether case is dropped).

Source: huggingface/transformers: models/gpt2, openai, clip, bert, tokenization_*.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from inspect_embed.errors import DamagedFileError
from inspect_embed.spelling import Marks, guess_marks
from inspect_embed.storage import Folder
from inspect_embed.vocabularies import AddedToken, Vocabulary
from inspect_embed.vocabularies._files import is_id, keep_sound_ids, read_json, read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "vocab.json, vocab.txt"
FILES = ("vocab.json", "vocab.txt")

_MERGES = "merges.txt"
_USUAL_CONTROLS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("<s>", "</s>", "<unk>", "<pad>", "<mask>", "<|endoftext|>", "<|startoftext|>"),
)
"""Control tokens where no file says which tokens are: BERT's, fairseq's, GPT-2's, CLIP's."""

_CONTROL_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

# How CLIP parts words before their bytes are merged.
_CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def claims(name: str, data: bytes) -> bool:
    """Whether this is a JSON object of ids, or a list of tokens in a .txt file."""
    return name.endswith(".txt") or (name.endswith(".json") and data.lstrip().startswith(b"{"))


def read(folder: Folder, name: str) -> Vocabulary:
    """Which tokens does this file list? DamagedFileError where it lists none."""
    return _read_list(folder, name) if name.endswith(".txt") else _read_ids(folder, name)


def _read_ids(folder: Folder, name: str) -> Vocabulary:
    content = read_json(folder, name)
    if not isinstance(content, dict):
        raise DamagedFileError(f"{name} is no object of ids by token.", "Fetch the file again.")
    entries, notes = keep_sound_ids(content, name)
    if not entries:
        raise DamagedFileError(f"{name} gives no token an id.", "Fetch the file again.")
    beside = _Beside(folder)
    added = beside.added_tokens(entries)
    marks = guess_marks(entries)
    has_merges = _MERGES in folder.names()
    cutter: Callable[[], Tokenizer] | str
    if not has_merges:
        cutter = f"There is no {_MERGES} beside {name}, which alone says how text is cut."
    elif marks.space:
        cutter = f"{name} and {_MERGES} do not say how text is prepared for a vocabulary with {marks.space}."
    else:
        cutter = partial(_make_bpe, folder, entries, marks, beside, added)
    return Vocabulary(
        source=name,
        model=("byte-level " if marks.byte_level else "") + ("BPE" if has_merges else "word list"),
        marks=marks,
        entries=entries,
        added=added,
        unknown=beside.roles.get("unk_token", "<unk>"),
        make_cutter=cutter,
        notes=notes + beside.notes,
    )


def _read_list(folder: Folder, name: str) -> Vocabulary:
    # Only line feeds end a line: tokens can hold the other line breaks of Unicode.
    tokens = [line.removesuffix("\r") for line in read_text(folder, name).removesuffix("\n").split("\n")]
    if tokens == [""]:
        raise DamagedFileError(f"{name} is empty.", "Fetch the file again.")
    beside = _Beside(folder)
    entries = dict(zip(reversed(tokens), reversed(range(len(tokens))), strict=True))
    added = beside.added_tokens(entries)
    marks = guess_marks(tokens)
    unknown = beside.roles.get("unk_token", "[UNK]" if "[UNK]" in entries else "<unk>")
    cutter: Callable[[], Tokenizer] | str = f"{name} lists tokens and does not say how text is cut."
    notes = beside.notes
    if marks.inner:
        drops_case = _drops_case(tokens, beside)
        if not isinstance(beside.config.get("do_lower_case"), bool):
            notes = [
                *notes,
                f"Nothing beside {name} says whether case is dropped; it is taken that it is"
                + (
                    ", since no token has a capital letter."
                    if drops_case
                    else " not, since some tokens have capital letters."
                ),
            ]
        cutter = partial(_make_word_piece, entries, unknown, drops_case, beside, added)
    return Vocabulary(
        source=name,
        model="WordPiece" if marks.inner else "word list",
        marks=marks if marks != Marks() else Marks(whole_words=True),
        entries=tokens,
        added=added,
        unknown=unknown,
        make_cutter=cutter,
        notes=notes,
    )


class _Beside:
    """What the files beside a vocabulary say of it. One that is missing or damaged says nothing."""

    def __init__(self, folder: Folder) -> None:
        self.notes: list[str] = []
        names = set(folder.names())
        self._added = self._object(folder, names, "added_tokens.json")
        self.config = self._object(folder, names, "tokenizer_config.json")
        controls = {**self.config, **self._object(folder, names, "special_tokens_map.json")}
        more = controls.get("additional_special_tokens")
        self.roles = {
            role: content for role in _CONTROL_ROLES if (content := _content(controls.get(role))) is not None
        }
        self._controls = {
            *self.roles.values(),
            *filter(None, map(_content, more if isinstance(more, list) else ())),
        }

    def _object(self, folder: Folder, names: set[str], name: str) -> Mapping[str, Any]:
        if name not in names:
            return {}
        try:
            content = read_json(folder, name)
        except DamagedFileError as error:
            self.notes.append(f"{error} It was not used.")
            return {}
        return content if isinstance(content, dict) else {}

    def added_tokens(self, entries: Mapping[str, int]) -> list[AddedToken]:
        """Tokens that these files add, and those of the vocabulary that are control tokens."""
        controls = set(self._controls or _USUAL_CONTROLS)
        ids = {content: id_ for content, id_ in self._added.items() if is_id(id_)}
        decoder = self.config.get("added_tokens_decoder")
        for key, fields in decoder.items() if isinstance(decoder, dict) else ():
            content = _content(fields)
            if content is not None and re.fullmatch("[0-9]{1,10}", key) and is_id(int(key)):
                ids[content] = int(key)
                if isinstance(fields, dict) and fields.get("special") is True:
                    controls.add(content)
        for content in sorted(controls & entries.keys()):
            ids.setdefault(content, entries[content])
        return [AddedToken(content, id_, content in controls) for content, id_ in ids.items()]


def _content(entry: object) -> str | None:
    """A token that stands by itself, or in a record of its properties."""
    content = entry.get("content") if isinstance(entry, dict) else entry
    return content if isinstance(content, str) and content else None


def _drops_case(tokens: Iterable[str], beside: _Beside) -> bool:
    """Whether text is put into lower case first: as stated, else if no token has a capital letter."""
    stated = beside.config.get("do_lower_case")
    if isinstance(stated, bool):
        return stated
    return not any(token != token.lower() for token in tokens if not token.startswith(("[", "<")))


def _make_bpe(
    folder: Folder, entries: Mapping[str, int], marks: Marks, beside: _Beside, added: Iterable[AddedToken]
) -> Tokenizer:
    """GPT-2's tokenizer; CLIP's where bytes and ends of words are marked; GPT-1's where only the latter are."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    lines = read_text(folder, _MERGES).split("\n")
    merges = [tuple(line.rstrip("\r").split(" ")) for line in lines if not line.startswith("#version")]
    options = {"end_of_word_suffix": marks.end} if marks.end else {}
    unknown = beside.roles.get("unk_token", "<unk>")
    if unknown in entries and not marks.byte_level:
        options["unk_token"] = unknown
    pairs = cast("list[tuple[str, str]]", [merge for merge in merges if len(merge) == 2])
    tokenizer = Tokenizer(models.BPE(vocab=dict(entries), merges=pairs, **options))
    if marks.byte_level and marks.end:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_CLIP_WORDS), behavior="removed", invert=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    elif marks.byte_level:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=beside.config.get("add_prefix_space") is True
        )
    else:
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=_drops_case(entries, beside))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    _add(tokenizer, added)
    return tokenizer


def _make_word_piece(
    entries: Mapping[str, int], unknown: str, drops_case: bool, beside: _Beside, added: Iterable[AddedToken]
) -> Tokenizer:
    """BERT's tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    accents = beside.config.get("strip_accents")
    ideographs = beside.config.get("tokenize_chinese_chars")
    tokenizer = Tokenizer(models.WordPiece(vocab=dict(entries), unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=drops_case,
        strip_accents=accents if isinstance(accents, bool) else None,
        handle_chinese_chars=ideographs if isinstance(ideographs, bool) else True,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    _add(tokenizer, added)
    return tokenizer


def _add(tokenizer: Tokenizer, added: Iterable[AddedToken]) -> None:
    """Have these tokens matched as wholes. The library may number them anew; the files' own ids are used."""
    from tokenizers import AddedToken as Added

    for token in added:
        whole = Added(token.content, special=token.special, normalized=not token.special)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([whole])
