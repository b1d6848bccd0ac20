"""Rotary frequencies of every kind, ALiBi slopes, relative buckets: against formulas and against transformers' own."""

from __future__ import annotations

import gzip
import json
import math
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspect_embed.families import nested_configs
from inspect_embed.numerics.positions import sinusoids
from inspect_embed.numerics.relative import alibi_slopes, relative_buckets
from inspect_embed.numerics.rotary import (
    KINDS,
    Rope,
    Scaling,
    attention_factor,
    frequencies,
    likeness_by_distance,
    wavelengths,
)
from inspect_embed.numerics.rotary_config import read_ropes

PLAIN = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    """The library that made most rotary models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torch")
        return pytest.importorskip(
            "transformers", reason="compares with transformers, which is not installed"
        )


def only(config: dict[str, Any]) -> Rope:
    """The one kind of layer that this config has."""
    (rope,), notes = read_ropes([config])
    assert not notes
    return rope


# --- formulas ------------------------------------------------------------------------------------------------


def test_default_frequencies_and_wavelengths() -> None:
    rope = only(PLAIN)
    assert (rope.layers, rope.kind, rope.head_width, rope.width, rope.context) == (
        "all",
        "default",
        32,
        32,
        4096,
    )
    w = frequencies(rope)
    assert np.allclose(w, [10_000 ** (-2 * i / 32) for i in range(16)], rtol=1e-14)
    assert np.allclose(wavelengths(w)[[0, -1]], [2 * math.pi, 2 * math.pi * 10_000 ** (15 / 16)])
    assert attention_factor(rope) == 1


def test_likeness_by_distance_is_the_dot_product_of_sinusoids() -> None:
    distances = np.array([0, 1, 2, 4, 8, 16, 32])
    w = frequencies(Rope("all", "default", 10_000.0, 16, 16))
    P = sinusoids(np.arange(33), 16)
    assert np.allclose(8 * likeness_by_distance(w, distances), P[0] @ P[distances].T)
    assert (8 * likeness_by_distance(w, distances)).round(3).tolist() == [
        8,
        7.485,
        6.368,
        5.560,
        4.697,
        4.214,
        3.541,
    ]


def test_a_pair_that_does_not_turn_has_no_wavelength() -> None:
    rope = only(
        {
            **PLAIN,
            "rope_parameters": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.25,
            },
        }
    )
    w = frequencies(rope)
    assert np.count_nonzero(w) == 4
    assert len(w) == 16
    assert np.isinf(wavelengths(w)[4:]).all()


def test_llama3_keeps_short_waves_and_stretches_long_ones() -> None:
    scaling = Scaling(factor=8, original=8192, low_frequency=1, high_frequency=4)
    plain, scaled = (
        frequencies(Rope("all", kind, 500_000.0, 128, 128, 131_072, scaling))
        for kind in ("default", "llama3")
    )
    waves = wavelengths(plain)
    assert np.array_equal(scaled[waves < 2048], plain[waves < 2048])
    assert np.allclose(scaled[waves > 8192], plain[waves > 8192] / 8)
    between = (waves >= 2048) & (waves <= 8192)
    assert between.any()
    assert ((scaled[between] <= plain[between]) & (scaled[between] >= plain[between] / 8)).all()


def test_dynamic_scaling_waits_for_a_longer_text() -> None:
    rope = only({**PLAIN, "rope_scaling": {"type": "dynamic", "factor": 4.0}})
    plain = frequencies(only(PLAIN))
    assert np.array_equal(frequencies(rope), plain)
    assert np.array_equal(frequencies(rope, 4096), plain)
    stretched = frequencies(rope, 8192)
    # theta' = theta (factor L / context - (factor - 1))^(d / (d - 2))
    theta = 10_000 * (4 * 2 - 3) ** (32 / 30)
    assert np.allclose(stretched, [theta ** (-2 * i / 32) for i in range(16)])


def test_every_kind_names_a_source() -> None:
    plain = {"default"}
    assert all(kind in plain or "Source:" in (KINDS[kind].frequencies.__doc__ or "") for kind in KINDS)


# --- where configs write it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "theta", "head", "width"),
    [
        ({"n_embd": 64, "n_head": 4, "rotary_dim": 8}, 10_000, 16, 8),
        ({"hidden_size": 64, "num_attention_heads": 4, "rotary_pct": 0.25, "rotary_emb_base": 500}, 500, 16, 4),
        ({"hidden_size": 64, "num_attention_heads": 4, "model_type": "gpt_neox"}, 10_000, 16, 4),
        ({"d_model": 64, "n_heads": 4, "attn_config": {"rope_theta": 7e4}}, 70_000, 16, 16),
        ({"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "rope_theta": 1e6}, 1e6, 32, 32),
        ({"qk_rope_head_dim": 64, "head_dim": 128, "rope_theta": 5e4}, 50_000, 64, 64),
        (
            {"model_type": "chatglm", "kv_channels": 128, "hidden_size": 4096, "rope_ratio": 50},
            500_000, 128, 64,
        ),
        ({"rope_theta": 100.0, "text_config": {"head_dim": 8, "rope_theta": 50.0}}, 50, 8, 8),
        ({"head_dim": 8, "rope_parameters": {"rope_theta": 30, "partial_rotary_factor": 0.5}}, 30, 8, 4),
    ],
)  # fmt: skip
def test_names_in_use(config: dict[str, Any], theta: float, head: int, width: int) -> None:
    (rope,), _ = read_ropes(nested_configs(config))
    assert (rope.theta, rope.head_width, rope.width) == (theta, head, width)


def test_an_assumed_theta_is_said() -> None:
    (rope,), notes = read_ropes([{"head_dim": 8, "rope_theta": "much"}])
    assert rope.theta == 10_000
    assert "no rope_theta that can be used" in notes[0]


@pytest.mark.parametrize(
    "config",
    [
        {
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8},
        },
        {
            "rope_parameters": {
                "full_attention": {
                    "rope_theta": 1e6,
                    "rope_type": "linear",
                    "factor": 8,
                },
                "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
            }
        },
    ],
)
def test_kinds_of_layers_have_their_own(config: dict[str, Any]) -> None:
    ropes, _ = read_ropes([{"head_dim": 16, **config}])
    assert {(r.layers, r.kind, r.theta) for r in ropes} == {
        ("full_attention", "linear", 1e6),
        ("sliding_attention", "default", 1e4),
    }
    full = next(rope for rope in ropes if rope.layers == "full_attention")
    assert np.allclose(frequencies(full), [1e6 ** (-2 * i / 16) / 8 for i in range(8)])


def test_a_list_of_thetas_by_layer() -> None:
    ropes, _ = read_ropes([{"head_dim": 8, "layer_rope_theta": [1e4, 1e6, 1e4, None]}])
    assert [rope.theta for rope in ropes] == [1e4, 1e6]
    ropes, _ = read_ropes([{"head_dim": 8, "rope_theta": 1e4, "layer_rope_theta": [1e4, 1e4]}])
    assert [rope.layers for rope in ropes] == ["all"]


def test_layers_without_positions_are_named() -> None:
    parameters = {"full_attention": None, "sliding_attention": {"rope_theta": 1e4}}
    ropes, notes = read_ropes([{"head_dim": 8, "rope_parameters": parameters}])
    assert [rope.layers for rope in ropes] == ["sliding_attention"]
    assert any("full_attention turn nothing" in note for note in notes)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear"},
        {"rope_type": "linear", "factor": 0},
        {"rope_type": "linear", "factor": "8"},
        {"rope_type": "dynamic", "factor": None},
        {"rope_type": "dynamic", "alpha": "large"},
        {"rope_type": "yarn", "factor": -1},
        {"rope_type": "longrope", "short_factor": [1, 2], "long_factor": [1, 2]},
        {"rope_type": "longrope", "short_factor": "all", "long_factor": None},
        {"rope_type": "llama3", "factor": 8},
        {"rope_type": "tomorrow", "factor": 8},
        {"rope_type": ["linear"], "factor": 8},
        {"rope_type": True},
    ],
)
def test_scaling_that_cannot_be_used_is_said(scaling: dict[str, Any]) -> None:
    (rope,), notes = read_ropes([{**PLAIN, "rope_scaling": scaling}])
    assert np.array_equal(frequencies(rope), frequencies(only(PLAIN)))
    assert len(notes) == 1
    assert "unscaled" in notes[0]


def test_without_a_head_width_nothing_follows() -> None:
    for config in (
        {},
        {"head_dim": 0},
        {"head_dim": 1 << 40},
        {"hidden_size": 4, "num_attention_heads": 8},
    ):
        ropes, notes = read_ropes([config])
        assert ropes == ()
        assert any("width of a head" in note for note in notes)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from([0, 1, 2, 8, 64, 0.5, 1e308, 5e-324, 10**400, -1, *KINDS, "su", "mrope"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
ROPE_KEYS = (
    "rope_type", "type", "factor", "rope_theta", "original_max_position_embeddings", "low_freq_factor", "alpha",
    "high_freq_factor", "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim",
    "short_factor", "long_factor", "partial_rotary_factor",
)  # fmt: skip
PARAMETERS = st.dictionaries(st.sampled_from(ROPE_KEYS), ANYTHING)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            (
                "head_dim", "hidden_size", "num_attention_heads", "max_position_embeddings", "rope_theta", "rotary_dim",
                "layer_rope_theta", "rope_local_base_freq", "attn_config", "partial_rotary_factor", "model_type", "rope_ratio",
            ),
            ANYTHING,
        ),
        "rope_scaling": ANYTHING | PARAMETERS,
        "rope_parameters": ANYTHING | PARAMETERS | st.dictionaries(st.text(max_size=3), PARAMETERS | st.none(), max_size=3),
    },
)  # fmt: skip


@given(CONFIGS)
def test_no_config_stops_the_reading(config: dict[str, Any]) -> None:
    ropes, _ = read_ropes(nested_configs({"head_dim": 16, **config}))
    for rope in ropes:
        for length in (None, 10**6):
            w = frequencies(rope, length)
            assert w.dtype == np.float64
            assert len(w) >= 1
            assert (w >= 0).all()
            assert (wavelengths(w) > 0).all()
        assert math.isfinite(attention_factor(rope))


# --- transformers' own ---------------------------------------------------------------------------------------

SCALED = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 16.0, "original_max_position_embeddings": 512},
    "yarn, untruncated": {
        "factor": 32.0, "original_max_position_embeddings": 512, "beta_fast": 24.0, "beta_slow": 2.0, "truncate": False,
    },
    "yarn, mscale": {"factor": 40.0, "original_max_position_embeddings": 512, "mscale": 1.0, "mscale_all_dim": 0.7},
    "longrope": {
        "original_max_position_embeddings": 1024,
        "short_factor": [1.0 + i / 10 for i in range(16)],
        "long_factor": [1.0 + i * i for i in range(16)],
    },
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024,
    },
    "proportional": {"partial_rotary_factor": 0.25, "factor": 2.0},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("length", [None, 4096, 9000])
@pytest.mark.parametrize("name", list(SCALED))
def test_scaled_frequencies_are_those_of_transformers(
    transformers: Any, name: str, length: int | None, theta: float
) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = name.partition(",")[0]
    parameters = {"rope_type": kind, "rope_theta": theta, **SCALED[name]}
    made = transformers.LlamaConfig(
        hidden_size=128,
        num_attention_heads=4,
        max_position_embeddings=4096,
        rope_parameters=dict(parameters),
    )
    theirs, their_factor = ROPE_INIT_FUNCTIONS[kind](made, "cpu", seq_len=length)
    rope = only(json.loads(made.to_json_string(use_diff=False)))
    assert rope.kind == kind
    assert np.allclose(frequencies(rope, length), theirs.numpy(), rtol=3e-6, atol=0)
    assert attention_factor(rope) == pytest.approx(their_factor, rel=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_longrope_by_its_older_name_and_place(transformers: Any) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {key: SCALED["longrope"][key] for key in ("short_factor", "long_factor")}
    written = {
        **PLAIN,
        "original_max_position_embeddings": 1024,
        "rope_scaling": {"type": "su", **scaling},
    }
    made = transformers.Phi3Config(
        hidden_size=128, num_attention_heads=4, max_position_embeddings=4096, original_max_position_embeddings=1024,
        rope_scaling={"type": "longrope", **scaling},
    )  # fmt: skip
    theirs, their_factor = ROPE_INIT_FUNCTIONS["longrope"](made, "cpu")
    rope = only(written)
    assert np.allclose(frequencies(rope), theirs.numpy(), rtol=3e-6, atol=0)
    assert attention_factor(rope) == pytest.approx(their_factor)


ROTARY_ENTRIES = (
    "apertus1p5_text", "deepseek_v2", "falcon", "gemma3_text", "gemma4_text", "glm", "gpt_neox", "gpt_oss", "granite_swa",
    "mimo_v2_flash", "ministral3", "mistral4", "modernbert-decoder", "nomic_bert", "persimmon", "qwen2_vl",
)  # fmt: skip
"""One of each way to write rotary positions down."""
FOREIGN = ("vision", "visual", "audio", "time_embedding")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", ROTARY_ENTRIES)
def test_frequencies_of_whole_models_are_those_that_transformers_registers(
    transformers: Any, shared: Path, model_type: str
) -> None:
    entry = zoo(shared).get(f"{model_type}__AutoModel")
    if entry is None or entry["truth"]["position_kinds"] != ["rotary"]:
        pytest.skip(f"the zoo has no rotary {model_type}")
    left_out = ("transformers_version", "architectures", "dtype")
    made = transformers.AutoConfig.for_model(
        **{k: v for k, v in entry["config"].items() if k not in left_out}
    )
    model = getattr(transformers, entry["config"]["architectures"][0])(made)
    registered = {
        name: values
        for name, values in model.named_buffers()
        if name.endswith("inv_freq") and "original" not in name and not any(word in name for word in FOREIGN)
    }
    if not registered:
        pytest.skip(f"{model_type} registers no frequencies")
    ropes = {rope.layers: rope for rope in read_ropes(nested_configs(entry["config"]))[0]}
    for name, theirs in registered.items():
        layers = name.rpartition(".")[2].removesuffix("inv_freq").removesuffix("_") or "all"
        assert np.allclose(frequencies(ropes[layers]), theirs.numpy(), rtol=3e-6, atol=0), name


@cache
def zoo(shared: Path) -> dict[str, Any]:
    with gzip.open(shared / "zoo" / "zoo.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {entry["name"]: entry for entry in map(json.loads, lines)}


# --- ALiBi, relative -----------------------------------------------------------------------------------------


def test_slopes_of_eight_heads() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(16)[0] == 2**-0.5
    assert alibi_slopes(1).tolist() == [2.0**-8]


def test_slopes_of_other_counts() -> None:
    # Four heads as for four, then the first and the third of eight.
    assert alibi_slopes(6).tolist() == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("heads", [1, 2, 3, 7, 12, 16, 20, 71, 112])
def test_slopes_are_those_of_transformers(transformers: Any, heads: int) -> None:
    import torch
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float64)[:, 0, 1].numpy()
    assert np.allclose(alibi_slopes(heads), bloom, rtol=1e-6)
    mpt = -build_mpt_alibi_tensor(heads, 2, alibi_bias_max=8)[:, 0, 0].numpy()
    assert sorted(alibi_slopes(heads)) == pytest.approx(sorted(mpt.tolist()), rel=1e-6)


def test_buckets_of_the_paper() -> None:
    """32 buckets, offsets up to 128: single ones up to 7, the last from 128 on; the other direction apart."""
    distances = np.array([0, -1, -7, -8, -127, -128, -5000, 1, 7, 128, 5000])
    found = relative_buckets(distances, 32, True, 128)
    assert found.tolist() == [0, 1, 7, 8, 15, 15, 15, 17, 23, 31, 31]
    assert relative_buckets(np.array([3, 0, -15, -16, -128]), 32, False, 128).tolist() == [0, 0, 15, 16, 31]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize(("buckets", "largest"), [(32, 128), (16, 64), (8, 20), (64, 512), (32, 1000)])
def test_buckets_are_those_of_transformers(
    transformers: Any, buckets: int, largest: int, both_ways: bool
) -> None:
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(-2100, 2101)
    theirs = T5Attention._relative_position_bucket(torch.tensor(distances), both_ways, buckets, largest)
    assert np.array_equal(relative_buckets(distances, buckets, both_ways, largest), theirs.numpy())


@given(st.integers(1, 100), st.booleans(), st.integers(1, 10**9))
def test_buckets_are_rows_of_the_table(buckets: int, both_ways: bool, largest: int) -> None:
    found = relative_buckets(
        np.array([-(10**9), -5, -1, 0, 1, 5, 10**9]),
        max(buckets, 2),
        both_ways,
        largest,
    )
    assert ((found >= 0) & (found < max(buckets, 2))).all()
