#!/usr/bin/env python3
"""What does a map of a whole vocabulary cost, beside scikit-learn's own PCA, in one run?

    pip install "inspect-embed[tsne]"
    python scripts/bench_project.py [--folder DIR] [--rounds 5] [--only pca,command,page,tsne]

Makes a GPT-2-sized checkpoint (50,257 x 768 F32, with a vocabulary of as many tokens) in DIR, a temporary folder by
default. Prints medians and ratios, each beside its limit where it has one; peak memory is that of the process that
draws. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# Both sides run the kernels that the machine's own numpy would choose.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    if os.environ.pop(name, None) is not None:
        os.execv(sys.executable, [sys.executable, *sys.argv])

import numpy as np

ROWS, WIDTH = 50_257, 768
PCA_LIMIT, TSNE_LIMIT_GB = 1.1, 4.0

SKLEARN_SCRIPT = """
import csv, json, sys
from safetensors.numpy import load_file
from sklearn.decomposition import PCA
folder, out = sys.argv[1:]
E = load_file(folder + "/model.safetensors")["wte.weight"]
vocabulary = json.load(open(folder + "/tokenizer.json", encoding="utf-8"))["model"]["vocab"]
tokens = sorted(vocabulary, key=vocabulary.get)
with open(out, "w", encoding="utf-8", newline="") as file:
    csv.writer(file).writerows(zip(tokens, *PCA(2).fit_transform(E).T.tolist()))
"""

PEAK_SCRIPT = """
import resource, sys
from inspect_embed.cli import run
status = run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(status)
"""


def make_checkpoint(folder: Path) -> None:
    """Random rows around a common mean, with a spectrum that falls off as that of trained tables does."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    E = rng.standard_normal((ROWS, WIDTH), np.float32) * (np.arange(1, WIDTH + 1, dtype=np.float32) ** -0.25)
    E += rng.standard_normal((200, WIDTH), np.float32)[rng.integers(0, 200, ROWS)] * 0.3
    E += rng.standard_normal(WIDTH, np.float32) * 0.1
    save_file({"wte.weight": E * np.float32(0.1)}, folder / "model.safetensors")
    vocab = {f"t{row}": row for row in range(ROWS)}
    (folder / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    tokenizer = {"model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def in_turn(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each side; one after the other in each round, after one that does not count."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        for side, call in sides.items():
            start = time.perf_counter()
            call()
            if turn:
                seconds[side].append(time.perf_counter() - start)
    return {side: statistics.median(values) for side, values in seconds.items()}


def compare(title: str, found: dict[str, float], limit: float | None) -> None:
    (ours, mine), (theirs, floor) = found.items()
    bound = "" if limit is None else f"   limit {limit}   {'ok' if mine / floor <= limit else 'MISSED'}"
    print(
        f"{title}\n  {ours} {mine:.3f} s, {theirs} {floor:.3f} s: ratio {mine / floor:.2f}{bound}", flush=True
    )


def bench_pca(folder: Path, rounds: int) -> None:
    from safetensors.numpy import load_file
    from sklearn.decomposition import PCA

    from inspect_embed.numerics.projection import fit_pca

    E = load_file(folder / "model.safetensors")["wte.weight"]
    found = in_turn(
        {"ours": lambda: fit_pca(E, 2).apply(E), "scikit-learn": lambda: PCA(2).fit_transform(E)}, rounds
    )
    compare(f"PCA of {ROWS:,} x {WIDTH} to 2 dimensions, in process", found, PCA_LIMIT)


def bench_command(folder: Path, rounds: int) -> None:
    program = [sys.executable, "-m", "inspect_embed", "project", str(folder), "-o", str(folder / "ours.csv")]
    script = [sys.executable, "-c", SKLEARN_SCRIPT, str(folder), str(folder / "theirs.csv")]
    found = in_turn(
        {
            "`project -o map.csv`": lambda: subprocess.run(program, check=True, capture_output=True),
            "a bare script with scikit-learn": lambda: subprocess.run(script, check=True),
        },
        min(rounds, 5),
    )
    compare("The whole command, faithfulness included, from a cold start", found, None)


def measure_command(folder: Path, *options: str) -> tuple[float, float]:
    """Seconds, and the peak memory in GB, of one run of `project`."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PEAK_SCRIPT, "project", str(folder), *options],
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - start, int(done.stderr.split()[-1]) * 1024 / 1e9


def bench_page(folder: Path, rounds: int) -> None:
    for options in (("--first", "5000"), ()):
        path = folder / "map.html"
        seconds, peak = measure_command(folder, *options, "-o", str(path))
        n = options[1] if options else str(ROWS)
        print(f"A page of {int(n):,} points with the true neighbours of each")
        print(f"  {seconds:.1f} s, {path.stat().st_size / 1e6:.1f} MB, peak memory {peak:.2f} GB", flush=True)


def bench_tsne(folder: Path, rounds: int) -> None:
    seconds, peak = measure_command(folder, "--method", "tsne", "-o", str(folder / "tsne.json"))
    answer = json.loads((folder / "tsne.json").read_text(encoding="utf-8"))
    verdict = "ok" if peak <= TSNE_LIMIT_GB else "MISSED"
    print(f"t-SNE of {ROWS:,} points by {answer['library']}, perplexity {answer['perplexity']:g}")
    print(f"  {seconds:.0f} s, peak memory {peak:.2f} GB   limit {TSNE_LIMIT_GB} GB   {verdict}")
    print(f"  of each point's 10 nearest, {answer['faithfulness']['share']:.1%} kept", flush=True)


BENCHES = {"pca": bench_pca, "command": bench_command, "page": bench_page, "tsne": bench_tsne}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(BENCHES))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "model.safetensors").exists():
            make_checkpoint(folder)
        for name in chosen.only.split(","):
            BENCHES[name](folder, chosen.rounds)


if __name__ == "__main__":
    main()
