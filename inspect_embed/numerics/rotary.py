"""How fast does each pair of numbers turn in a model with rotary positions, and how long is its wave?

Rotary positions (RoPE) turn query and key vectors pair by pair: at position p, pair i by the angle p x w_i. There is
no table; all follows from the frequencies w_i. Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary
Position Embedding", section 3.2.2 and equation 15: w_i = theta^(-2i/d).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the frequencies are changed so that a longer context can be read; None where nothing is said.

    `original` is the number of positions of the first training. `short` and `long` are divisors, one a pair, for
    sequences up to and beyond it.
    """

    factor: float | None = None
    original: float | None = None
    alpha: float | None = None
    low_frequency: float | None = None
    high_frequency: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention: float | None = None
    mscale: float | None = None
    mscale_all: float | None = None
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Rope:
    """What one kind of layer does to its queries and keys.

    `layers` names the kind of layer. Of the `head_width` numbers of a head, `width` are turned. `context` is the
    number of positions that the config allows.
    """

    layers: str
    kind: str
    theta: float
    head_width: int
    width: int
    context: int | None = None
    scaling: Scaling = field(default_factory=Scaling)


def frequencies(rope: Rope, length: int | None = None) -> Float64s:
    """By how many radians does each pair turn from one position to the next?

    float64 (pairs,), fastest first; 0 for a pair that does not turn. `length` is that of the sequence, for the kinds
    whose frequencies depend on it (dynamic, longrope); None stands for one that needs no stretching. ValueError
    where the kind needs a number that the scaling does not hold.
    """
    return KINDS[rope.kind].frequencies(rope, length)


def attention_factor(rope: Rope) -> float:
    """By which number are sines and cosines multiplied, so that attention keeps its sharpness over a longer context?

    1 where the kind knows none.
    """
    stated = rope.scaling.attention
    if stated is not None and KINDS[rope.kind].sharpness is not None:
        return stated
    sharpness = KINDS[rope.kind].sharpness
    return 1.0 if sharpness is None else sharpness(rope)


