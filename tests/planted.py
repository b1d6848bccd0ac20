"""A small GPT-2-like checkpoint whose truth is known: twins, a zero row, a NaN row, rows without a token."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

WORDS = (
    "Ġgirl", "girl", "Ġboy", "Ġking", "Ġqueen", "Ġred", "Ġblue", "Ġran", "Ġzero", "Ġnan",
    "Ġtwin", "Ġdouble", "ĠLily", "Lily", "gi", "rl", "g", "i", "r", "l", "Ġ", "b", "o", "y",
)  # fmt: skip
MERGES = ("g i", "r l", "gi rl", "Ġ girl")
N_ROWS, WIDTH, N_POSITIONS = len(WORDS) + 3, 12, 7
ZERO, NAN, TWIN, DOUBLE = (WORDS.index(word) for word in ("Ġzero", "Ġnan", "Ġtwin", "Ġdouble"))


def token_rows() -> NDArray[np.float32]:
    """float32 (N_ROWS, WIDTH): the last three rows have no token, and equal row 0."""
    E = np.random.default_rng(5).standard_normal((N_ROWS, WIDTH)).astype(np.float32)
    E += 0.5
    E[ZERO] = 0.0
    E[NAN, 3] = np.nan
    E[DOUBLE] = E[TWIN]
    E[len(WORDS) :] = E[0]
    return E


def position_rows() -> NDArray[np.float32]:
    """float32 (N_POSITIONS, WIDTH)."""
    return np.random.default_rng(6).standard_normal((N_POSITIONS, WIDTH)).astype(np.float32)


def tokenizer() -> dict[str, object]:
    """A byte-level BPE tokenizer file that knows WORDS, with padding and truncation switched on as in real files."""
    vocabulary = {word: place for place, word in enumerate(WORDS)}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "Ġgirl",
        },
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "unk_token": None,
            "fuse_unk": False,
            "vocab": vocabulary,
            "merges": list(MERGES),
        },
    }


def write_checkpoint(folder: Path, **more: NDArray[np.generic]) -> Path:
    """Write the checkpoint, with `more` tensors beside its two tables."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"transformer.wte.weight": token_rows(), "transformer.wpe.weight": position_rows(), **more}
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "gpt2", "n_positions": N_POSITIONS, "architectures": ["GPT2LMHeadModel"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = json.dumps(tokenizer(), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return folder
