"""Files made to hurt: no traceback, no read outside the folder, no more memory than the files and 20 times their JSON."""

from __future__ import annotations

import gc
import itertools
import json
import os
import string
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made import index, pack, safetensors, words

import inspect_embed
from inspect_embed import info, neighbors, open_checkpoint
from inspect_embed.cli import run
from inspect_embed.errors import DamagedFileError, InspectEmbedError
from inspect_embed.json_text import parse_json
from inspect_embed.outputs import json as json_output
from inspect_embed.outputs import text as text_output
from inspect_embed.storage.memory import MemoryFolder
from inspect_embed.vocabularies import open_vocabulary

INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
TABLE = np.arange(24, dtype=np.float32).reshape(6, 4) + 1

# --- what is watched -----------------------------------------------------------------------------------------

_opened: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | bytes):
        _opened.append(os.fsdecode(arguments[0]))


sys.addaudithook(_watch)  # cannot be taken away again: it does nothing while nothing is watched


@contextmanager
def watched_opens() -> Iterator[list[str]]:
    """Every path that is opened meanwhile."""
    global _opened
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


CODE = (Path(sys.prefix), Path(sys.base_prefix), Path(inspect_embed.__file__).parent)
"""Where modules are read from when they are first imported."""


def lies_in(path: str, folder: Path) -> bool:
    return Path(path).resolve().is_relative_to(folder.resolve())


def ask_everything(path: Path) -> None:
    """What a person would ask of a checkpoint: an answer, or an error of ours; a warning of numpy's is a failure."""
    with suppress(InspectEmbedError):
        checkpoint = open_checkpoint(path)
        for answer in (
            lambda: info(checkpoint).report(),
            lambda: neighbors(checkpoint, ["id:0"], k=2).report(),
            lambda: neighbors(checkpoint, ["id:1"], table="output", metric="euclidean").report(),
            lambda: checkpoint.table("position").rows([0]),
        ):
            with suppress(InspectEmbedError):
                report = answer()
                if not isinstance(report, np.ndarray):
                    text_output.render(report).encode("utf-8", "backslashreplace")
                    json.loads(json_output.render(report).encode("utf-8", "backslashreplace"))


def ask_about(files: Mapping[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "checkpoint"
        folder.mkdir()
        for name in ("outside.safetensors", "secret.json"):
            (Path(root) / name).write_bytes(safetensors({"wte.weight": TABLE}))
        for name, data in files.items():
            (folder / name).write_bytes(data)
        with watched_opens() as opened:
            ask_everything(folder)
        outside = [
            path
            for path in opened
            if not lies_in(path, folder) and not any(map(partial(lies_in, path), CODE))
        ]
        assert not outside, outside


# --- what is made --------------------------------------------------------------------------------------------

LEAVES = ("wte.weight", "model.embed_tokens.weight", "lm_head.weight", "wpe.weight", "shared.weight", "lora_embedding_A",
          "embed_tokens.weight_scale", "h.0.attn.bias", "embeddings.position_embeddings.weight", "__metadata__", "", ".", "\ud800",
          "\x1b[2J\n", "x" * 300, "module._orig_mod.transformer.wte.weight", "embeddings", "weight")  # fmt: skip
CODES = ("F32", "F64", "F16", "BF16", "F8_E4M3", "I64", "BOOL", "F4", "Q4_K", "NEW", "", "\ud800")

huge = st.sampled_from([2**31, 2**32 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**4200, -1, -(2**63)])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | huge | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
sizes = st.integers(0, 9) | huge
plausible = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(CODES),
        "shape": st.lists(sizes, max_size=4),
        "data_offsets": st.lists(sizes, min_size=2, max_size=2),
    }
)


