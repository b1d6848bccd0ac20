"""What the benchmarks share: the same kernels for every side, sides that take turns, and a line for each ratio.

Import it, and call `use_own_kernels`, before numpy is imported.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable


def use_own_kernels() -> None:
    """Let every side run the kernels that the machine's own numpy would choose; starts the script anew if need be."""
    named = [
        name for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if os.environ.pop(name, None) is not None
    ]
    if named:
        os.execv(sys.executable, [sys.executable, *sys.argv])


def alternate(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each side, the sides taking turns; one round before counts for nothing."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, side in sides.items():
            started = time.perf_counter()
            side()
            if turn:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def say(what: str, ours: float, theirs: float, limit: str) -> None:
    print(
        f"{what:<58} {ours * 1e3:9.1f} ms / {theirs * 1e3:9.1f} ms = {ours / theirs:6.3f}   (limit {limit})"
    )
