"""PyTorch archives: what torch writes, read without it; views, shards, nested dictionaries; pickles made to hurt."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import subprocess
import sys
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import WatchedFolder, random_table
from made import index as make_index
from numpy.typing import NDArray
from torch_maker import (
    END,
    archive,
    call,
    mapping,
    name,
    number,
    row_major,
    saved,
    saved_before_zip,
    state,
    tensor,
    text,
)

from inspect_embed import info, neighbors, open_checkpoint, params
from inspect_embed.errors import CheckpointError, DamagedFileError, InspectEmbedError, NotACheckpointError
from inspect_embed.formats._unpickle import KNOWN
from inspect_embed.formats.torch_zip import TorchTensors, read_tensors
from inspect_embed.storage.memory import MemoryFolder

MODEL = "pytorch_model.bin"
TABLE = random_table(6, 4)
HEAD = random_table(6, 4, seed=1)
TWO = {"transformer.wte.weight": TABLE, "lm_head.weight": HEAD}


def opened(
    files: Mapping[str, bytes] | bytes, chosen: str | None = None, allow_partial: bool = False
) -> TorchTensors:
    folder = MemoryFolder({MODEL: files} if isinstance(files, bytes) else files)
    return read_tensors(folder, chosen, allow_partial)


def refused(files: Mapping[str, bytes] | bytes, chosen: str | None = None) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        opened(files, chosen)
    assert caught.value.hint, "an error says what to do next"
    assert "\n" not in str(caught.value)
    return caught.value


def values(tensors: TorchTensors, tensor_name: str) -> NDArray[Any]:
    entry = tensors[tensor_name]
    decoded = entry.encoding.decode(tensors.read(entry, 0, entry.n_bytes))
    return np.asarray(decoded).reshape(entry.shape)


# --- what a file holds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [saved, saved_before_zip])
def test_a_file_is_its_state_dict(make: Callable[[Mapping[str, NDArray[Any]]], bytes]) -> None:
    arrays = {
        **TWO,
        "half": TABLE.astype(np.float16),
        "double": TABLE.astype(np.float64),
        "count": np.arange(3),
    }
    tensors = opened(make(arrays))
    assert tensors.names() == list(arrays)
    assert not tensors.warnings
    assert [tensors[n].encoding.name for n in tensors.names()] == ["F32", "F32", "F16", "F64", "I64"]
    for key in ("transformer.wte.weight", "lm_head.weight", "half", "double"):
        assert np.array_equal(values(tensors, key), arrays[key])
        assert tensors[key].shape == arrays[key].shape


def test_numbers_are_read_where_they_lie() -> None:
    folder = WatchedFolder({MODEL: saved({"a": random_table(1000, 64), "b": TABLE})})
    tensors = read_tensors(folder)
    at_opening = sum(stop - start for start, stop in folder.reads[MODEL])
    assert at_opening < 80_000 < 1000 * 64 * 4
    before = len(folder.reads[MODEL])
    entry = tensors["a"]
    rows = [tensors.read(entry, 256 * n, 256 * n + 256) for n in (1, 5)]
    assert [np.frombuffer(row, np.float32).tolist() for row in rows] == random_table(1000, 64)[
        [1, 5]
    ].tolist()
    sizes = [stop - start for start, stop in folder.reads[MODEL][before:]]
    assert sizes == [30, 256, 256]  # the header that says where the numbers begin, once, and the rows


def view_of(stored: NDArray[np.float32], view: NDArray[np.float32]) -> tuple[bytes, NDArray[np.float32]]:
    offset = (view.__array_interface__["data"][0] - stored.__array_interface__["data"][0]) // 4
    strides = tuple(step // 4 for step in view.strides)
    return archive(
        b"\x80\x02" + mapping({"x": tensor("0", stored.size, view.shape, strides, offset)}) + END,
        {"0": stored.tobytes()},
    ), view


STORED = np.ascontiguousarray(random_table(24, 10, seed=4))
VIEWS = {
    "a part": STORED[3:9],
    "transposed": STORED.T,
    "every other column": STORED[:, ::2],
    "every third row": STORED[1::3, 2:7],
    "three dimensions": STORED.reshape(4, 6, 10).transpose(2, 0, 1),
    "a column": STORED[:, 3],
    "one row again and again": np.broadcast_to(STORED[2], (5, 10)),
    "a single number": STORED[2, 3:4].reshape(()),
    "no numbers": STORED[3:3],
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_is_put_in_turn_whatever_its_strides(kind: str) -> None:
    data, view = view_of(STORED, VIEWS[kind])
    tensors = opened(data)
    whole = np.ascontiguousarray(view).tobytes()
    entry = tensors["x"]
    assert entry.shape == view.shape
    assert entry.n_bytes == len(whole)
    assert bytes(tensors.read(entry, 0, len(whole))) == whole
    for start in range(0, len(whole), 13):
        assert bytes(tensors.read(entry, start, min(start + 27, len(whole)))) == whole[start : start + 27]


def test_rows_and_blocks_of_a_transposed_table_agree(tmp_path: Path) -> None:
    stored = random_table(16, 40_000, seed=9)
    content = mapping({"wte.weight": tensor("0", stored.size, (40_000, 16), (1, 40_000))})
    (tmp_path / MODEL).write_bytes(archive(b"\x80\x02" + content + END, {"0": stored.tobytes()}))
    table = open_checkpoint(tmp_path).table()
    assert np.array_equal(np.concatenate([block.copy() for _, block in table.blocks()]), stored.T)
    assert np.array_equal(table.rows([39_999, 0, 8_191]), stored.T[[39_999, 0, 8_191]])


def test_one_tensor_under_two_names_is_listed_once(tmp_path: Path) -> None:
    entry = tensor("0", TABLE.size, TABLE.shape, row_major(TABLE.shape))
    content = mapping({"transformer.wte.weight": entry, "lm_head.weight": entry})
    (tmp_path / MODEL).write_bytes(archive(b"\x80\x02" + content + END, {"0": TABLE.tobytes()}))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.tensors.names() == ["transformer.wte.weight"]
    assert checkpoint.tensors["lm_head.weight"].name == "transformer.wte.weight"
    assert info(checkpoint).tied is True
    assert params(checkpoint).parameters == TABLE.size
    assert np.array_equal(checkpoint.table("output").rows([3]), TABLE[[3]])


def test_two_views_of_one_run_of_numbers_are_two_tensors() -> None:
    first = tensor("0", 24, (3, 4), (4, 1))
    second = tensor("0", 24, (3, 4), (4, 1), offset=12)
    tensors = opened(archive(b"\x80\x02" + mapping({"a": first, "b": second}) + END, {"0": TABLE.tobytes()}))
    assert tensors.names() == ["a", "b"]
    assert np.array_equal(values(tensors, "b"), TABLE[3:])


@pytest.mark.parametrize(
    "around", [("model",), ("state_dict",), ("checkpoint", "model"), ("state_dict", "module")]
)
def test_weights_are_found_under_the_keys_of_a_training(around: tuple[str, ...]) -> None:
    tensors = opened(saved(TWO, around))
    prefix = "checkpoint.model." if around[0] == "checkpoint" else ""
    assert [tensor_name.removeprefix(prefix) for tensor_name in tensors.names()] == list(TWO)


def test_an_optimizer_beside_the_model_is_not_counted() -> None:
    entries, stored = state({**TWO, "exp_avg": TABLE})
    slow = entries.pop("exp_avg")
    content = mapping(
        {
            "model": mapping(entries),
            "optimizer": mapping({"state": mapping({"exp_avg": slow})}),
            "step": number(7),
        }
    )
    tensors = opened(archive(b"\x80\x02" + content + END, stored))
    assert tensors.names() == list(TWO)
    assert "optimizer" in tensors.notes[0]


def test_without_a_key_of_the_model_all_but_the_optimizer_is_taken() -> None:
    entries, stored = state({"wte": TABLE, "w": HEAD, "m": TABLE})
    content = mapping(
        {
            "wte": entries["wte"],
            "layers": b"](" + mapping({"w": entries["w"]}) + b"e",
            "optimizer_state": mapping({"m": entries["m"]}),
        }
    )
    tensors = opened(archive(b"\x80\x02" + content + END, stored))
    assert tensors.names() == ["wte", "layers.0.w"]


# --- shards --------------------------------------------------------------------------------------------------

FIRST, SECOND = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"
INDEX = "pytorch_model.bin.index.json"
SHARDS = {
    FIRST: saved({"transformer.wte.weight": TABLE}),
    SECOND: saved({"lm_head.weight": HEAD}),
}
WITH_INDEX = {**SHARDS, INDEX: make_index({"transformer.wte.weight": FIRST, "lm_head.weight": SECOND})}


@pytest.mark.parametrize("files", [SHARDS, WITH_INDEX])
def test_shards_are_one_model(files: dict[str, bytes]) -> None:
    tensors = opened({**files, "training_args.bin": saved({"x": TABLE}), "optimizer.pt": saved({"y": TABLE})})
    assert tensors.files == (FIRST, SECOND)
    assert np.array_equal(values(tensors, "transformer.wte.weight"), TABLE)
    assert np.array_equal(values(tensors, "lm_head.weight"), HEAD)


@pytest.mark.parametrize("files", [SHARDS, WITH_INDEX])
def test_a_shard_that_is_missing_is_a_warning(files: dict[str, bytes]) -> None:
    tensors = opened({file: data for file, data in files.items() if file != SECOND})
    assert tensors.missing_files == (SECOND,)
    assert SECOND in tensors.warnings[0]
    assert tensors.missing_names() == (["lm_head.weight"] if INDEX in files else [])


def test_an_index_stays_inside_its_folder() -> None:
    assert "plain name" in str(refused({INDEX: make_index({"x": "../../etc/passwd"})}))
    assert "is there" in str(refused({INDEX: make_index({"x": FIRST})}))
    assert "weight_map" in str(refused({INDEX: b'{"weight_map": [1]}'}))


def test_several_models_must_be_chosen_from() -> None:
    assert "a.pt, b.pt" in str(refused({"a.pt": saved(TWO), "b.pt": saved(TWO)}))
    assert opened({"a.pt": saved(TWO), "b.pt": saved(TWO)}, "b.pt").files == ("b.pt",)


# --- files that torch writes ---------------------------------------------------------------------------------


def state_dict() -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    g = torch.Generator().manual_seed(0)
    E = torch.randn(50, 8, generator=g)
    made = OrderedDict(
        {
            "transformer.wte.weight": E,
            "transformer.wpe.weight": torch.randn(8, 20, generator=g).t(),
            "half": torch.randn(4, 6, generator=g).half()[:, ::2],
            "brain": torch.randn(4, 6, generator=g).bfloat16()[1:3],
            "expanded": torch.randn(6, generator=g).expand(3, 6),
            "one": torch.tensor(3.5),
            "turned": torch.randn(3, 4, 5, generator=g).permute(2, 0, 1),
            "double": torch.randn(3, 3, generator=g, dtype=torch.float64),
            "learned": torch.nn.Parameter(torch.randn(2, 2, generator=g)),
            "counts": torch.arange(5),
            "flags": torch.tensor([True, False]),
            "none": torch.zeros(0, 3),
            "lm_head.weight": E,
        }
    )
    made._metadata = OrderedDict(version=1)  # type: ignore[attr-defined]
    return made


def bytes_of(value: Any) -> bytes:
    import torch

    plain = value.detach().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("nested", [False, True])
def test_what_torch_saves_is_read_without_it(
    tmp_path: Path, zipped: bool, protocol: int, nested: bool
) -> None:
    made = state_dict()
    import torch

    weight = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = torch.optim.AdamW([weight])
    weight.grad = torch.ones(3, 3)
    optimizer.step()
    content = {"model": made, "optimizer": optimizer.state_dict(), "epoch": 3} if nested else made
    torch.save(
        content,
        tmp_path / "x.pt",
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=zipped,
    )
    tensors = open_checkpoint(tmp_path / "x.pt").tensors
    assert tensors.names() == [key for key in made if key != "lm_head.weight"]
    assert tensors.aliases == {"lm_head.weight": "transformer.wte.weight"}
    for key, value in made.items():
        entry = tensors[key]
        assert entry.shape == tuple(value.shape)
        assert bytes(tensors.read(entry, 0, entry.n_bytes)) == bytes_of(value), key


def test_short_floats_that_torch_saves_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    E = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    made = {
        "a": E.to(torch.float8_e4m3fn),
        "b": E.to(torch.float8_e5m2).t(),
        "c": torch.arange(6).to(torch.uint16),
        "d": torch.randn(2, 3, dtype=torch.complex128),
    }
    torch.save(made, tmp_path / "x.pt")
    tensors = open_checkpoint(tmp_path / "x.pt").tensors
    assert [tensors[key].encoding.name for key in made] == ["F8_E4M3", "F8_E5M2", "U16", "C128"]
    for key, value in made.items():
        assert bytes(tensors.read(tensors[key], 0, tensors[key].n_bytes)) == bytes_of(value)
    ours = tensors["b"].encoding.decode(tensors.read(tensors["b"], 0, 24)).reshape(6, 4)
    assert np.array_equal(ours, made["b"].float().numpy())


def test_the_same_model_as_bin_and_as_safetensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from safetensors.torch import save_file

    E = torch.randn(200, 16, generator=torch.Generator().manual_seed(2))
    E[7] = E[3] + 0.01
    for encoding in (torch.float32, torch.float16, torch.bfloat16):
        kept = {
            "transformer.wte.weight": E.to(encoding),
            "transformer.wpe.weight": E[:9].clone().to(encoding),
        }
        for folder in ("bin", "st"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "config.json").write_text('{"model_type": "gpt2"}')
        torch.save(kept, tmp_path / "bin" / MODEL)
        save_file(kept, tmp_path / "st" / "model.safetensors")
        ours, theirs = open_checkpoint(tmp_path / "bin"), open_checkpoint(tmp_path / "st")
        assert np.array_equal(ours.table().rows(range(200)), theirs.table().rows(range(200)))
        answers = [neighbors(c, ["id:3"], k=5).results for c in (ours, theirs)]
        assert answers[0] == answers[1]
        assert answers[0][0].neighbors[0].id == 7
        assert info(ours).tables == info(theirs).tables
        assert params(ours).parameters == params(theirs).parameters


def test_a_torchscript_program_is_one_clear_line(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    inner = {"code/__torch__.py": b"pass", "constants.pkl": b"\x80\x02)."}
    with pytest.raises(NotACheckpointError, match="TorchScript program"):
        opened(archive(b"\x80\x02}.", {}, more=inner))
    torch.save(torch.nn.Linear(3, 2), tmp_path / "whole.pt")
    with pytest.raises(NotACheckpointError, match=r"asks for torch\.nn\.modules\.linear\.Linear"):
        open_checkpoint(tmp_path / "whole.pt")


# --- pickles made to hurt ------------------------------------------------------------------------------------


class Hostile:
    """What pickle turns into a call when it is loaded."""

    def __init__(self, called: Any, *arguments: Any) -> None:
        self._call = called, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._call


def payloads(marker: Path) -> dict[str, bytes]:
    """Pickles that start something or write the marker, each in a way of its own."""
    touch = f"touch {marker}"
    write = f"open({str(marker)!r}, 'w').close()"
    system, run = Hostile(os.system, touch), Hostile(eval, write)
    told = text(touch)
    return {
        **{f"os.system, protocol {n}": pickle.dumps(system, n) for n in range(6)},
        "eval": pickle.dumps(run),
        "exec": pickle.dumps(Hostile(exec, write)),
        "popen": pickle.dumps(Hostile(subprocess.Popen, ("touch", str(marker)))),
        "nested in a state dict": pickle.dumps({"model": OrderedDict(a=[1, (2, {"b": system})])}),
        "as a key": b"\x80\x02}" + call(name("posix", "system"), told) + b"K\x01s.",
        "in the list of hooks": b"\x80\x02" + call(name("collections", "OrderedDict"), b"](" + call(name("posix", "system"), told) + b"e") + b".",
        "behind a huge memo": b"\x80\x02" + b"".join(b"}r" + (n * 65_537 % (1 << 32)).to_bytes(4, "little") for n in range(5000)) + call(name("posix", "system"), told) + b".",
        "as an instance": b"(" + told + b"iposix\nsystem\n.",
        "as an object": b"(" + name("posix", "system") + told + b"o.",
        "as a new object": b"\x80\x02" + name("posix", "system") + told + b"\x85\x81.",
        "by names on the stack": b"\x80\x04" + text("posix") + text("system") + b"\x93" + told + b"\x85R.",
        "by attributes": b"\x80\x02" + name("builtins", "getattr") + name("builtins", "eval") + b".",
        "by import": b"\x80\x02" + call(name("importlib", "import_module"), text("antigravity")) + b".",
        "through torch": b"\x80\x02" + call(name("torch.hub", "load"), text("x/y"), text("z")) + b".",
        "through a tensor's class": b"\x80\x02" + call(name("torch._tensor", "_rebuild_from_type_v2"), name("posix", "system"), name("torch", "Tensor"), b"(" + told + b"t", b"N") + b".",
        "through a dotted name": b"\x80\x04" + text("torch") + text("os.system") + b"\x93" + told + b"\x85R.",
        "by the extension registry": b"\x80\x02\x82\x01.",
        "by a persistent name": b"Pposix.system\n.",
        "by state": b"\x80\x02" + name("torch", "FloatStorage") + b"}b.",
        "cut short": pickle.dumps({"model": OrderedDict(a=system)})[:-9],
    }  # fmt: skip


def hostile_files(folder: Path, marker: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = []
    for place, (kind, payload) in enumerate(payloads(marker).items()):
        for wrap, suffix in ((lambda data: archive(data, {}), "zip"), (lambda data: OLD_HEAD + data, "old")):
            path = folder / f"{place:02d}-{suffix}-{kind.replace(' ', '_').replace(',', '')}.pt"
            path.write_bytes(wrap(payload))
            files.append(path)
    return files


OLD_HEAD = saved_before_zip(TWO)[:15] + b"\x80\x02K\x01." + b"\x80\x02}."

WATCH = """
import json, os, resource, sys
from inspect_embed import info, open_checkpoint
from inspect_embed.errors import InspectEmbedError

