"""One small model in every format and encoding: the same rows, the same tokens, the same answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from gguf_maker import gguf, pairs_of_words
from made import safetensors
from numpy.typing import NDArray
from torch_maker import END, archive, mapping, row_major, saved, saved_before_zip, tensor

from inspect_embed import embed, info, neighbors, open_checkpoint, params, similarity, tokens, vector
from inspect_embed.checkpoint import Checkpoint
from inspect_embed.formats import FORMATS, TensorSet, read_tensors
from inspect_embed.storage.memory import MemoryFile, MemoryFolder

E, P = planted.token_rows(), planted.position_rows()
HF_NAMES = {"transformer.wte.weight": E, "transformer.wpe.weight": P}
GGUF_NAMES = {"token_embd.weight": E, "position_embd.weight": P}


def turned(arrays: dict[str, NDArray[np.float32]]) -> bytes:
    """A PyTorch archive in which each table lies column by column."""
    entries = {
        key: tensor(key, array.size, array.shape, tuple(reversed(row_major(array.T.shape))))
        for key, array in arrays.items()
    }
    stored = {key: np.ascontiguousarray(array.T).tobytes() for key, array in arrays.items()}
    return archive(b"\x80\x02" + mapping(entries) + END, stored)


def as_gguf(arrays: dict[str, NDArray[Any]]) -> bytes:
    said = {"general.architecture": "gpt2", "gpt2.context_length": planted.N_POSITIONS}
    return gguf({**said, **pairs_of_words(*planted.WORDS, merges=list(planted.MERGES), pre="gpt-2")}, arrays)


def half(arrays: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[Any]]:
    return {key: array.astype(np.float16) for key, array in arrays.items()}


WAYS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "safetensors": ("model.safetensors", lambda: safetensors(HF_NAMES)),
    "GGUF": ("model.gguf", lambda: as_gguf(dict(GGUF_NAMES))),
    "PyTorch": ("pytorch_model.bin", lambda: saved(HF_NAMES)),
    "PyTorch, nested": ("model.pt", lambda: saved(HF_NAMES, ("model",))),
    "PyTorch, turned": ("model.pth", lambda: turned(HF_NAMES)),
    "PyTorch, old": ("pytorch_model.bin", lambda: saved_before_zip(HF_NAMES)),
}
IN_HALF: dict[str, tuple[str, Callable[[], bytes]]] = {
    "safetensors": ("model.safetensors", lambda: safetensors(half(HF_NAMES))),
    "GGUF": ("model.gguf", lambda: as_gguf(half(GGUF_NAMES))),
    "PyTorch": ("pytorch_model.bin", lambda: saved(half(HF_NAMES))),
}


def opened(folder: Path, file: str, make: Callable[[], bytes]) -> Checkpoint:
    folder.mkdir()
    (folder / file).write_bytes(make())
    if not file.endswith(".gguf"):  # which says all this itself
        config = {
            "model_type": "gpt2",
            "n_positions": planted.N_POSITIONS,
            "architectures": ["GPT2LMHeadModel"],
        }
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.json").write_text(
            json.dumps(planted.tokenizer(), ensure_ascii=False), encoding="utf-8"
        )
    return open_checkpoint(folder)


def answers(checkpoint: Checkpoint) -> dict[str, Any]:
    """What is answered, without the names of the checkpoint and of its tensors."""
    return {
        "nearest": neighbors(checkpoint, ["·girl", "·twin", "id:1"], k=30).results,
        "nearest by distance": neighbors(checkpoint, ["·girl"], k=9, metric="euclidean").results,
        "nearest places": neighbors(checkpoint, ["3"], table="position", k=5).results,
        "cosines": similarity(checkpoint, ["·girl", "·boy", "·red", "·zero"]).pairs,
        "pieces": tokens(checkpoint, ["·girl", "girl", "rlgirl"]).words,
        "numbers": vector(checkpoint, ["·Lily"]).rows,
        "sums": embed(checkpoint, "girl girl").tokens,
        "cut": checkpoint.vocabulary and checkpoint.vocabulary.cut("girl girlo"),
        "parameters": params(checkpoint).parameters,
        "tied": info(checkpoint).tied,
        "positions": info(checkpoint).position_kinds,
    }


@pytest.mark.parametrize("way", WAYS)
def test_a_model_gives_the_same_rows_in_every_format(tmp_path: Path, way: str) -> None:
    checkpoint = opened(tmp_path / "model", *WAYS[way])
    for table, rows in ((checkpoint.table(), E), (checkpoint.table("position"), P)):
        assert (table.n_rows, table.width) == rows.shape
        assert np.array_equal(table.rows(range(table.n_rows)), rows, equal_nan=True)
        assert np.array_equal(
            np.concatenate([block.copy() for _, block in table.blocks()]), rows, equal_nan=True
        )
    assert checkpoint.format == way.partition(",")[0]


@pytest.mark.parametrize("way", [way for way in WAYS if way != "safetensors"])
def test_a_model_gives_the_same_answers_in_every_format(tmp_path: Path, way: str) -> None:
    ours = answers(opened(tmp_path / "ours", *WAYS[way]))
    theirs = answers(opened(tmp_path / "theirs", *WAYS["safetensors"]))
    assert ours.keys() == theirs.keys()
    for question in theirs:
        assert repr(ours[question]) == repr(theirs[question]), question  # NaN is NaN


@pytest.mark.parametrize("way", IN_HALF)
def test_half_precision_is_the_same_in_every_format(tmp_path: Path, way: str) -> None:
    checkpoint = opened(tmp_path / "model", *IN_HALF[way])
    assert checkpoint.table().tensor.encoding.name == "F16"
    held = E.astype(np.float16).astype(np.float32)
    assert np.array_equal(checkpoint.table().rows(range(len(held))), held, equal_nan=True)


OF_ONE_TABLE = ("npy", "word_vectors")
"""Formats that hold a table of words and no model."""


def test_every_format_of_models_is_tested_here() -> None:
    modules = [module for module in FORMATS if module not in OF_ONE_TABLE]
    names = {import_module(f"inspect_embed.formats.{module}").NAME for module in modules}
    assert {way.partition(",")[0] for way in WAYS} == names


@pytest.mark.parametrize("way", WAYS)
def test_a_set_of_tensors_offers_all_that_the_rest_asks_for(way: str) -> None:
    file, make = WAYS[way]
    tensors = read_tensors(MemoryFolder({file: make()}))
    assert tensors is not None
    for member in (name for name in dir(TensorSet) if not name.startswith("_")):
        assert hasattr(tensors, member), member
    names = tensors.names()
    assert len(tensors) == len(names) == len(set(names))
    assert tensors.files == (file,)
    batches = list(tensors.batches())
    assert [name for batch in batches for name in batch[0]] == names
    assert [n for batch in batches for n in batch[2]] == [tensors[name].n_bytes for name in names]
    assert sum(tensors.count_bytes().values()) == E.nbytes + P.nbytes
    assert tensors.missing_names() == []
    with pytest.raises(KeyError):
        tensors["no such tensor"]


class Told(MemoryFile):
    """A file that remembers which bytes it was told to expect, and which were read then."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.expected: list[tuple[int, int]] = []
        self.read_since: list[tuple[int, int]] = []

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.expected += ranges
        self.read_since = []

    def read(self, start: int, stop: int) -> memoryview:
        self.read_since.append((start, stop))
        return super().read(start, stop)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_said_to_be_read_next_is_what_is_read(way: str) -> None:
    file, make = WAYS[way]
    source = Told(make())
    folder = MemoryFolder({file: b""})
    folder.open = lambda name: source  # type: ignore[method-assign]
    tensors = read_tensors(folder)
    assert tensors is not None
    for name in tensors.names():
        source.expected.clear()
        tensors.expect(tensors[name], [(48, 96), (240, 288)])
        for start, stop in ((48, 96), (240, 288)):
            tensors.read(tensors[name], start, stop)
        assert set(source.read_since) == set(source.expected)


@pytest.mark.parametrize("module", FORMATS)
def test_a_format_says_how_its_files_are_called(module: str) -> None:
    reader = import_module(f"inspect_embed.formats.{module}")
    assert reader.SUFFIXES
    for suffix in reader.SUFFIXES:
        assert reader.claims(["y.txt"], "x" + suffix)
    assert not reader.claims(["config.json", "README.md"], None)


def test_safetensors_go_before_other_files_of_the_same_model() -> None:
    everything = {file: make() for file, make in WAYS.values()}
    tensors = read_tensors(MemoryFolder(everything))
    assert tensors is not None
    assert tensors.format == "safetensors"
