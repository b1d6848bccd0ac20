"""Which part of a model does a tensor belong to: attention, feed-forward, experts, norms, or another one by name.

A name is judged by the words between its dots, from the tensor outwards: the first word that says something
decides. What words say is data. Numbers in names say nothing, so that a checkpoint of hundreds of thousands of
tensors has a few dozen kinds of names, and each kind is judged once.

Source: the module names of Hugging Face transformers, and of the first releases of GPT-2, BERT, T5, Llama,
Mixtral, DBRX, Mamba and RWKV.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

TOKENS = "token table"
POSITIONS = "position table"
HEAD = "output head"
ATTENTION = "attention"
FEED_FORWARD = "feed-forward"
EXPERTS = "experts"
NORMS = "norms"
PARTS = (TOKENS, POSITIONS, HEAD, ATTENTION, FEED_FORWARD, EXPERTS, NORMS)
"""The parts that have a name of their own, in the order in which they are shown."""

OTHER = "other: "
FURTHER_TOKENS = OTHER + "further token tables"
FURTHER_POSITIONS = OTHER + "further position tables"
TOKEN_TYPES = OTHER + "token types"
ROUTERS = OTHER + "routers"
STATE_SPACE = OTHER + "state-space mixers"
TABLES = (TOKENS, POSITIONS, FURTHER_TOKENS, FURTHER_POSITIONS, TOKEN_TYPES)
"""The parts whose rows are looked up: shares "without embeddings" leave them out."""


class Words(NamedTuple):
    """What tells a part: whole words, and pieces of words."""

    part: str
    whole: frozenset[str]
    pieces: tuple[str, ...] = ()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STRONG: tuple[Words, ...] = (
    Words(NORMS, _words("ln ln_f lnf bn rms"), ("norm", "layrnorm", "ln_", "_ln")),
    Words(
        OTHER + "adapters",
        _words("adapter adapters adapter_modules ia_l prompt_embeddings"),
        ("lora_", "hada_", "vera_"),
    ),
    Words(
        ROUTERS,
        _words(
            "router routers moe_statics expert_bias shared_expert_gate ffn_gate_inp ffn_gate_inp_shexp exp_probs_b"
        ),
        ("e_score_correction", "gating", "router"),
    ),
    Words(EXPERTS, frozenset(), ("expert", "_exps", "_shexp")),
    Words(
        ATTENTION,
        _words(
            "att sinks indexer qkv qkv_proj query_key_value c_attn wqkv in_proj_weight in_proj_bias"
            " rel_embeddings relative_attention_bias relative_position_bias_table time_mix tmix"
        ),
        ("attn", "attention", "attend", "_att"),
    ),
    Words(
        FEED_FORWARD,
        _words(
            "ff intermediate densereludense densegatedactdense channel_mix cmix positionwise"
            " lang_inter visn_inter lang_output visn_output"
        ),
        ("mlp", "ffn", "ffw", "feed_forward", "feedforward", "dense_h_to", "moe"),
    ),
    Words(STATE_SPACE, _words("ssm rg_lru"), ("mamba", "ssm_")),
    Words(OTHER + "recurrent mixers", frozenset(), ("lstm", "retention")),
    Words(
        TOKEN_TYPES,
        _words(
            "token_type_embeddings token_type_embedding segment_emb segment_embedding segment_embeddings"
            " seg_embed tokens_type_embed"
        ),
    ),
    Words(
        OTHER + "inputs of each layer",
        _words("ple per_layer_input_gate per_layer_projection per_layer_model_projection"),
    ),
    Words(OTHER + "pooler", _words("pooler sequence_summary")),
    Words(
        OTHER + "heads",
        _words(
            "predictions generator_predictions discriminator_predictions classifier classification_head score"
            " qa_outputs seq_relationship cls pre_classifier vocab_transform vocab_projector lm_loss pred_layer value_head"
            " reward_head embed_out"
        ),
        ("lm_head", "mlm_head", "itm_head", "ctc_head", "mim_head", "class_head"),
    ),
    Words(
        OTHER + "patch embeddings",
        frozenset(),
        ("patch_embed", "patch_proj", "patch_conv", "patchif"),
    ),
    Words(
        OTHER + "projectors",
        _words(
            "connector merger aligner resampler text_projection visual_projection vision_projection"
            " audio_projection image_projection project_in project_out embeddings_project"
            " embedding_hidden_mapping_in embed_proj feature_projection"
        ),
        ("projector", "merger"),
    ),
)
"""What words say, asked word by word from the tensor outwards, and for a word in this order."""

WEAK: tuple[Words, ...] = (
    Words(
        ATTENTION,
        _words(
            "q k v o query key value wq wk wv wo q_lin k_lin v_lin out_lin q_proj k_proj v_proj o_proj"
            " kv_a_proj_with_mqa kv_b_proj q_a_proj q_b_proj r_w_bias r_r_bias"
        ),
    ),
    Words(
        FEED_FORWARD,
        _words(
            "fc c_fc fc_ fc_in fc_out wi wi_ w w_ lin up_proj down_proj gate_proj gate_up_proj ff_proj ff_out"
        ),
    ),
    Words(STATE_SPACE, _words("mixer a_log dt_proj dt_bias x_proj temporal_block")),
)
"""What words mean in most models, where nothing stronger in the name tells."""

LAST: tuple[Words, ...] = (
    Words(FURTHER_POSITIONS, frozenset(), ("pos_emb", "position", "pos_encod", "wpe")),
    Words(OTHER + "convolutions", frozenset(), ("conv",)),
)
"""What is asked at the end."""

STACKED_EXPERTS = _words("input_linear output_linear")
"""Tensors directly below a mixture's module that hold all its experts."""