def children():
    found = []
    for thread in os.listdir("/proc/self/task"):
        found += open(f"/proc/self/task/{thread}/children").read().split()
    return found

files = sys.argv[2:]
try:
    info(open_checkpoint(sys.argv[1]))  # imports what is needed
except InspectEmbedError:
    pass
events = []
started = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pty.spawn",
           "exec", "compile", "import", "socket.connect", "ctypes.dlopen")
sys.addaudithook(lambda event, arguments: events.append(event) if event in started else None)
before = children(), resource.getrusage(resource.RUSAGE_CHILDREN), len(os.listdir("/proc/self/task")), set(sys.modules)
said = []
for path in files:
    try:
        info(open_checkpoint(path))
        said.append(None)
    except InspectEmbedError as error:
        said.append(str(error))
after = children(), resource.getrusage(resource.RUSAGE_CHILDREN), len(os.listdir("/proc/self/task")), set(sys.modules)
print(json.dumps({"said": said, "events": events, "same": before == after, "children": after[0]}))
"""


def test_no_hostile_pickle_runs_and_each_is_one_line(tmp_path: Path) -> None:
    """Watched from within by audit hooks, and by the kernel's own list of the process's children."""
    if not Path("/proc/self/task").is_dir():
        pytest.skip("there is no /proc to tell whether a process was started")
    marker = tmp_path / "marker"
    files = hostile_files(tmp_path / "files", marker)
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(files[0]), *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["events"] == []
    assert seen["children"] == []
    assert seen["same"], "a child, a thread or a module came to be"
    assert not marker.exists()
    for path, said in zip(files, seen["said"], strict=True):
        assert said, f"{path.name} was opened"
        assert "\n" not in said
        assert len(said) < 300
        assert path.name in said


def test_the_payloads_do_harm_where_pickles_are_run(tmp_path: Path) -> None:
    """Were they harmless, the test above would prove nothing."""
    for kind in ("os.system, protocol 2", "eval", "nested in a state dict", "behind a huge memo", "as an instance", "by names on the stack"):  # fmt: skip
        marker = tmp_path / "marker"
        done = subprocess.run(
            [sys.executable, "-c", "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"],
            input=payloads(marker)[kind],
            check=False,
            capture_output=True,
        )
        assert marker.exists(), (kind, done.stderr)
        marker.unlink()


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("os.system, protocol 2", f"{os.system.__module__}.system"),
        ("eval", "eval"),
        ("popen", "subprocess.Popen"),
        ("by names on the stack", "posix.system"),
        ("through a dotted name", "torch.os.system"),
        ("by import", "importlib.import_module"),
        ("through torch", "torch.hub.load"),
    ],
)
def test_what_is_refused_is_named(payload: str, said: str) -> None:
    error = refused(archive(payloads(Path("marker"))[payload], {}))
    assert f"asks for {said}" in str(error) or f"asks for builtins.{said}" in str(error)
    assert "Nothing in it was run" in str(error)


def test_a_name_cannot_smuggle_lines_into_the_message() -> None:
    wild = "a\u001b[31m\u202e" + "b" * 5000
    error = refused(archive(b"\x80\x04" + text("mod") + text(wild) + b"\x93.", {}))
    assert len(str(error)) < 400
    assert "\u001b" not in str(error)
    assert "\u202e" not in str(error)


def test_what_may_be_named_makes_nothing_but_records() -> None:
    """No entry of the table is a function or a class of another module."""
    for known in KNOWN.values():
        assert type(known).__module__ == "inspect_embed.formats._unpickle"


def test_every_step_that_state_dicts_take_is_known() -> None:
    """Of the machine's steps only those are unknown that refer to something outside, or that no torch ever wrote."""
    from inspect_embed.formats._unpickle import _STEPS

    known = {chr(code) for code in _STEPS} | {"."}
    unknown = {step.name for step in pickletools.opcodes if step.code not in known}
    assert unknown == {"STRING", "PERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"}


