"""Which rotary positions does a config state?

Configs have written them down in many ways over the years: at the top or nested, once or for each kind of layer,
under names of the library or of a family. Any value may be missing or of any type: what cannot be used is said in a
note, and the unscaled frequencies are given in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inspect_embed.numerics.rotary import KINDS, Rope, Scaling, attention_factor, frequencies

Config = Mapping[str, Any]

THETA_KEYS = ("rope_theta", "rotary_emb_base", "rotary_embedding_base", "global_rope_theta", "rope_base")
FRACTION_KEYS = (
    "partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percent", "rope_percent", "rotary_emb_fraction",
)  # fmt: skip
HEAD_KEYS = ("qk_rope_head_dim", "head_dim", "attention_head_size", "kv_channels", "attention_head_dim")
WIDTH_KEYS = ("hidden_size", "n_embd", "d_model", "dim")
HEAD_COUNT_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_num_attention_heads")
CONTEXT_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx", "max_seq_length",
)  # fmt: skip
LOCAL_THETA_KEYS = ("rope_local_base_freq", "local_rope_theta")
"""Keys that give layers with sliding attention a theta of their own."""

OTHER_NAMES = {"su": "longrope", "mrope": "default", "axial": "default", "ntk": "dynamic", "none": "default"}
"""Kinds of scaling by other names; `mrope` and `axial` part the pairs among several axes, and turn them as usual."""

FRACTIONS_BY_DEFAULT = {
    "gpt_neox": 0.25,
    "chatglm": 0.5,
    "persimmon": 0.5,
    "phi": 0.5,
    "stablelm": 0.25,
    "glm": 0.5,
}
"""Which part of a head is turned where the config does not say, by `model_type`.

Source: the defaults of these models' configuration files in transformers; ChatGLM's own modeling_chatglm.py.
"""

THETA_BY_DEFAULT = 10_000.0
LARGEST_HEAD = 1 << 16
"""A head wider than this is taken for nonsense."""

_NEEDED = {
    "linear": ("factor",),
    "llama3": ("factor", "original", "low_frequency", "high_frequency"),
    "yarn": ("original",),
    "longrope": ("original",),
}


def read_ropes(configs: Sequence[Config]) -> tuple[tuple[Rope, ...], tuple[str, ...]]:
    """What does each kind of layer do to its queries and keys? And what is worth knowing about it.

    `configs`: the config of the text model, then those around it, innermost first. Empty where no head width can
    be told.
    """
    notes: list[str] = []
    main = _parameters(configs)
    layered = (
        {str(name): part for name, part in main.items() if isinstance(part, Mapping)}
        if _is_layered(main)
        else {}
    )
    if not layered:
        layered = _older_layers(configs, main)
    ropes: list[Rope] = []
    for layers, part in (layered or {"all": main}).items():
        rope = _read_rope(layers, part, configs, bool(layered), notes)
        if rope is not None:
            ropes.append(rope)
    ropes = _same_once(ropes)
    unturned = [str(name) for name, part in main.items() if part is None] if _is_layered(main) else []
    if unturned:
        notes.append(f"Layers of the kind {', '.join(unturned)} turn nothing.")
    return tuple(ropes), tuple(dict.fromkeys(notes))


def number(value: object) -> float | None:
    """A finite number, or None for whatever else a config may hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def positive(value: object) -> float | None:
    """A finite number above zero, or None."""
    found = number(value)
    return found if found is not None and found > 0 else None


def whole(value: object) -> int | None:
    """A whole number above zero, however it is written, or None."""
    found = positive(value)
    return int(found) if found is not None and found == int(found) else None


def read_context(configs: Sequence[Config]) -> int | None:
    """How many positions does the config allow?"""
    return next(
        (n for config in configs for key in CONTEXT_KEYS if (n := whole(config.get(key))) is not None), None
    )


def read_heads(configs: Sequence[Config]) -> int | None:
    """How many heads has each layer's attention?"""
    return next(
        (n for config in configs for key in HEAD_COUNT_KEYS if (n := whole(config.get(key))) is not None),
        None,
    )


# --- where it is written -------------------------------------------------------------------------------------


def _parameters(configs: Sequence[Config]) -> Config:
    """The mapping that holds the rotary parameters: {} where the config keeps them at its top, or has none."""
    for config in configs:
        for key in ("rope_scaling", "rope_parameters"):
            found = config.get(key)
            if isinstance(found, Mapping) and found:
                return found
    return {}


def _is_layered(parameters: Config) -> bool:
    """Whether the parameters are given for each kind of layer."""
    inner = [part for part in parameters.values() if part is not None]
    return bool(inner) and all(isinstance(part, Mapping) for part in inner)


def _older_layers(configs: Sequence[Config], main: Config) -> dict[str, Config]:
    """Kinds of layers as older configs tell them apart: a second theta, or one for each layer."""
    local = _first(configs, LOCAL_THETA_KEYS)
    if local is not None:
        return {"full_attention": main, "sliding_attention": {"rope_theta": local}}
    listed = next((config["layer_rope_theta"] for config in configs if "layer_rope_theta" in config), None)
    if not isinstance(listed, list):
        return {}
    thetas = list(dict.fromkeys(theta for item in listed if (theta := positive(item)) is not None))
    if len(thetas) < 2:
        return {}
    return {f"theta {theta:,.10g}": {**main, "rope_theta": theta} for theta in thetas}


