"""Tokenizers for tests: real ones, trained here by the tokenizers library, and small ones written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from inspect_embed.errors import InspectEmbedError
from inspect_embed.storage.memory import MemoryFolder
from inspect_embed.vocabularies import Vocabulary, open_vocabulary

SENTENCES = [
    "Once upon a time there was a little girl named Lily.",
    "The girl saw a boy and a dog in the park.",
    "The boy ran to the girl, and the girl ran to the boy.",
    "girl boy dog cat park time little red ball girl boy",
    "Lily said: what a big red ball! Max said no.",
    "naïve café, 3 girls and 4 boys; the girl's ball.\n",
] * 4

BYTE_LEVEL_PARTS: dict[str, Any] = {
    "pre_tokenizer": {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    },
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
}
LLAMA_PARTS: dict[str, Any] = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    },
}


def train_byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def train_metaspace_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def train_unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<pad>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def train_word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=8, pad_token="[PAD]")
    tokenizer.enable_truncation(max_length=4)
    return tokenizer


def train_word_level() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def train_word_ends() -> Tokenizer:
    """GPT-1's kind: a mark closes a word."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=160, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def train_byte_level_word_ends() -> Tokenizer:
    """CLIP's kind: bytes in GPT-2's alphabet, and a mark that closes a word."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


TRAINED = {
    "byte-level BPE": train_byte_level,
    "BPE with ▁": train_metaspace_bpe,
    "Unigram": train_unigram,
    "WordPiece": train_word_piece,
    "WordLevel": train_word_level,
    "BPE with </w>": train_word_ends,
    "byte-level BPE with </w>": train_byte_level_word_ends,
}


def as_json(
    vocab: Mapping[str, Any] | list[Any],
    kind: str = "BPE",
    merges: Any = (),
    added: Any = (),
    model: Mapping[str, Any] | None = None,
    **parts: Any,
) -> dict[str, Any]:
    """A tokenizer.json written by hand; `added` holds ids by token, all of them special."""
    if isinstance(added, Mapping):
        added = [added_token(content, id_) for content, id_ in added.items()]
    body: dict[str, Any] = {"type": kind, "vocab": vocab}
    if kind == "BPE":
        body |= {"merges": list(merges)}
    if kind in ("WordPiece", "WordLevel"):
        body |= {"unk_token": "[UNK]"}
    if kind == "WordPiece":
        body |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return {"version": "1.0", "added_tokens": list(added), **parts, "model": body | dict(model or {})}


def added_token(content: str, id_: int, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id_, "content": content, "special": special, **flags}


def from_tokenizer(tokenizer: Tokenizer) -> Vocabulary:
    return from_files({"tokenizer.json": tokenizer.to_str().encode()})


def from_json(content: Any) -> Vocabulary:
    return from_files({"tokenizer.json": json.dumps(content).encode()})


def from_files(files: Mapping[str, bytes | str]) -> Vocabulary:
    encoded = {name: data.encode() if isinstance(data, str) else data for name, data in files.items()}
    vocabulary = open_vocabulary(MemoryFolder(encoded))
    assert vocabulary is not None
    return vocabulary


def refusal_of(call: Callable[[Any], object], argument: object) -> InspectEmbedError | None:
    """The error that a call ends in; None where it has an answer. Any other exception is a failure."""
    try:
        call(argument)
    except InspectEmbedError as error:
        return error
    return None