WRAPPERS = _words(
    "model transformer module _orig_mod _fsdp_wrapped_module base_model backbone encoder decoder layers layer h"
    " blocks block embeddings weight bias"
) | {""}
"""Modules that hold a model, a stack of layers or a tensor's own numbers: no part is named after them."""

_DIGITS = str.maketrans("", "", "0123456789")


def kinds_of(names: Iterable[str]) -> list[str]:
    """Each name without its numbers: names of one kind belong to the same part."""
    listed = list(names)
    kinds = "\n".join(listed).translate(_DIGITS).split("\n")
    # A line feed inside a name shifts what is behind it; no known writer makes such names.
    return kinds if len(kinds) == len(listed) else [name.translate(_DIGITS) for name in listed]


def part_of(name: str, roots: Collection[str] = (), moe_modules: Collection[str] = ()) -> str:
    """Which part does a tensor of this name, or of this kind of name, belong to?

    Token tables, position tables and output heads of their own are not told here: which tensors they are is
    known from `families`. `roots`: words that name the whole model, after which no part is called.
    `moe_modules`: what `moe_modules_of` says, by which a module called `gate` is known as a router.
    """
    kind = name.translate(_DIGITS)
    words = kind.lower().split(".")
    if is_router(kind, moe_modules):
        return ROUTERS
    if _holds_all_experts(kind, moe_modules):
        return EXPERTS
    for rules in (STRONG, WEAK, LAST):
        for place in range(len(words) - 1, -1, -1):
            part = _part_of_word(words[place], rules)
            if part is not None:
                return _outrank(part, words, place)
        if rules is STRONG and _is_output_of_layer(words):
            return FEED_FORWARD
    named = (word for word in words if word not in WRAPPERS and word not in roots)
    return OTHER + next(named, words[0] or "unnamed")


def is_routed(name: str) -> bool:
    """Is a tensor of the experts chosen for some tokens only? Shared experts see every token."""
    return "shared" not in name.lower() and "shexp" not in name and not name.endswith("experts.bias")


def moe_modules_of(kinds: Iterable[str]) -> frozenset[str]:
    """The modules that hold experts or a router, among these kinds of names."""
    found = set()
    for kind in kinds:
        words = kind.split(".")
        for place, word in enumerate(words):
            if word == "router" or (word.startswith("expert") and word != "expert_bias"):
                found.add(".".join(words[:place]))
                break
    return frozenset(found)


def roots_of(kinds: Collection[str]) -> frozenset[str]:
    """The word that names the whole model: the first one of most kinds of names, modules that only wrap left out."""
    first: dict[str, int] = {}
    for kind in kinds:
        word = next((word for word in kind.lower().split(".") if word not in WRAPPERS), "")
        first[word] = first.get(word, 0) + 1
    return frozenset(word for word, number in first.items() if 2 * number > len(kinds))


def is_router(kind: str, moe_modules: Collection[str]) -> bool:
    """Does this kind of name belong to a module called `gate` beside experts?"""
    parent, dot, _ = kind.rpartition(".gate.")
    return bool(dot) and parent in moe_modules


def layer_of(name: str) -> str:
    """The layer that a tensor lies in, as `encoder.layer.3`; empty outside the layers."""
    words = name.split(".")
    for place, word in enumerate(words):
        if word.isdecimal() and place and place < len(words) - 1:
            return ".".join(words[: place + 1])
    return ""


def module_of(name: str) -> str:
    """The module that a tensor lies in, its layer's number written as N; a bare tensor is its own module."""
    words = name.split(".")
    return ".".join("N" if word.isdecimal() else word for word in words[:-1] or words)


def pattern_of(name: str) -> str:
    """The tensor's name with numbers that stand alone written as N: h.N.attn.bias."""
    return ".".join("N" if word.isdecimal() else word for word in name.split("."))


def _holds_all_experts(kind: str, moe_modules: Collection[str]) -> bool:
    module, _, last = kind.removesuffix(".weight").rpartition(".")
    return last in STACKED_EXPERTS and module in moe_modules


def _part_of_word(word: str, rules: tuple[Words, ...]) -> str | None:
    for rule in rules:
        if word in rule.whole or any(piece in word for piece in rule.pieces):
            return rule.part
    return None


def _outrank(part: str, words: list[str], place: int) -> str:
    """Inside a router or an expert, what a module is called there does not matter; its norms are norms."""
    if part == NORMS:
        return part
    around = words[:place]
    if any("router" in word for word in around):
        return ROUTERS
    if part in (ATTENTION, FEED_FORWARD, STATE_SPACE) and any("expert" in word for word in around):
        return EXPERTS
    return part


def _is_output_of_layer(words: list[str]) -> bool:
    """BERT calls the second half of a layer's feed-forward `layer.3.output.dense`."""
    return any(word == "output" and before == "" for before, word in pairwise(words))
