"""Names as real models have them, and the part of the model that each belongs to."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from pathlib import Path

import pytest

from inspect_embed import parts
from inspect_embed.parts import (
    ATTENTION,
    EXPERTS,
    FEED_FORWARD,
    FURTHER_POSITIONS,
    NORMS,
    OTHER,
    ROUTERS,
    STATE_SPACE,
    TOKEN_TYPES,
    kinds_of,
    layer_of,
    module_of,
    moe_modules_of,
    part_of,
    pattern_of,
)

NAMES = [
    # GPT-2, GPT-NeoX, GPT-J, Falcon, BLOOM
    ("h.0.attn.c_attn.weight", ATTENTION),
    ("h.0.attn.c_attn.bias", ATTENTION),
    ("h.11.attn.c_proj.weight", ATTENTION),
    ("h.0.mlp.c_proj.weight", FEED_FORWARD),
    ("h.0.mlp.c_fc.bias", FEED_FORWARD),
    ("h.0.ln_1.weight", NORMS),
    ("ln_f.bias", NORMS),
    ("gpt_neox.layers.3.attention.query_key_value.weight", ATTENTION),
    ("gpt_neox.layers.3.attention.dense.bias", ATTENTION),
    ("gpt_neox.layers.3.mlp.dense_4h_to_h.weight", FEED_FORWARD),
    ("transformer.h.0.attn.q_proj.weight", ATTENTION),
    ("transformer.h.0.mlp.fc_in.weight", FEED_FORWARD),
    ("transformer.h.0.self_attention.dense.weight", ATTENTION),
    ("transformer.word_embeddings_layernorm.weight", NORMS),
    # BERT and its family
    ("bert.encoder.layer.3.attention.self.query.weight", ATTENTION),
    ("bert.encoder.layer.3.attention.output.dense.weight", ATTENTION),
    ("bert.encoder.layer.3.attention.output.LayerNorm.weight", NORMS),
    ("bert.encoder.layer.3.intermediate.dense.bias", FEED_FORWARD),
    ("bert.encoder.layer.3.output.dense.weight", FEED_FORWARD),
    ("bert.encoder.layer.3.output.LayerNorm.bias", NORMS),
    ("bert.embeddings.token_type_embeddings.weight", TOKEN_TYPES),
    ("bert.pooler.dense.weight", OTHER + "pooler"),
    ("cls.predictions.transform.dense.weight", OTHER + "heads"),
    ("cls.predictions.transform.LayerNorm.weight", NORMS),
    ("albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output.weight", FEED_FORWARD),
    ("albert.encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm.weight", NORMS),
    ("albert.encoder.embedding_hidden_mapping_in.weight", OTHER + "projectors"),
    ("distilbert.transformer.layer.0.ffn.lin1.weight", FEED_FORWARD),
    ("distilbert.transformer.layer.0.attention.out_lin.weight", ATTENTION),
    ("layers.0.attn.Wqkv.weight", ATTENTION),
    ("layers.0.mlp.Wi.weight", FEED_FORWARD),
    # T5, BART
    ("encoder.block.0.layer.0.SelfAttention.q.weight", ATTENTION),
    ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", ATTENTION),
    ("decoder.block.0.layer.1.EncDecAttention.v.weight", ATTENTION),
    ("decoder.block.0.layer.2.DenseReluDense.wi_0.weight", FEED_FORWARD),
    ("decoder.block.0.layer.2.layer_norm.weight", NORMS),
    ("model.decoder.layers.0.encoder_attn.out_proj.weight", ATTENTION),
    ("model.decoder.layers.0.encoder_attn_layer_norm.weight", NORMS),
    ("model.decoder.layers.0.fc1.weight", FEED_FORWARD),
    # Llama, its first release, and mixtures
    ("model.layers.0.self_attn.o_proj.weight", ATTENTION),
    ("model.layers.0.self_attn.q_norm.weight", NORMS),
    ("model.layers.0.mlp.gate_up_proj.weight", FEED_FORWARD),
    ("model.layers.0.post_attention_layernorm.weight", NORMS),
    ("layers.0.attention.wq.weight", ATTENTION),
    ("layers.0.feed_forward.w2.weight", FEED_FORWARD),
    ("layers.0.ffn_norm.weight", NORMS),
    ("model.layers.0.block_sparse_moe.experts.7.w1.weight", EXPERTS),
    ("model.layers.0.mlp.experts.gate_up_proj", EXPERTS),
    ("model.layers.0.mlp.experts.down_proj_bias", EXPERTS),
    ("model.layers.0.mlp.shared_experts.up_proj.weight", EXPERTS),
    ("model.layers.0.mlp.router.weight", ROUTERS),
    ("transformer.blocks.0.ffn.experts.mlp.w1", EXPERTS),
    ("transformer.blocks.0.ffn.router.layer.weight", ROUTERS),
    ("transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight", ATTENTION),
    ("transformer.blocks.0.norm_attn_norm.norm_1.weight", NORMS),
    ("encoder.block.1.layer.1.mlp.router.classifier.weight", ROUTERS),
    ("encoder.block.1.layer.1.mlp.experts.expert_3.wi.weight", EXPERTS),
    # state-space, recurrent and hybrid models
    ("backbone.layers.0.mixer.in_proj.weight", STATE_SPACE),
    ("backbone.layers.0.mixer.A_log", STATE_SPACE),
    ("backbone.layers.0.mixer.q_proj.weight", ATTENTION),
    ("backbone.layers.0.mixer.down_proj.weight", FEED_FORWARD),
    ("backbone.layers.0.mixer.norm.weight", NORMS),
    ("model.layers.0.mamba.dt_proj.bias", STATE_SPACE),
    ("model.layers.0.linear_attn.A_log", ATTENTION),
    ("rwkv.blocks.0.attention.time_decay", ATTENTION),
    ("rwkv.blocks.0.feed_forward.key.weight", FEED_FORWARD),
    # adapters, towers, the rest
    ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", OTHER + "adapters"),
    ("vision_tower.vision_model.encoder.layers.0.self_attn.k_proj.weight", ATTENTION),
    ("vision_tower.vision_model.embeddings.patch_embedding.weight", OTHER + "patch embeddings"),
    ("vision_tower.vision_model.embeddings.position_embedding.weight", FURTHER_POSITIONS),
    ("multi_modal_projector.linear_1.weight", OTHER + "projectors"),
    ("audio_tower.conv1.weight", OTHER + "convolutions"),
    ("logit_scale", OTHER + "logit_scale"),
    # GGUF
    ("blk.0.attn_q.weight", ATTENTION),
    ("blk.0.attn_norm.weight", NORMS),
    ("blk.0.ffn_gate.weight", FEED_FORWARD),
    ("blk.0.ffn_gate_exps.weight", EXPERTS),
    ("blk.0.ffn_gate_inp.weight", ROUTERS),
    ("blk.0.ssm_conv1d.weight", STATE_SPACE),
]


@pytest.mark.parametrize(("name", "part"), NAMES)
def test_a_name_belongs_to_its_part(name: str, part: str) -> None:
    assert part_of(name) == part


@pytest.mark.parametrize(("name", "part"), NAMES)
def test_wrappers_and_numbers_change_nothing(name: str, part: str) -> None:
    if not part.startswith(OTHER):
        assert part_of("_orig_mod.module." + name) == part
    (kind,) = kinds_of([name])
    assert not any(mark.isdigit() for mark in kind)
    assert part_of(kind) == part


def test_a_gate_is_a_router_only_beside_experts() -> None:
    names = [
        "model.layers.0.mlp.experts.0.up_proj.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.1.self_attn.gate.weight",
        "visual.blocks.0.mlp.gate.weight",
    ]
    mixtures = moe_modules_of(kinds_of(names))
    assert [part_of(name, moe_modules=mixtures) for name in names] == [
        EXPERTS,
        ROUTERS,
        ATTENTION,
        FEED_FORWARD,
    ]


def test_experts_in_one_tensor_are_known_by_the_router_beside_them() -> None:
    names = [
        "model.layers.0.block_sparse_moe.router.layer.weight",
        "model.layers.0.block_sparse_moe.input_linear.weight",
        "model.layers.0.shared_mlp.input_linear.weight",
    ]
    mixtures = moe_modules_of(kinds_of(names))
    assert [part_of(name, moe_modules=mixtures) for name in names] == [ROUTERS, EXPERTS, FEED_FORWARD]


def test_shared_experts_see_every_token() -> None:
    assert parts.is_routed("model.layers.0.mlp.experts.0.up_proj.weight")
    assert not parts.is_routed("model.layers.0.mlp.shared_experts.up_proj.weight")
    assert not parts.is_routed("blk.0.ffn_up_shexp.weight")


def test_the_word_that_names_the_model_names_no_part() -> None:
    names = [
        "swin.layers.0.downsample.reduction.weight",
        "swin.layers.0.attn.q.weight",
        "swin.layers.1.attn.q.weight",
    ]
    roots = parts.roots_of(set(kinds_of(names)))
    assert roots == {"swin"}
    assert part_of(names[0], roots) == OTHER + "downsample"


def test_kinds_stay_in_step_with_names_that_hold_line_feeds() -> None:
    assert kinds_of(["h.1\n2.w", "b.3"]) == ["h.\n.w", "b."]


def test_layers_modules_and_patterns() -> None:
    assert layer_of("transformer.h.10.attn.c_attn.weight") == "transformer.h.10"
    assert layer_of("encoder.block.3.layer.0.SelfAttention.q.weight") == "encoder.block.3"
    assert layer_of("wte.weight") == ""
    assert layer_of("0.auto_model.embeddings.word_embeddings.weight") == ""
    assert module_of("h.10.attn.c_attn.weight") == "h.N.attn.c_attn"
    assert module_of("logit_scale") == "logit_scale"
    assert pattern_of("h.10.attn.bias") == "h.N.attn.bias"


def test_most_of_every_language_model_has_a_name_of_its_own(shared: Path) -> None:
    """Text models of the zoo: attention, feed-forward, experts and norms cover the layers; little is "other"."""
    named = (
        "state-space mixers",
        "routers",
        "recurrent mixers",
        "inputs of each layer",
        "convolutions",
        "adapters",
    )
    small = {OTHER + name for name in named}
    judged = 0
    with gzip.open(shared / "zoo" / "zoo.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if not entry["name"].endswith("CausalLM"):
                continue
            judged += 1
            kinds = set(kinds_of(entry["tensors"]))
            counted: Counter[str] = Counter()
            for name, (_, shape) in entry["tensors"].items():
                if layer_of(name):
                    part = part_of(name, parts.roots_of(kinds), moe_modules_of(kinds))
                    counted[part] += math.prod(shape)
            unnamed = sum(n for part, n in counted.items() if part.startswith(OTHER) and part not in small)
            assert unnamed <= 0.1 * sum(counted.values()), (entry["name"], counted)
    assert judged > 80
