"""Every architecture in the zoo: tables, positions, buffers and parameter counts as the truth says."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inspect_embed.encodings import ENCODINGS
from inspect_embed.families import FoundTables, TableChoice, find_buffers, find_tables
from inspect_embed.formats import TensorEntry

SHARED = Path(os.environ.get("INSPECT_EMBED_SHARED") or Path(__file__).parents[2] / "shared")
ZOO = SHARED / "zoo" / "zoo.jsonl.gz"
MORE = Path(__file__).parent / "data" / "more_architectures.jsonl.gz"
"""Architectures of other types than the zoo's, of the same making and with the same fields.

Tables, heads, buffers and counts are what the library says of its own tiny random models; the row of the first
position is the first row of the table that got a gradient from a text, where the model could be run.
"""


class Headers:
    """Tensors that are known by name, encoding and shape alone."""

    format = "headers"
    files = missing_files = warnings = notes = ()
    metadata: dict[str, str] = {}  # noqa: RUF012
    aliases: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, tensors: dict[str, list[Any]]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> TensorEntry:
        encoding, shape = self._tensors[name]
        return TensorEntry(name, tuple(shape), ENCODINGS[encoding], "model.safetensors", 0, 0)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def names(self) -> list[str]:
        return list(self._tensors)

    def count_bytes(self) -> dict[str, int]:
        raise AssertionError("names, shapes and config must be enough")

    def read(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        raise AssertionError("names, shapes and config must be enough")


def read_architectures(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def name_of(choice: TableChoice | None) -> str | None:
    return choice.entry.name if choice else None


def judge(architecture: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What was found and what is true, by aspect."""
    tensors = Headers(architecture["tensors"])
    truth = architecture["truth"]
    found: FoundTables = find_tables(tensors, architecture["config"])
    buffers = {
        buffer.entry.name: buffer.entry.n_elements for buffer in find_buffers(tensors, architecture["config"])
    }
    elements = sum(math.prod(shape) for _, shape in architecture["tensors"].values())
    listed = {entry.name for entry in found.candidates}
    return {
        "input": (name_of(found.input), truth["token_table"]),
        "output": (name_of(found.output), truth["output_table"]),
        "tied": (found.tied, truth["tied"]),
        "buffers": (set(buffers), set(truth["buffers"])),
        "parameters": (elements - sum(buffers.values()), truth["parameters"]),
        "other tables listed": (listed & set(truth["other_token_tables"]), set(truth["other_token_tables"])),
        "position tables": (
            {(t.entry.name, t.entry.shape, t.kind == "learned", t.first_used_row) for t in found.positions},
            {
                (t["name"], tuple(t["shape"]), t["learned"], t["first_used_row"])
                for t in truth["position_tables"]
            },
        ),
        "position kinds": (list(found.position_kinds), truth["position_kinds"]),
    }


def check_all(path: Path, at_least: int) -> None:
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    wrong: list[str] = []
    for architecture in read_architectures(path):
        for aspect, (found, true) in judge(architecture).items():
            asked[aspect] += 1
            if found == true:
                right[aspect] += 1
            else:
                wrong.append(f"{architecture['name']}: {aspect}: found {found}, true {true}")
    print(f"\n{path.name}")
    for aspect in asked:
        print(f"  {aspect:20} {right[aspect]:4} of {asked[aspect]:4}   {right[aspect] / asked[aspect]:.1%}")
    assert not wrong, "\n".join(wrong)
    assert asked["input"] >= at_least


@pytest.mark.skipif(not ZOO.exists(), reason=f"the zoo is not here: {ZOO}")
def test_every_architecture_of_the_zoo_is_read_as_its_truth_says() -> None:
    check_all(ZOO, at_least=440)


def test_architectures_of_other_types_are_read_as_the_library_reads_them() -> None:
    check_all(MORE, at_least=550)


@pytest.mark.skipif(not ZOO.exists(), reason=f"the zoo is not here: {ZOO}")
def test_no_tensor_of_a_vision_or_audio_model_is_taken_for_a_token_table() -> None:
    without = [a for a in read_architectures(ZOO) if a["truth"]["token_table"] is None]
    assert len(without) == 43
    for architecture in without:
        found = find_tables(Headers(architecture["tensors"]), architecture["config"])
        assert found.input is None, architecture["name"]
        assert found.notes, architecture["name"]