LARGE = 1 << 20


@pytest.mark.parametrize(
    "payload",
    [
        b"\x80\x02" + b"(" * LARGE + END,
        b"\x80\x02" + b"]q\x00" * (LARGE // 2) + END,
        b"\x80\x04" + b"}\x94" * LARGE + END,
        b"\x80\x02(" + b"K\x01" * LARGE + b"tq\x000" + b"h\x00\x85" * 1000 + END,
        b"\x80\x02(" + b"K\x01" * 20_000 + b"lq\x000" + (name("builtins", "tuple") + b"h\x00\x85R0") * 5000 + END,
        b"\x80\x02(" + b"K\x01" * 20_000 + b"tq\x000" + (name("torch", "Size") + b"h\x00\x85R") * 5000 + END,
        b"\x80\x04\x8e" + ((1 << 63) - 1).to_bytes(8, "little") + b"x" + END,
        b"\x80\x04\x8d" + ((1 << 64) - 1).to_bytes(8, "little") + b"x" + END,
        b"\x80\x02\x8b\xff\xff\xff\x7f" + END,
        b"\x80\x02\x8b\xff\xff\xff\xff" + END,
        b"\x80\x02]r\xff\xff\xff\xff" + END,
        b"I" + b"9" * 900_000 + b"\n.",
        b"\x80\x02" + b"]q\x00" + b"".join(b"](h" + bytes([n]) + b"h" + bytes([n]) + b"eq" + bytes([n + 1]) for n in range(60)) + END,
        b"\x80\x02}" + b"".join(b")" + b"".join(b"q\x00h\x00h\x00\x86" for _ in range(60)) + b"K\x01s" for _ in range(1)) + END,
        b"\x80\x02}q\x00(" + text("a") + b"h\x00u" + END,
        b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + END,
    ],
)  # fmt: skip
def test_no_pickle_takes_more_memory_than_its_file_allows(payload: bytes) -> None:
    data = archive(payload, {})
    folder = MemoryFolder({MODEL: data})
    tracemalloc.start()
    try:
        with pytest.raises(InspectEmbedError) as caught:
            read_tensors(folder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400_000_000
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (tensor("0", 24, (6, 5), (5, 1)), "run past"),
        (tensor("0", 24, (6, 4), (4, 1), offset=1), "run past"),
        (tensor("0", 24, (1 << 40, 4), (0, 1)), "a shape of"),
        (tensor("0", 25, (6, 4), (4, 1)), "take 100 bytes and have 96"),
        (tensor("9", 24, (6, 4), (4, 1)), "are not in it"),
        (tensor("../data/0", 24, (6, 4), (4, 1)), "are not in it"),
        (tensor("0", 1 << 62, (1 << 61, 2), (2, 1)), "bytes and have"),
        (tensor("0", 24, (6, 4), (4,)), "do not fit"),
        (tensor("0", 24, (-6, 4), (4, 1)), "do not fit"),
        (tensor("0", 24, (6, 4), (-4, 1)), "do not fit"),
        (tensor("0", 24, (6, 4), (4, 1), storage="NoSuchStorage"), "torch.NoSuchStorage"),
        (tensor("0", 24, (1,) * 65, (1,) * 65), "do not fit"),
    ],
)
def test_a_tensor_stays_inside_the_numbers_that_it_is_a_view_of(content: bytes, said: str) -> None:
    assert said in str(refused(archive(b"\x80\x02" + mapping({"x": content}) + END, {"0": TABLE.tobytes()})))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"hello world, this is no model", "begins with"),
        (b"GGUF" + bytes(100), "a GGUF file"),
        (pickle.dumps({"a": 1}), "Python pickle that torch.save did not write"),
        (b"\x93NUMPY" + bytes(100), "numpy"),
        (archive(b"\x80\x02}.", {}), "holds no tensors"),
        (archive(b"\x80\x02K\x01.", {}), "holds no tensors"),
        (archive(b"", {}), "ends in the middle"),
        (archive(b"\x80\x02}.", {}, more={"byteorder": b"big"}), "big-endian"),
        (saved(TWO)[:-40], "cut short"),
        (saved(TWO)[:200], "cut short"),
    ],
)
def test_what_stands_in_its_place_is_named(data: bytes, said: str) -> None:
    assert said in str(refused(data))


