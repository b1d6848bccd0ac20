#!/usr/bin/env python3
"""How fast are the nearest neighbours of every row, beside the matrix products alone and beside faiss, in one run?

    pip install "inspect-embed[bench]"
    python scripts/bench_all_neighbors.py [--rows 50257] [--width 768] [-k 10] [--rounds 3]

The rows are random, or those of a checkpoint (--checkpoint PATH). The products are taken in blocks of several
shapes, and the quickest counts. Prints medians and ratios; each ratio stands beside its limit. Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator

# All sides run the kernels that the machine's own libraries would choose.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    if os.environ.pop(name, None) is not None:
        os.execv(sys.executable, [sys.executable, *sys.argv])

import numpy as np

from inspect_embed.numerics.all_pairs import find_all_nearest

SHAPES = ((512, 4096), (1024, 4096), (2048, 2048), (512, 1 << 30))


class Table:
    """Rows in memory."""

    def __init__(self, E: np.ndarray) -> None:
        self.E = E
        self.n_rows, self.width = E.shape

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        for start in range(0, self.n_rows, 1024):
            yield start, self.E[start : start + 1024]

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return self.E[ids]


def multiply(U: np.ndarray, shape: tuple[int, int]) -> None:
    """All products of the rows with each other, and nothing else."""
    n = len(U)
    rows, columns = shape[0], min(shape[1], n)
    out = np.empty((rows, columns), np.float32)
    for start in range(0, n, rows):
        for first in range(0, n, columns):
            left, right = U[start : start + rows], U[first : first + columns].T
            if (len(left), right.shape[1]) == out.shape:
                np.matmul(left, right, out=out)
            else:
                left @ right


def load(path: str) -> np.ndarray:
    from inspect_embed import open_checkpoint

    table = open_checkpoint(path).table()
    rows = np.concatenate([block.astype(np.float32) for _, block in table.blocks()])
    return rows[np.isfinite(rows).all(axis=1) & rows.any(axis=1)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=50_257)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--checkpoint")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    k = arguments.k
    if arguments.checkpoint:
        E = load(arguments.checkpoint)
    else:
        E = np.random.default_rng(1).standard_normal((arguments.rows, arguments.width), np.float32)
    U = (E / np.linalg.norm(E.astype(np.float64), axis=1)[:, None]).astype(np.float32)
    table = Table(E)
    sides: dict[str, Callable[[], object]] = {
        f"products {rows} x {'all' if columns > len(E) else columns}": lambda shape=(rows, columns): multiply(
            U, shape
        )
        for rows, columns in SHAPES
    }
    sides["ours"] = lambda: find_all_nearest(table, k)
    try:
        import faiss

        def by_faiss() -> np.ndarray:
            index = faiss.IndexFlatIP(U.shape[1])
            index.add(U)
            return index.search(U, k + 1)[1]

        sides["faiss"] = by_faiss
    except ImportError:
        print("faiss is not installed, so it is left out")
    times: dict[str, list[float]] = {name: [] for name in sides}
    answers: dict[str, object] = {}
    for turn in range(arguments.rounds):
        for name, side in sides.items():
            started = time.perf_counter()
            answers[name] = side()
            times[name].append(time.perf_counter() - started)
            print(f"round {turn + 1}, {name}: {times[name][-1]:.2f} s", file=sys.stderr)
    medians = {name: statistics.median(values) for name, values in times.items()}
    floor = min(seconds for name, seconds in medians.items() if name.startswith("products"))
    print(f"{len(E):,} x {E.shape[1]}, {k} neighbours of every row, medians of {arguments.rounds} rounds")
    for name, seconds in medians.items():
        print(f"{name:<26} {seconds:8.2f} s   {seconds / floor:6.2f} x the products alone")
    print(f"ours / products alone = {medians['ours'] / floor:.3f}   (limit 2.0)")
    if "faiss" in medians:
        print(f"ours / faiss IndexFlatIP = {medians['ours'] / medians['faiss']:.3f}   (limit 0.7)")
        theirs, ours = answers["faiss"], answers["ours"].ids
        same = [len(set(a) & set(b)) for a, b in zip(theirs.tolist(), ours.tolist(), strict=True)]
        print(f"neighbours in common with faiss: {sum(same) / ours.size:.6f}")


if __name__ == "__main__":
    main()