@st.composite
def sound(draw: st.DrawFn) -> dict[str, Any]:
    """A record that agrees with itself, wherever it says that its bytes are."""
    code = draw(st.sampled_from(["F32", "F16", "BF16", "F8_E4M3", "F64", "U8", "F4"]))
    shape = draw(st.lists(st.integers(0, 6), max_size=3))
    bits = {"F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F64": 64, "U8": 8, "F4": 4}[code]
    n_bytes = -(-int(np.prod(shape, dtype=int)) * bits // 8)
    start = draw(st.integers(0, 40) | st.just(2**40))
    return {"dtype": code, "shape": shape, "data_offsets": [start, start + n_bytes]}


names = st.sampled_from(LEAVES) | st.text(max_size=8)
headers = st.dictionaries(names, sound() | plausible | anything, max_size=5)
configs = st.dictionaries(
    st.sampled_from(["model_type", "vocab_size", "tie_word_embeddings", "max_position_embeddings", "architectures",
                     "text_config", "quantization_config", "rope_theta", "position_embedding_type", "hidden_size",
                     "pad_token_id", "embedding_multiplier"]) | st.text(max_size=4),
    anything | st.sampled_from(["gpt2", "bert", "opt", "roberta", "llama", "albert", "t5"]),
    max_size=5,
)  # fmt: skip


def dumps(value: object) -> bytes:
    return json.dumps(value).encode()


# --- no traceback, no read outside ---------------------------------------------------------------------------


@given(headers, st.binary(max_size=80), configs)
@example({"wte.weight": {"dtype": "F32", "shape": [10**4000, 10**4000], "data_offsets": [0, 8]}}, b"", {})
@example({"\ud800": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}, bytes(16), {})
@example(
    {"wte.weight": {"dtype": "F32", "shape": [2, 0], "data_offsets": [0, 0]}}, b"", {"model_type": ["gpt2"]}
)
@example({"wte.weight": {"dtype": "BF16", "shape": [3, 2], "data_offsets": [0, 12]}}, b"\x81\x7f" * 6, {})
def test_no_header_ends_in_a_traceback(header: dict[str, Any], data: bytes, config: dict[str, Any]) -> None:
    ask_about({"model.safetensors": pack(dumps(header), data), "config.json": dumps(config)})


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x02\x00\x00\x00\x00\x00\x00\x00{}")
def test_no_bytes_end_in_a_traceback(data: bytes) -> None:
    ask_about({"model.safetensors": data})
    ask_about({INDEX: data, "config.json": data, "tokenizer.json": data})


@given(st.data())
def test_no_damage_to_a_sound_file_ends_in_a_traceback(data: st.DataObject) -> None:
    whole = bytearray(
        safetensors({"wte.weight": TABLE, "wpe.weight": TABLE[:3], "lm_head.weight": TABLE + 1})
    )
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)) | st.just(len(whole)))
    ask_about({"model.safetensors": bytes(whole[:cut]), "tokenizer.json": words(*"abcdef")})


elsewhere = st.sampled_from(
    ["../outside.safetensors", "../secret.json", "/etc/passwd", "..", ".", "", "config.json", "tokenizer.json", INDEX, "nowhere",
     "..\\outside.safetensors", "checkpoint/model.safetensors", "\ud800", "x\0y", "a" * 300, "C:\\x", "./" + SHARDS[0]]
)  # fmt: skip


@given(
    st.dictionaries(names, st.sampled_from(SHARDS) | elsewhere | anything, max_size=5) | anything,
    st.sets(st.sampled_from(SHARDS)),
    anything,
)
@example({"a": "\ud800", "b": SHARDS[0]}, {SHARDS[0]}, {})
@example({"a": "../outside.safetensors"}, {SHARDS[0]}, {})
def test_no_index_ends_in_a_traceback_or_leads_outside(weight_map: Any, there: set[str], stated: Any) -> None:
    files = {name: safetensors({f"wte.{name[8]}.weight": TABLE}) for name in there}
    files[INDEX] = dumps({"weight_map": weight_map, "metadata": stated})
    ask_about({**files, "config.json": b"{}"})


@pytest.mark.parametrize("place", [*SHARDS[:1], "model.safetensors"])
def test_a_link_out_of_the_folder_is_followed_only_under_a_plain_name(tmp_path: Path, place: str) -> None:
    """Caches are made of such links: what a name may be is decided by the name."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0a1b").write_bytes(safetensors({"wte.weight": TABLE}))
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / place).symlink_to("../blobs/0a1b")
    (folder / INDEX).write_bytes(index({"wte.weight": place}))
    assert open_checkpoint(folder).table().n_rows == 6
    (folder / INDEX).write_bytes(index({"wte.weight": "../blobs/0a1b"}))
    with pytest.raises(DamagedFileError, match="plain name"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    "arguments",
    [
        ["info"],
        ["neighbors", "id:0"],
        ["vector", "id:9", "--format", "markdown"],
        ["vector", "id:0", "--tensor", "absent"],
    ],
)
def test_no_name_in_a_header_steers_the_terminal(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b]0;owned\x07\x1b[2J\r\u202e\x9b.embed_tokens.weight"
    (tmp_path / "model.safetensors").write_bytes(safetensors({name: TABLE}))
    command, *rest = arguments
    run([command, str(tmp_path), *rest])
    shown = "".join(capsys.readouterr())
    assert "embed_tokens.weight" in shown
    assert [mark for mark in shown if not mark.isprintable() and mark != "\n"] == []


# --- memory --------------------------------------------------------------------------------------------------

SLACK = 600_000
"""What small texts, messages and the interpreter itself take, whatever is read."""


def peak_of(action: Callable[[], object]) -> int:
    """Bytes allocated at most meanwhile; with the garbage collector off, as the program runs."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


