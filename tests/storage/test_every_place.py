"""One small model in every place, in every format and as every plain table: the same rows, the same answers."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import made
import numpy as np
import planted
import pytest
from gguf_maker import gguf, pairs_of_words
from loopback import Loopback
from torch_maker import saved

from inspect_embed import export, neighbors, open_checkpoint, similarity, tokens
from inspect_embed.cli import run
from inspect_embed.outputs import word2vec
from inspect_embed.storage import LOCATIONS

N = len(planted.WORDS)
E = planted.token_rows()[:N]
CONFIG = {"model_type": "gpt2", "n_positions": planted.N_POSITIONS}
BESIDE = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer.json": json.dumps(planted.tokenizer(), ensure_ascii=False).encode(),
}
SPELLED = [word.replace("Ġ", "·") for word in planted.WORDS]


def text(words: list[str], head: bool) -> bytes:
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, E.tolist(), strict=True)]
    return "\n".join([f"{N} {planted.WIDTH}"] * head + lines).encode()


def binary() -> bytes:
    rows = (word.encode() + b" " + row.tobytes() for word, row in zip(SPELLED, E, strict=True))
    return f"{N} {planted.WIDTH}\n".encode() + b"".join(rows)


def array() -> bytes:
    file = io.BytesIO()
    np.save(file, E)
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, vectors=E, tokens=np.array(SPELLED))
    return file.getvalue()


def in_gguf() -> bytes:
    said = {"general.architecture": "gpt2", "gpt2.context_length": planted.N_POSITIONS}
    words = pairs_of_words(*planted.WORDS, merges=list(planted.MERGES), pre="gpt-2")
    return gguf({**said, **words}, {"token_embd.weight": E})


FORMATS: dict[str, tuple[str, dict[str, bytes]]] = {
    "safetensors": (
        "model.safetensors",
        {"model.safetensors": made.safetensors({"wte.weight": E}), **BESIDE},
    ),
    "PyTorch": ("pytorch_model.bin", {"pytorch_model.bin": saved({"wte.weight": E}), **BESIDE}),
    "GGUF": ("model.gguf", {"model.gguf": in_gguf()}),
    "npy": ("table.npy", {"table.npy": array(), "table.txt": "\n".join(SPELLED).encode()}),
    "npz": ("table.npz", {"table.npz": archive()}),
    "word2vec text": ("table.vec", {"table.vec": text(SPELLED, True)}),
    "word2vec binary": ("table.bin", {"table.bin": binary()}),
    "GloVe text": ("table.txt", {"table.txt": text(SPELLED, False)}),
}


def in_memory_of_fsspec(files: Mapping[str, bytes], path: Path, server: Loopback) -> str:
    fsspec = pytest.importorskip("fsspec", reason="the extra `remote`")
    for name, data in files.items():
        fsspec.filesystem("memory").pipe(f"/{path.name}/{name}", data)
    return f"memory://{path.name}"


def in_the_cache(files: Mapping[str, bytes], path: Path, server: Loopback) -> str:
    made.write(Path(os.environ["HF_HUB_CACHE"]) / "models--org--name" / "snapshots" / "0123", dict(files))
    return str(Path(os.environ["HF_HUB_CACHE"]) / "models--org--name" / "snapshots" / "0123")


def on_the_hub(files: Mapping[str, bytes], path: Path, server: Loopback) -> str:
    os.environ["HF_ENDPOINT"] = server.url  # taken back by the fixture
    about = {"sha": "0123abcd", "siblings": [{"rfilename": name} for name in files]}
    server.files["api/models/org/name/revision/main"] = json.dumps(about).encode()
    server.put("org/name/resolve/0123abcd", files)
    return "hf://org/name"


def without_ranges(files: Mapping[str, bytes], path: Path, server: Loopback) -> str:
    server.ranges = False
    return server.put("toy", files)


def without_a_list(files: Mapping[str, bytes], path: Path, server: Loopback) -> str:
    server.listing = False
    return server.put("toy", files)


PLACES: dict[str, Callable[[Mapping[str, bytes], Path, Loopback], str]] = {
    "local": lambda files, path, server: str(made.write(path, dict(files))),
    "hub": in_the_cache,
    "remote": lambda files, path, server: server.put("toy", files),
    "remote: hf": on_the_hub,
    "remote: fsspec": in_memory_of_fsspec,
    "remote: no ranges": without_ranges,
    "remote: no list": without_a_list,
}


def answers(path: str) -> dict[str, Any]:
    checkpoint = open_checkpoint(path)
    table = checkpoint.table()
    return {
        "rows": table.rows(range(N)).tobytes(),
        "blocks": np.concatenate([block.copy() for _, block in table.blocks()]).tobytes(),
        "labels": [table.labels.text(row) for row in range(N)],
        "nearest": neighbors(checkpoint, ["·girl", "girl", "·twin"], k=20).results,
        "cosines": similarity(checkpoint, ["·girl", "·boy", "·zero"]).pairs,
        "ids": [[token.id for token in word.tokens] for word in tokens(checkpoint, SPELLED).words],
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = answers(str(made.write(tmp_path_factory.mktemp("plain"), dict(FORMATS["safetensors"][1]))))
    assert found["rows"] == found["blocks"] == E.tobytes()
    assert found["labels"] == SPELLED
    return found


@pytest.fixture
def place(server: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # a place may set its own
    return lambda name, files: PLACES[name](files, tmp_path / tmp_path.name, server)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_model_is_the_same_wherever_and_however_it_lies(
    kind: str, name: str, place: Callable[..., str], expected: dict[str, Any]
) -> None:
    file, files = FORMATS[kind]
    found = answers(f"{place(name, files)}/{file}")
    for question, answer in expected.items():
        assert repr(found[question]) == repr(answer), question  # NaN is NaN


@pytest.mark.parametrize("name", PLACES)
def test_a_folder_is_opened_as_its_file_is(
    name: str, place: Callable[..., str], expected: dict[str, Any]
) -> None:
    for kind in ("safetensors", "PyTorch"):
        found = answers(place(name, FORMATS[kind][1]))
        assert repr(found) == repr(expected)


def test_every_place_is_tested_here() -> None:
    assert {name.partition(":")[0] for name in PLACES} == {*LOCATIONS} - {"memory"}


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_exported_from_every_format_is_the_same(
    kind: str, tmp_path: Path, expected: dict[str, Any]
) -> None:
    file, files = FORMATS[kind]
    made.write(tmp_path / "m", dict(files))
    path = tmp_path / "out.txt"
    assert run(["export", str(tmp_path / "m" / file), "--to", "word2vec", "-o", str(path)]) == 0
    assert answers(str(path))["rows"] == expected["rows"]
    report = export(open_checkpoint(tmp_path / "m" / file)).report()
    assert [*word2vec.parts(report, path)] == [path, tmp_path / "out.ids.tsv"]