def _same_once(ropes: list[Rope]) -> list[Rope]:
    """Kinds of layers that turn alike stay apart; a single kind is called all."""
    return (
        [replace(ropes[0], layers="all")]
        if len(ropes) == 1 and ropes[0].layers.startswith("theta")
        else ropes
    )


def _first(configs: Iterable[Config], keys: Sequence[str]) -> float | None:
    return next(
        (n for config in configs for key in keys if (n := positive(config.get(key))) is not None), None
    )


# --- one kind of layer ---------------------------------------------------------------------------------------


def _read_rope(
    layers: str, part: Config, configs: Sequence[Config], layered: bool, notes: list[str]
) -> Rope | None:
    theta = _read_theta(part, configs, notes)
    head = _head_width(layers, configs)
    if head is None:
        notes.append("The config does not tell the width of a head, so no wavelengths follow from it.")
        return None
    name = part.get("rope_type") or part.get("type") or "default"
    kind = OTHER_NAMES.get(name, name) if isinstance(name, str) else ""
    width = _turned_width(part, configs, head)
    plain = Rope(layers, "default", theta, head, width, read_context(configs))
    if kind not in KINDS:
        notes.append(f"The scaling {name!r:.40} is not known here: the frequencies are shown unscaled.")
        return plain
    rope = replace(plain, kind=kind, scaling=_read_scaling(part, configs, layered))
    missing = [key for key in _NEEDED.get(kind, ()) if getattr(rope.scaling, key) is None]
    if kind != "default" and part.get("factor") is not None and rope.scaling.factor is None:
        missing = ["factor"]
    try:
        if not missing:
            frequencies(rope)
            frequencies(rope, int(max(rope.context or 0, rope.scaling.original or 0)) + 1)
            attention_factor(rope)
            return rope
        reason = f"no usable {' and '.join(missing)}"
    except (ValueError, ArithmeticError) as error:
        reason = str(error)
    notes.append(
        f"The {kind} scaling of the config cannot be used ({reason}): the frequencies are shown unscaled."
    )
    return plain


def _read_theta(part: Config, configs: Sequence[Config], notes: list[str]) -> float:
    theta = positive(part.get("rope_theta")) or _first(configs, THETA_KEYS)
    if theta is None:
        nested = [
            config["attn_config"] for config in configs if isinstance(config.get("attn_config"), Mapping)
        ]
        theta = _first(nested, THETA_KEYS)
    if theta is None:
        theta = THETA_BY_DEFAULT
        notes.append(
            f"The config states no rope_theta that can be used; {theta:,.0f} is taken, as most models have it."
        )
    return theta * (_first(configs, ("rope_ratio",)) or 1.0)


def _head_width(layers: str, configs: Sequence[Config]) -> int | None:
    keys = ("global_head_dim", *HEAD_KEYS) if layers == "full_attention" else HEAD_KEYS
    for config in configs:
        for key in keys:
            width = whole(config.get(key))
            if width is not None and 2 <= width <= LARGEST_HEAD:
                return width
        hidden = next((n for key in WIDTH_KEYS if (n := whole(config.get(key))) is not None), None)
        heads = next((n for key in HEAD_COUNT_KEYS if (n := whole(config.get(key))) is not None), None)
        if hidden is not None and heads is not None and 2 <= hidden // heads <= LARGEST_HEAD:
            return hidden // heads
    return None


def _turned_width(part: Config, configs: Sequence[Config], head: int) -> int:
    """How many numbers of a head are turned: all, a stated number, or a stated fraction of them."""
    fraction = positive(part.get("partial_rotary_factor")) or _first(configs, FRACTION_KEYS)
    if fraction is None:
        stated = next((n for config in configs if (n := whole(config.get("rotary_dim"))) is not None), None)
        if stated is not None and 2 <= stated <= head:
            return stated
        types = [config.get("model_type") for config in configs]
        fraction = next(
            (FRACTIONS_BY_DEFAULT[t] for t in types if isinstance(t, str) and t in FRACTIONS_BY_DEFAULT), 1.0
        )
    width = int(head * fraction)
    return width if 2 <= width <= head else head


def _read_scaling(part: Config, configs: Sequence[Config], layered: bool) -> Scaling:
    context = read_context(configs)
    outer = _first(configs, ("original_max_position_embeddings",))
    inner = positive(part.get("original_max_position_embeddings"))
    # Outside the parameters it overrules them, except where each kind of layer has its own.
    original = (inner or outer) if layered else (outer or inner)
    truncate = part.get("truncate")
    return Scaling(
        factor=positive(part.get("factor")),
        original=original or context,
        alpha=positive(part.get("alpha")),
        low_frequency=positive(part.get("low_freq_factor")),
        high_frequency=positive(part.get("high_freq_factor")),
        beta_fast=positive(part.get("beta_fast")) or 32.0,
        beta_slow=positive(part.get("beta_slow")) or 1.0,
        truncate=truncate if isinstance(truncate, bool) else True,
        attention=positive(part.get("attention_factor")),
        mscale=number(part.get("mscale")),
        mscale_all=number(part.get("mscale_all_dim")),
        short=_divisors(part.get("short_factor")),
        long=_divisors(part.get("long_factor")),
    )


def _divisors(value: object) -> tuple[float, ...]:
    """A list of numbers above zero; empty where it is anything else."""
    if not isinstance(value, list) or len(value) > LARGEST_HEAD:
        return ()
    found = tuple(n for item in value if (n := positive(item)) is not None)
    return found if len(found) == len(value) else ()