def keys() -> Iterator[str]:
    """Short keys, each another."""
    return map("".join, itertools.product(string.ascii_letters + string.digits, repeat=3))


def repeated(piece: str, n: int) -> str:
    return ",".join([piece] * n)


def keyed(value: str, n: int) -> str:
    return ",".join(f'"{key}":{value}' for key in itertools.islice(keys(), n))


DENSE = {
    "lists": '{"a":[' + repeated("[]", 60_000) + "]}",
    "lists of one": '{"a":[' + repeated("[0]", 40_000) + "]}",
    "lists in lists": '{"a":[' + repeated("[" * 400 + "]" * 400, 200) + "]}",
    "objects": '{"a":[' + repeated("{}", 60_000) + "]}",
    "objects of one": '{"a":[' + repeated('{"":0}', 30_000) + "]}",
    "objects in objects": '{"a":[' + repeated('{"":' * 300 + "0" + "}" * 300, 80) + "]}",
    "strings": '{"a":[' + repeated('"ab"', 40_000) + "]}",
    "numbers": '{"a":[' + repeated("300", 50_000) + "]}",
    "keys": "{" + keyed("0", 174_763) + "}",
    "keys of lists": "{" + keyed("[]", 87_382) + "}",
    "keys of objects": "{" + keyed("{}", 87_382) + "}",
    "keys of pairs": "{" + keyed('{"data_offsets":[],"x":[],"y":[]}', 8_000) + "}",
    "one wide character": '{"\U0001f600":[' + repeated("[[]]", 30_000) + "]}",
    "metadata": '{"__metadata__":{' + keyed('""', 30_000) + "}}",
    "one long string": '{"a":"' + "x" * 200_000 + '"}',
    "shape": '{"wte.weight":{"dtype":"F32","data_offsets":[0,8],"shape":[' + repeated("1", 60_000) + "]}}",
}


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("place", ["model.safetensors", INDEX, "config.json"])
def test_no_dense_text_takes_more_than_its_file_and_20_times_itself(
    tmp_path: Path, place: str, kind: str
) -> None:
    text = DENSE[kind].encode()
    files = {"model.safetensors": safetensors({"wte.weight": TABLE})}
    if place == INDEX:
        text = b'{"weight_map":' + text + b"}"
    files[place] = pack(text) if place == "model.safetensors" else text
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    peak = peak_of(lambda: ask_everything(tmp_path))
    assert peak <= sum(map(len, files.values())) + 20 * len(text) + SLACK, (
        f"{peak / len(text):.1f} times the text"
    )


@pytest.mark.parametrize("times", [0, 2, 8, 24, 29, 40])
@pytest.mark.parametrize("kind", ["lists in lists", "objects in objects", "keys of objects"])
def test_a_large_file_allows_for_more_and_for_no_more_than_that(kind: str, times: int) -> None:
    data = memoryview(DENSE[kind].encode())

    def parse() -> None:
        with suppress(DamagedFileError):
            parse_json(data, "model.safetensors", times * len(data))

    assert peak_of(parse) <= (20 + times) * len(data) + SLACK


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json"])
def test_no_dense_vocabulary_takes_more_than_its_file_and_20_times_itself(name: str, kind: str) -> None:
    text = DENSE[kind].encode()
    if name == "tokenizer.json":
        text = b'{"model":{"type":"WordLevel","vocab":' + text + b"}}"
    folder = MemoryFolder({name: text})

    def read() -> None:
        with suppress(InspectEmbedError):
            open_vocabulary(folder)

    assert peak_of(read) <= 21 * len(text) + SLACK