def wavelengths(w: Float64s) -> Float64s:
    """After how many positions has each pair turned once? 2 pi / w; infinite for a pair that does not turn."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(2 * math.pi / w)


def likeness_by_distance(w: Float64s, distances: NDArray[np.integer]) -> Float64s:
    """How like itself is a vector that has been turned by so many positions?

    The cosine of a vector whose pairs are all equally long with itself, turned: the mean over pairs of cos(w t).
    float64 (len(distances),). Source: Su et al. 2021, section 3.4.3, where the same sum bounds the decay.
    """
    # One distance at a time would be slow, all at once could be large.
    means = [
        np.cos(np.outer(part, w)).mean(axis=1)
        for part in np.array_split(distances, 1 + distances.size // 4096)
    ]
    return np.concatenate(means)


# --- the kinds -----------------------------------------------------------------------------------------------


def _exponents(width: int) -> Float64s:
    return np.arange(0, width, 2) / width


def _plain(rope: Rope, length: int | None) -> Float64s:
    return np.asarray(rope.theta ** -_exponents(rope.width))


def _linear(rope: Rope, length: int | None) -> Float64s:
    """Source: Chen et al. 2023, "Extending Context Window of Large Language Models via Position Interpolation"."""
    return _plain(rope, length) / _needed(rope, "factor")


def _dynamic(rope: Rope, length: int | None) -> Float64s:
    """A larger theta once a sequence is longer than the context; with `alpha`, a larger one always.

    Source: transformers, modeling_rope_utils.py, _compute_dynamic_ntk_parameters ("NTK-aware" scaling, described in
    Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", sections 3.1 and 3.3);
    alpha: modeling_hunyuan_v1_dense.py.
    """
    growth = 1.0
    scaling = rope.scaling
    if scaling.alpha is not None:
        growth = scaling.alpha
    elif length is not None and rope.context is not None and length > rope.context:
        factor = _needed(rope, "factor")
        growth = factor * length / rope.context - (factor - 1)
    if growth == 1 or rope.width <= 2:
        return _plain(rope, length)
    theta = rope.theta * growth ** (rope.width / (rope.width - 2))
    return np.asarray(theta ** -_exponents(rope.width))


def _yarn(rope: Rope, length: int | None) -> Float64s:
    """Fast pairs are kept, slow ones stretched, those between are mixed.

    Source: Peng et al. 2023, "YaRN", section 3.2 and definition 2; the bounds as in transformers,
    modeling_rope_utils.py, _compute_yarn_parameters.
    """
    scaling, d = rope.scaling, rope.width
    original = _needed(rope, "original")
    if rope.theta <= 1:
        raise ValueError("yarn needs a theta above 1")

    def pair_of(turns: float) -> float:
        return d * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    if low == high:
        high += 0.001
    plain = _plain(rope, length)
    stretched = np.clip((np.arange(len(plain)) - low) / (high - low), 0, 1)
    return np.asarray(plain * (1 - stretched) + plain / _yarn_factor(rope) * stretched)


def _yarn_factor(rope: Rope) -> float:
    if rope.scaling.factor is None and rope.context is not None:
        return rope.context / _needed(rope, "original")
    return _needed(rope, "factor")


def _yarn_sharpness(rope: Rope) -> float:
    """Source: Peng et al. 2023, section 3.4, equation 22: 0.1 ln(s) + 1."""

    def sharpness(scale: float, weight: float) -> float:
        return 1.0 if scale <= 1 else 0.1 * weight * math.log(scale) + 1.0

    factor, scaling = _yarn_factor(rope), rope.scaling
    if scaling.mscale and scaling.mscale_all:
        return sharpness(factor, scaling.mscale) / sharpness(factor, scaling.mscale_all)
    return sharpness(factor, 1.0)


def _long(rope: Rope, length: int | None) -> Float64s:
    """Source: Ding et al. 2024, "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", section 3."""
    beyond = length is not None and length > _needed(rope, "original")
    divisors = rope.scaling.long if beyond else rope.scaling.short
    plain = _plain(rope, length)
    if len(divisors) != len(plain):
        raise ValueError(f"longrope needs {len(plain)} divisors, one a pair, not {len(divisors)}")
    return np.asarray(plain / np.asarray(divisors))


def _long_sharpness(rope: Rope) -> float:
    """Source: transformers, modeling_rope_utils.py, _compute_longrope_parameters."""
    original = _needed(rope, "original")
    factor = rope.scaling.factor
    if factor is None:
        factor = 1.0 if rope.context is None else rope.context / original
    return 1.0 if factor <= 1 or original <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def _llama3(rope: Rope, length: int | None) -> Float64s:
    """Long waves are stretched by the factor, short ones kept, those between mixed.

    Source: Grattafiori et al. 2024, "The Llama 3 Herd of Models", section 3.2; the bounds as in transformers,
    modeling_rope_utils.py, _compute_llama3_parameters.
    """
    factor, original = _needed(rope, "factor"), _needed(rope, "original")
    low, high = _needed(rope, "low_frequency"), _needed(rope, "high_frequency")
    plain = _plain(rope, length)
    turns = original / wavelengths(plain)
    kept = (turns - low) / (high - low) if high != low else np.where(turns > low, 1.0, 0.0)
    # Pairs outside both bounds are decided by the bounds alone, whichever way round they are given.
    kept = np.where(turns < low, 0.0, np.where(turns > high, 1.0, kept))
    return np.asarray(plain * kept + plain / factor * (1 - kept))


def _proportional(rope: Rope, length: int | None) -> Float64s:
    """The whole head is laid out in pairs, and only the first of them turn.

    Source: transformers, modeling_rope_utils.py, _compute_proportional_rope_parameters.
    """
    w = rope.theta ** -_exponents(rope.head_width)
    w[rope.width // 2 :] = 0.0
    return np.asarray(w / (rope.scaling.factor or 1.0))


def _needed(rope: Rope, name: str) -> float:
    value = getattr(rope.scaling, name)
    if value is None:
        raise ValueError(f"{rope.kind} needs {name}")
    return float(value)


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to choose the frequencies, and the factor on attention that belongs to it."""

    frequencies: Callable[[Rope, int | None], Float64s]
    sharpness: Callable[[Rope], float] | None = None


KINDS: dict[str, Kind] = {
    "default": Kind(_plain),
    "linear": Kind(_linear),
    "dynamic": Kind(_dynamic),
    "yarn": Kind(_yarn, _yarn_sharpness),
    "longrope": Kind(_long, _long_sharpness),
    "llama3": Kind(_llama3),
    "proportional": Kind(_proportional),
}
"""The kinds of scaling, by the name that configs use."""
