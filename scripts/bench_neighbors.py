#!/usr/bin/env python3
"""How fast are `neighbors` and `info`, beside the floor and beside a rival, in one run?

    pip install "inspect-embed[bench]"
    python scripts/bench_neighbors.py [--folder DIR] [--rounds 7] [--only cli,warm,bf16,info]

Makes its own files in DIR (a temporary folder by default; 1.4 GB): a GPT-2-sized checkpoint of random numbers
with a vocabulary of as many tokens, a Llama-3-sized bfloat16 table, a checkpoint of 400 shards. Prints medians and
ratios; each ratio stands beside its limit. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import gc
import json
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from timing import alternate, say, use_own_kernels

use_own_kernels()

import numpy as np

GPT2 = (50_257, 768)
LLAMA3 = (128_256, 4_096)
SHARDS, TENSORS_PER_SHARD = 400, 1_000

BARE_SCRIPT = """
import json, sys
import numpy as np
path, row = sys.argv[1], int(sys.argv[2])
with open(path, "rb") as file:
    length = int.from_bytes(file.read(8), "little")
    record = json.loads(file.read(length))["wte.weight"]
E = np.memmap(path, np.float32, "r", 8 + length + record["data_offsets"][0], tuple(record["shape"]))
q = E[row] / np.linalg.norm(E[row])
scores = E @ q
scores /= np.sqrt(np.einsum("ij,ij->i", E, E))
scores[row] = -np.inf
top = np.argpartition(-scores, 10)[:10]
for i in top[np.argsort(-scores[top])]:
    print(i, scores[i])
"""

GENSIM_SCRIPT = """
import sys
from gensim.models import KeyedVectors
vectors = KeyedVectors.load(sys.argv[1], mmap="r")
for word, score in vectors.most_similar(sys.argv[2], topn=10):
    print(word, score)
"""

MAKE_GENSIM = """
import json, sys
import numpy as np
from gensim.models import KeyedVectors
folder, out = sys.argv[1:]
vocabulary = json.load(open(folder + "/tokenizer.json", encoding="utf-8"))["model"]["vocab"]
E = np.load(folder + "/table.npy")
vectors = KeyedVectors(E.shape[1])
vectors.add_vectors(sorted(vocabulary, key=vocabulary.get), E)
vectors.save(out)
"""


def write_header(
    path: Path, tensors: dict[str, tuple[str, tuple[int, ...], int]], data: bytes | None
) -> None:
    header: dict[str, object] = {}
    offset = 0
    for name, (encoding, shape, size) in tensors.items():
        header[name] = {"dtype": encoding, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if data is None:
            file.truncate(8 + len(text) + offset)
        else:
            file.write(data)


def make_vocabulary(n: int) -> dict[str, object]:
    """A byte-level vocabulary of n distinct tokens of plausible lengths, with as many merges as GPT-2's file."""
    random = np.random.default_rng(0)
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    words: dict[str, int] = {"Ġgirl": 0}
    while len(words) < n:
        length = int(random.integers(2, 11))
        word = "".join(letters[i] for i in random.integers(0, 26, length))
        words.setdefault(("Ġ" if random.random() < 0.6 else "") + word, len(words))
    merges = [[word[:1], word[1:]] for word in words]
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": words, "merges": merges},
    }