SOUND = {
    "characters": {chr(0x4E00 + n): n for n in range(20_000)},
    "short pieces": {key: n for n, key in enumerate(itertools.islice(keys(), 60_000))},
    "marked pieces": {f"\u2581{key}": n for n, key in enumerate(itertools.islice(keys(), 60_000))},
    "unused places": {f"[unused{n}]": n for n in range(20_000)},
}


@pytest.mark.parametrize("kind", SOUND)
@pytest.mark.parametrize("compact", [True, False])
def test_sound_vocabularies_are_read_however_short_their_entries_are(kind: str, compact: bool) -> None:
    pairs = [["\u0120" + a[0], a[1:]] for a in list(SOUND[kind])[:20_000]]
    model = {"type": "BPE", "vocab": SOUND[kind], "merges": pairs}
    text = json.dumps({"model": model}, ensure_ascii=False, separators=(",", ":") if compact else None)
    vocabulary = open_vocabulary(MemoryFolder({"tokenizer.json": text.encode()}))
    assert vocabulary is not None
    assert vocabulary.n_tokens == len(SOUND[kind])


pieces = st.sampled_from(
    ["[]", "[0]", "{}", '{"":0}', "[[[]]]", '"ab"', '"é"', '"\u4e00"', "300", "0.5", "null", '{"data_offsets":[]}', '{"dtype":"F32"}',
     '{"a":{"b":[]}}', '{"data_offsets":[0],"b":[0],"c":0}', '"\U0001f600x"']
)  # fmt: skip


@given(st.lists(pieces, min_size=1, max_size=6), st.booleans(), st.integers(0, 200_000))
def test_no_mixture_takes_more_either(mixture: list[str], with_keys: bool, more: int) -> None:
    entries = itertools.cycle(mixture)
    values = [
        f'"{key}":{next(entries)}' if with_keys else next(entries) for key in itertools.islice(keys(), 3_000)
    ]
    text = "{" + ",".join(values) + "}" if with_keys else '{"a":[' + ",".join(values) + "]}"
    data = memoryview(text.encode())

    def parse() -> None:
        with suppress(DamagedFileError):
            parse_json(data, "model.safetensors", len(data) + more)

    assert peak_of(parse) <= 20 * len(data) + more + SLACK


@pytest.mark.parametrize("n", [1, 300, 20_000])
def test_sound_headers_of_the_shortest_kind_are_parsed_whatever_their_number(n: int) -> None:
    """Their data are a few bytes each, so that nothing but the text itself allows for the memory."""
    record = '{"dtype":"F32","shape":[],"data_offsets":[%d,%d]}'
    text = ",".join(
        f'"{key}":{record % (4 * i, 4 * i + 4)}' for i, key in enumerate(itertools.islice(keys(), n))
    )
    data = memoryview(f"{{{text}}}".encode())
    assert len(parse_json(data, "model.safetensors", len(data) + 4 * n)) == n


def test_a_sound_header_of_many_tensors_stays_within_the_bound(tmp_path: Path) -> None:
    names = [f"h.{i}.{leaf}.weight" for i in range(5_000) for leaf in ("a", "b", "ln_1")]
    names[0] = "wte.weight"
    data = safetensors(dict.fromkeys(names, TABLE[:1]))
    (tmp_path / "model.safetensors").write_bytes(data)
    length = int.from_bytes(data[:8], "little")
    assert peak_of(lambda: info(open_checkpoint(tmp_path))) <= len(data) + 20 * length + SLACK


@pytest.mark.parametrize("promised", [2**60, 2**63, 2**64 - 1, 2**40, 10**9])
@pytest.mark.parametrize("ninth", [b"{", b"\0"])
def test_a_promised_length_is_held_against_the_file_before_anything_is_allocated(
    tmp_path: Path, promised: int, ninth: bytes
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(promised.to_bytes(8, "little") + ninth + bytes(55))

    def refuse() -> None:
        with pytest.raises(InspectEmbedError):
            open_checkpoint(path)

    assert peak_of(refuse) < SLACK


def test_a_tensor_that_is_not_there_is_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    header = {"wte.weight": {"dtype": "BF16", "shape": [2**20, 2**15], "data_offsets": [0, 2**36]}}
    (tmp_path / "model.safetensors").write_bytes(pack(header, bytes(64)))

    def refuse() -> None:
        table = open_checkpoint(tmp_path, allow_partial=True).table()
        with pytest.raises(DamagedFileError):
            table.rows([2**20 - 1])

    assert peak_of(refuse) < 2 * SLACK
