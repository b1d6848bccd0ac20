"""How fast is `params`? Beside a rival from a cold start, and beside a bare parse of the same headers.

    python scripts/bench_params.py [--runs 15] [--folder DIR]

1. `inspect-embed params` and `modelinfo` (modelinfo-cli, in the extra `bench`) on one GPT-2 file, masks included,
   Python's start counted; runs alternate, medians are compared. Target: at most 0.8 x.
2. `params` in process on 400 shards of 1,000 tensors, opening included, against `json.loads` over the index and the
   headers with the results kept; the garbage collector is off on both sides. Target: at most 2.5 x.

Files are made here: their headers are real, their data a hole of the right size. Let nothing else run meanwhile.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[int, ...]]

N_SHARDS, N_TENSORS = 400, 1000


def gpt2_shapes() -> Shapes:
    """GPT-2 small as its file has it, causal masks and all: 137,022,720 elements, 124,439,808 parameters."""
    d = 768
    shapes: Shapes = {"wte.weight": (50257, d), "wpe.weight": (1024, d)}
    for layer in range(12):
        h = f"h.{layer}."
        shapes |= {
            f"{h}ln_1.weight": (d,),
            f"{h}ln_1.bias": (d,),
            f"{h}attn.bias": (1, 1, 1024, 1024),
            f"{h}attn.c_attn.weight": (d, 3 * d),
            f"{h}attn.c_attn.bias": (3 * d,),
            f"{h}attn.c_proj.weight": (d, d),
            f"{h}attn.c_proj.bias": (d,),
            f"{h}ln_2.weight": (d,),
            f"{h}ln_2.bias": (d,),
            f"{h}mlp.c_fc.weight": (d, 4 * d),
            f"{h}mlp.c_fc.bias": (4 * d,),
            f"{h}mlp.c_proj.weight": (4 * d, d),
            f"{h}mlp.c_proj.bias": (d,),
        }
    return shapes | {"ln_f.weight": (d,), "ln_f.bias": (d,)}


def write_hollow(path: Path, shapes: Shapes, code: str, element_bytes: int) -> None:
    """A safetensors file with this header, whose data are a hole."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + element_bytes * math.prod(shape)
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)


def make_gpt2(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_hollow(folder / "model.safetensors", gpt2_shapes(), "F32", 4)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})
    )
    return folder


def make_shards(folder: Path) -> Path:
    """A mixture of experts with 400,000 tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for shard in range(N_SHARDS):
        file = f"model-{shard + 1:05d}-of-{N_SHARDS:05d}.safetensors"
        names = [
            f"model.layers.{shard}.mlp.experts.{n // 3}.{('gate_proj', 'up_proj', 'down_proj')[n % 3]}.weight"
            for n in range(N_TENSORS)
        ]
        if shard == 0:
            names[0] = "model.embed_tokens.weight"
        if shard == N_SHARDS - 1:
            names[-1] = "lm_head.weight"
        write_hollow(folder / file, dict.fromkeys(names, (64, 32)), "BF16", 2)
        weight_map |= dict.fromkeys(names, file)
    total = 2 * 64 * 32 * len(weight_map)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "tie_word_embeddings": False}))
    return folder


def time_commands(commands: dict[str, list[str]], runs: int, cache: Path) -> dict[str, float]:
    """Median seconds of each command; they take turns, and a first round only warms up.

    Every program finds its modules compiled, as it does once it is installed: what this shell says about
    bytecode does not matter.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(cache)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=environment)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def parse_headers(folder: Path) -> list[Any]:
    """The floor: the index and every header, parsed and kept."""
    kept = [json.loads((folder / "model.safetensors.index.json").read_bytes())]
    for shard in range(N_SHARDS):
        with (folder / f"model-{shard + 1:05d}-of-{N_SHARDS:05d}.safetensors").open("rb") as file:
            kept.append(json.loads(file.read(int.from_bytes(file.read(8), "little"))))
    return kept


def time_in_process(folder: Path, runs: int) -> tuple[float, float]:
    """Median seconds of the floor, and of `params` with opening; by turns."""
    from inspect_embed import open_checkpoint, params

    floor: list[float] = []
    ours: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        kept: Any = parse_headers(folder)
        floor.append(time.perf_counter() - start)
        del kept
        start = time.perf_counter()
        kept = params(open_checkpoint(folder), headers_only=True)
        ours.append(time.perf_counter() - start)
        assert kept.parameters == N_SHARDS * N_TENSORS * 64 * 32
        del kept
    return statistics.median(floor), statistics.median(ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--runs", type=int, default=15, help="runs of each command (a third of them in process)"
    )
    parser.add_argument("--folder", type=Path, help="where to make the files (default: a temporary folder)")
    options = parser.parse_args()
    gc.disable()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        scripts = Path(sysconfig.get_path("scripts"))
        gpt2 = make_gpt2(folder / "gpt2")
        commands = {
            "inspect-embed params": [sys.executable, "-m", "inspect_embed", "params", str(gpt2)],
            "python -c 'import click'": [sys.executable, "-c", "import click"],
        }
        rival = shutil.which("modelinfo", path=str(scripts))
        if rival:
            commands["modelinfo"] = [rival, str(gpt2 / "model.safetensors")]
        print(f"GPT-2 small with its masks, cold start, median of {options.runs}:")
        medians = time_commands(commands, options.runs, Path(temporary) / "bytecode")
        for name, seconds in medians.items():
            print(f"  {name:<26} {1000 * seconds:7.1f} ms")
        if rival:
            ratio = medians["inspect-embed params"] / medians["modelinfo"]
            print(f"  ratio to modelinfo         {ratio:7.2f} x   (target: at most 0.8)")
        else:
            print('  modelinfo is not installed: pip install "inspect-embed[bench]"')

        runs = max(options.runs // 3, 5)
        floor, ours = time_in_process(make_shards(folder / "shards"), runs)
        print(f"{N_SHARDS * N_TENSORS:,} tensors in {N_SHARDS} shards, in process, median of {runs}:")
        print(f"  json.loads, results kept   {1000 * floor:7.0f} ms")
        print(f"  open_checkpoint + params   {1000 * ours:7.0f} ms")
        print(f"  ratio to json.loads        {ours / floor:7.2f} x   (target: at most 2.5)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