def make_gpt2(folder: Path) -> None:
    if (folder / "tokenizer.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    E = np.random.default_rng(1).standard_normal(GPT2, np.float32)
    wpe = np.random.default_rng(2).standard_normal((1024, GPT2[1]), np.float32)
    tensors = {"wte.weight": ("F32", GPT2, E.nbytes), "wpe.weight": ("F32", wpe.shape, wpe.nbytes)}
    write_header(folder / "model.safetensors", tensors, E.tobytes() + wpe.tobytes())
    np.save(folder / "table.npy", E)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_positions": 1024}))
    text = json.dumps(make_vocabulary(GPT2[0]), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")


def make_llama3(folder: Path) -> None:
    if (folder / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    size = LLAMA3[0] * LLAMA3[1] * 2
    write_header(folder / "model.safetensors", {"model.embed_tokens.weight": ("BF16", LLAMA3, size)}, b"")
    with (folder / "model.safetensors").open("ab") as file:
        for _ in range(0, LLAMA3[0], 8_016):
            block = random.standard_normal((8_016, LLAMA3[1]), np.float32)
            file.write((block.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))


def make_shards(folder: Path) -> None:
    if (folder / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    kinds = ("gate_proj", "up_proj", "down_proj")
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        names = [
            f"model.layers.{shard}.mlp.experts.{n // 3}.{kinds[n % 3]}.weight"
            for n in range(TENSORS_PER_SHARD)
        ]
        if shard == 0:
            names[0] = "model.embed_tokens.weight"
        write_header(folder / file, dict.fromkeys(names, ("BF16", (64, 32), 4096)), None)
        weight_map.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": SHARDS * TENSORS_PER_SHARD * 4096}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def bench_cli(folder: Path, rounds: int) -> None:
    make_gpt2(folder)
    command = str(Path(sys.executable).with_name("inspect-embed"))
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: run(command, "neighbors", str(folder), "·girl"),
        "bare": lambda: run(sys.executable, "-c", BARE_SCRIPT, str(folder / "model.safetensors"), "0"),
    }
    try:
        import gensim  # noqa: F401

        vectors = folder / "table.kv"
        if not vectors.exists():
            run(sys.executable, "-c", MAKE_GENSIM, str(folder), str(vectors))
        sides["gensim"] = lambda: run(sys.executable, "-c", GENSIM_SCRIPT, str(vectors), "Ġgirl")
    except ImportError:
        print("gensim is not installed, so it is left out")
    times = alternate(sides, rounds)
    say("command, GPT-2-sized / bare numpy script", times["ours"], times["bare"], "2.0")
    if "gensim" in times:
        say("command, GPT-2-sized / gensim KeyedVectors", times["ours"], times["gensim"], "0.2")


def bench_warm(folder: Path, rounds: int) -> None:
    from inspect_embed import neighbors, open_checkpoint

    make_gpt2(folder)
    checkpoint = open_checkpoint(folder)
    E = np.memmap(
        folder / "model.safetensors", np.float32, "r", _data_start(folder / "model.safetensors"), GPT2
    )
    q = np.array(E[0])
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: neighbors(checkpoint, ["·girl"]),
        "floor": lambda: E @ q,
    }
    times = alternate(sides, max(rounds, 21))
    say("in process, warm / E @ q", times["ours"], times["floor"], "1.3")


def _data_start(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def bf16_loop(raw: np.ndarray, row: int, rows_per_block: int = 32) -> np.ndarray:
    """The ten nearest by cosine in a table of bfloat16 words: the plainest fast loop."""
    n, width = raw.shape
    q = (raw[row].astype(np.uint32) << 16).view(np.float32)
    q = q / np.linalg.norm(q)
    dots, squares = np.empty(n, np.float32), np.empty(n, np.float32)
    words = np.empty((rows_per_block, width), np.uint32)
    block = words.view(np.float32)
    for start in range(0, n, rows_per_block):
        stop = min(start + rows_per_block, n)
        part = slice(0, stop - start)
        np.left_shift(raw[start:stop], 16, out=words[part], dtype=np.uint32)
        np.dot(block[part], q, out=dots[start:stop])
        np.einsum("ij,ij->i", block[part], block[part], out=squares[start:stop])
    scores = dots / np.sqrt(squares)
    scores[row] = -np.inf
    top = np.argpartition(-scores, 10)[:10]
    return top[np.argsort(-scores[top])]


def bench_bf16(folder: Path, rounds: int) -> None:
    from inspect_embed import neighbors, open_checkpoint

    make_llama3(folder)
    path = folder / "model.safetensors"
    raw = np.memmap(path, np.uint16, "r", _data_start(path), LLAMA3)

    def ours() -> list[int]:
        found = neighbors(open_checkpoint(folder), ["id:7"])
        return [neighbor.id for neighbor in found.results[0].neighbors]

    sizes = (8, 16, 32, 64, 128, 256)
    best = min(sizes, key=lambda size: alternate({"loop": lambda: bf16_loop(raw, 7, size)}, 2)["loop"])
    if ours() != bf16_loop(raw, 7, best).tolist():
        raise SystemExit("the two sides disagree")
    times = alternate({"ours": ours, "loop": lambda: bf16_loop(raw, 7, best)}, rounds)
    say(f"Llama-3-sized bf16 / numpy loop ({best} rows a block)", times["ours"], times["loop"], "1.5")
    print(f"{'peak anonymous memory of the command':<58} {_peak_anonymous(folder):9.1f} MB   (limit 200 MB)")


def _peak_anonymous(folder: Path) -> float:
    """Megabytes that the command holds beyond mapped files, at most, sampled while it runs."""
    command = [str(Path(sys.executable).with_name("inspect-embed")), "neighbors", str(folder), "id:7"]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                break
            for line in status.splitlines():
                if line.startswith("RssAnon:"):
                    peak = max(peak, int(line.split()[1]))
    return peak / 1024


def bench_info(folder: Path, rounds: int) -> None:
    from inspect_embed import info, open_checkpoint

    make_shards(folder)
    files = sorted(folder.glob("*.safetensors"))

    def floor() -> object:
        kept = [json.loads((folder / "model.safetensors.index.json").read_bytes())]
        for path in files:
            with path.open("rb") as file:
                kept.append(json.loads(file.read(int.from_bytes(file.read(8), "little"))))
        return kept

    gc.disable()
    times = alternate({"ours": lambda: info(open_checkpoint(folder)), "floor": floor}, rounds)
    gc.enable()
    say("info, 400 shards x 1,000 tensors / json.loads", times["ours"], times["floor"], "2.0")


BENCHES = {"cli": bench_cli, "warm": bench_warm, "bf16": bench_bf16, "info": bench_info}
FOLDERS = {"cli": "gpt2", "warm": "gpt2", "bf16": "llama3", "info": "shards"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="where the files are made, and kept")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(BENCHES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for name in arguments.only.split(","):
            BENCHES[name](folder / FOLDERS[name], arguments.rounds)


if __name__ == "__main__":
    main()