def packed_archive() -> bytes:
    import io

    entries, stored = state(TWO)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + mapping(entries) + END)
        for key, data in stored.items():
            file.writestr(f"archive/data/{key}", data + bytes(10_000))
    return buffer.getvalue()


def test_an_archive_that_is_packed_or_of_another_kind_is_named() -> None:
    assert "packed zip archive" in str(refused(packed_archive()))
    other = archive(b"", {}).replace(b"data.pkl", b"readme.t")
    assert "torch.save did not write" in str(refused(other))


def test_the_old_format_cut_short_says_so_and_can_be_read_in_part() -> None:
    data = saved_before_zip(TWO)
    tensors = opened(data[:-20])
    assert f"needs {len(data):,} bytes and has {len(data) - 20:,}" in tensors.warnings[0]
    with pytest.raises(DamagedFileError, match="cut short"):
        values(tensors, "transformer.wte.weight")
    partial = opened(data[:-20], allow_partial=True)
    assert np.array_equal(values(partial, "transformer.wte.weight"), TABLE)
    with pytest.raises(DamagedFileError, match=r"'lm_head\.weight' needs bytes"):
        values(partial, "lm_head.weight")


def problem(data: bytes) -> str:
    """What is said against a file; empty where nothing is. Anything but an error of ours comes through."""
    try:
        tensors = opened(data)
        for tensor_name in tensors.names():
            entry = tensors[tensor_name]
            tensors.read(entry, 0, min(entry.n_bytes, 1 << 16))
    except InspectEmbedError as error:
        return str(error)
    return ""


ZIPPED, OLD = saved(TWO, ("model",)), saved_before_zip(TWO)


@given(
    old=st.booleans(),
    cut=st.integers(0, 4000),
    changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=5),
)
def test_no_damage_ends_in_a_traceback(old: bool, cut: int, changes: list[tuple[int, int]]) -> None:
    data = bytearray((OLD if old else ZIPPED)[: -cut or None] if cut < 500 else (OLD if old else ZIPPED))
    for place, value in changes:
        data[place % max(len(data), 1) : place % max(len(data), 1) + 1] = bytes([value])
    assert "\n" not in problem(bytes(data))


@given(st.binary(max_size=60))
def test_no_pickle_at_all_ends_in_a_traceback(raw: bytes) -> None:
    assert "\n" not in problem(archive(raw, {}))
    assert "\n" not in problem(archive(b"\x80\x02" + mapping({"x": raw}) + END, {}))
