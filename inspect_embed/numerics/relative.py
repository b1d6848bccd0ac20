"""What do attention scores gain or lose by distance, in models whose positions are only relative?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]


def alibi_slopes(n_heads: int, largest_exponent: float = 8.0) -> Float64s:
    """How much does each head take off a score for each position of distance?

    float64 (n_heads,), in the order of the heads. For n heads, a power of two, the slopes are
    2^(-8/n), 2^(-16/n), ..., 2^-8; for other counts those of the power of two below, then every other one of those of
    the power above. `largest_exponent` is the 8.

    Source: Press, Smith & Lewis 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
    Extrapolation", section 3, and the authors' get_slopes for other counts.
    """
    below = 1 << (n_heads.bit_length() - 1)
    slopes = 2.0 ** (-largest_exponent * np.arange(1, below + 1) / below)
    between = 2.0 ** (-largest_exponent * np.arange(1, 2 * below + 1, 2) / (2 * below))
    return np.concatenate([slopes, between[: n_heads - below]])


def relative_buckets(
    distances: NDArray[np.integer[Any]], n_buckets: int, bidirectional: bool, largest_distance: int
) -> NDArray[np.int64]:
    """Which row of a relative bias holds for each distance (key's place minus query's)?

    int64, the shape of `distances`. Half of the buckets hold one distance each, the others reach up to
    `largest_distance` in steps that grow; what lies beyond shares the last. Where attention looks both ways, the keys
    that follow have the second half of the buckets; where it does not, they share bucket 0 with distance 0.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    section 2.1; the bounds in float32 as in transformers, modeling_t5.py, _relative_position_bucket.
    """
    buckets = np.zeros(distances.shape, np.int64)
    if bidirectional:
        n_buckets //= 2
        buckets += (distances > 0) * n_buckets
        sizes = np.abs(distances)
    else:
        sizes = np.maximum(-distances, 0)
    single = max(n_buckets // 2, 1)
    steps = np.log(np.maximum(sizes, 1).astype(np.float32) / np.float32(single))
    scale = math.log(largest_distance / single) if largest_distance > single else 1.0
    grown = single + (steps / np.float32(scale) * np.float32(n_buckets - single)).astype(np.int64)
    return np.asarray(buckets + np.where(sizes < single, sizes, np.minimum(grown, n_buckets - 1)))
