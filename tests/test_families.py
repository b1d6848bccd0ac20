"""Names, shapes and config alone tell which tensors are the tables: the rules, the records, and hostile input."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_zoo import Headers, name_of

from inspect_embed.encodings import ENCODINGS
from inspect_embed.families import (
    BUFFER_LEAVES,
    DOUBTFUL,
    FACTOR_KEYS,
    FAMILIES,
    LENGTH_KEYS,
    ROPE_KEYS,
    SIZE_KEYS,
    FoundTables,
    find_buffers,
    find_tables,
    judge_buffers,
)

GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}


def of(shapes: dict[str, tuple[int, ...]], encoding: str = "F32") -> Headers:
    return Headers({name: [encoding, list(shape)] for name, shape in shapes.items()})


def find(shapes: dict[str, tuple[int, ...]], config: dict[str, Any] | None = None) -> FoundTables:
    return find_tables(of(shapes), config or {})


# --- names that wear prefixes, and names of other libraries -----------------------------------------------------

ELSEWHERE = {
    "GPT-2 on the hub": (
        {"wte.weight": (50, 8), "wpe.weight": (16, 8), "h.0.attn.bias": (1, 1, 16, 16)},
        "wte.weight",
        None,
    ),
    "one wrapped tensor": (
        {"module._orig_mod.transformer.wte.weight": (10, 4)},
        "module._orig_mod.transformer.wte.weight",
        None,
    ),
    "compiled nanoGPT": (
        {
            "_orig_mod.transformer.wte.weight": (50, 8),
            "_orig_mod.transformer.wpe.weight": (16, 8),
            "_orig_mod.lm_head.weight": (50, 8),
        },
        "_orig_mod.transformer.wte.weight",
        "_orig_mod.lm_head.weight",
    ),
    "minGPT": (
        {"tok_emb.weight": (50, 8), "pos_emb": (1, 16, 8), "head.weight": (50, 8)},
        "tok_emb.weight",
        "head.weight",
    ),
    "Llama as first published": (
        {"tok_embeddings.weight": (50, 8), "layers.0.attention.wq.weight": (8, 8), "output.weight": (50, 8)},
        "tok_embeddings.weight",
        "output.weight",
    ),
    "Megatron": (
        {
            "model.language_model.embedding.word_embeddings.weight": (50, 8),
            "model.language_model.embedding.position_embeddings.weight": (16, 8),
            "model.language_model.output_layer.weight": (50, 8),
        },
        "model.language_model.embedding.word_embeddings.weight",
        "model.language_model.output_layer.weight",
    ),
    "GPT-NeoX as first published": (
        {"sequential.0.word_embeddings.weight": (50, 8), "sequential.9.final_linear.weight": (50, 8)},
        "sequential.0.word_embeddings.weight",
        "sequential.9.final_linear.weight",
    ),
    "ChatGLM": (
        {"transformer.embedding.word_embeddings.weight": (50, 8), "transformer.output_layer.weight": (50, 8)},
        "transformer.embedding.word_embeddings.weight",
        "transformer.output_layer.weight",
    ),
    "RWKV as first published": (
        {"emb.weight": (50, 8), "blocks.0.att.time_decay": (8,), "head.weight": (50, 8)},
        "emb.weight",
        "head.weight",
    ),
    "Mamba as first published": ({"backbone.embedding.weight": (50, 8)}, "backbone.embedding.weight", None),
    "OLMo as first published": (
        {"model.transformer.wte.weight": (50, 8), "model.transformer.ff_out.weight": (50, 8)},
        "model.transformer.wte.weight",
        "model.transformer.ff_out.weight",
    ),
    "fairseq": (
        {"decoder.embed_tokens.weight": (50, 8), "decoder.output_projection.weight": (50, 8)},
        "decoder.embed_tokens.weight",
        "decoder.output_projection.weight",
    ),
    "Whisper as first published": (
        {
            "encoder.conv1.weight": (8, 80, 3),
            "encoder.positional_embedding": (16, 8),
            "decoder.token_embedding.weight": (50, 8),
            "decoder.positional_embedding": (12, 8),
        },
        "decoder.token_embedding.weight",
        None,
    ),
    "OpenCLIP": (
        {
            "visual.conv1.weight": (8, 3, 4, 4),
            "visual.class_embedding": (8,),
            "visual.positional_embedding": (5, 8),
            "token_embedding.weight": (50, 8),
            "positional_embedding": (12, 8),
        },
        "token_embedding.weight",
        None,
    ),
    "x-transformers": (
        {"token_emb.emb.weight": (50, 8), "pos_emb.emb.weight": (16, 8), "to_logits.weight": (50, 8)},
        "token_emb.emb.weight",
        "to_logits.weight",
    ),
    "TransformerLens": (
        {"embed.W_E": (50, 8), "pos_embed.W_pos": (16, 8), "unembed.W_U": (8, 50)},
        "embed.W_E",
        None,
    ),
    "the annotated transformer": (
        {"src_embed.0.lut.weight": (50, 8), "src_embed.1.pe": (1, 16, 8), "generator.proj.weight": (50, 8)},
        "src_embed.0.lut.weight",
        "generator.proj.weight",
    ),
    "GGUF's names": (
        {"token_embd.weight": (50, 8), "output.weight": (50, 8)},
        "token_embd.weight",
        "output.weight",
    ),
    "sentence-transformers": (
        {"0.auto_model.embeddings.word_embeddings.weight": (50, 8)},
        "0.auto_model.embeddings.word_embeddings.weight",
        None,
    ),
    "static embeddings": ({"embedding.weight": (50, 8)}, "embedding.weight", None),
    "model2vec": ({"embeddings": (50, 8), "weights": (50,)}, "embeddings", None),
    "a bare table": ({"weight": (50, 8)}, "weight", None),
    "CTRL": ({"transformer.w.weight": (50, 8), "lm_head.bias": (50,)}, "transformer.w.weight", None),
    "copies for multi-token prediction": (
        {
            "model.layers.61.embed_tokens.weight": (50, 8),
            "model.layers.61.shared_head.head.weight": (50, 8),
            "model.embed_tokens.weight": (50, 8),
            "lm_head.weight": (50, 8),
        },
        "model.embed_tokens.weight",
        "lm_head.weight",
    ),
}


@pytest.mark.parametrize("library", ELSEWHERE)
def test_tables_are_found_by_names_alone_under_the_names_of_any_library(library: str) -> None:
    shapes, token_table, head = ELSEWHERE[library]
    found = find(shapes)
    assert name_of(found.input) == token_table
    assert name_of(found.output) == head
    assert found.ambiguous == ()


@pytest.mark.parametrize(
    ("shapes", "position_table"),
    [
        ({"wte.weight": (50, 8), "wpe.weight": (16, 8)}, "wpe.weight"),
        (ELSEWHERE["minGPT"][0], "pos_emb"),
        (ELSEWHERE["Megatron"][0], "model.language_model.embedding.position_embeddings.weight"),
        (ELSEWHERE["Whisper as first published"][0], "decoder.positional_embedding"),
        (ELSEWHERE["OpenCLIP"][0], "positional_embedding"),
        (ELSEWHERE["x-transformers"][0], "pos_emb.emb.weight"),
        (ELSEWHERE["TransformerLens"][0], "pos_embed.W_pos"),
    ],
)
def test_only_the_text_models_position_table_is_taken(
    shapes: dict[str, tuple[int, ...]], position_table: str
) -> None:
    found = find(shapes)
    assert [table.entry.name for table in found.positions] == [position_table]
    assert found.position_kinds == ("learned",)


@pytest.mark.parametrize(
    "shapes",
    [
        {"weight": (8, 8, 3)},
        {"weight": (50,)},
        {"classifier.weight": (10, 8)},
        {"quantizer.layers.0.codebook.embed": (1024, 8), "encoder.weight": (8, 8)},
        {
            "vision_model.embeddings.position_embedding.weight": (50, 8),
            "vision_model.embeddings.class_embedding": (8,),
        },
        {"conv_in.weight": (8, 4, 3, 3), "time_embedding.embedding.weight": (50, 8)},
        {},
    ],
)
def test_where_nothing_tells_nothing_is_taken(shapes: dict[str, tuple[int, ...]]) -> None:
    found = find(shapes)
    assert found.input is None
    assert found.positions == ()
    assert found.position_kinds == ()
    assert "No tensor looks like a token table." in found.notes


# --- several candidates -------------------------------------------------------------------------------------------


def test_a_head_is_not_taken_for_the_token_table_while_there_is_one() -> None:
    found = find(
        {
            "lm_head.weight": (50, 8),
            "decoder.embed_tokens.weight": (50, 8),
            "encoder.embed_tokens.weight": (50, 8),
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 4),
        },
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "tie_word_embeddings": False},
    )
    assert name_of(found.input) == "encoder.embed_tokens.weight"
    assert name_of(found.output) == "lm_head.weight"
    assert [entry.name for entry in found.ambiguous] == [
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
    ]
    assert found.position_kinds == ("relative",)


def test_a_shared_table_settles_what_encoder_and_decoder_leave_open() -> None:
    found = find(
        {
            "encoder.embed_tokens.weight": (50, 8),
            "decoder.embed_tokens.weight": (50, 8),
            "shared.weight": (50, 8),
        }
    )
    assert name_of(found.input) == "shared.weight"
    assert found.ambiguous == ()
    assert {entry.name for entry in found.candidates} == {
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
    }


def test_a_table_stored_under_the_heads_name_is_the_token_table_only_where_config_says_tied() -> None:
    shapes = {"lm_head.weight": (50, 8), "transformer.positions_embed.weight": (16, 8)}
    tied = find(shapes, {"model_type": "openai-gpt", "tie_word_embeddings": True})
    assert name_of(tied.input) == "lm_head.weight"
    assert tied.output is None
    assert tied.tied is True
    untied = find(shapes, {"model_type": "openai-gpt", "tie_word_embeddings": False})
    assert untied.input is None
    assert name_of(untied.output) == "lm_head.weight"


def test_the_width_comes_from_the_tensor_not_from_the_config() -> None:
    found = find(
        {
            "albert.embeddings.word_embeddings.weight": (50, 4),
            "albert.encoder.embedding_hidden_mapping_in.weight": (24, 4),
        },
        {"model_type": "albert", "hidden_size": 24, "vocab_size": 50},
    )
    assert found.input is not None
    assert found.input.entry.shape == (50, 4)
    assert "The sum is projected to the model's width." in found.input_additions


def test_vision_and_audio_beside_a_language_model_are_left_alone() -> None:
    found = find(
        {
            "model.vision_tower.embeddings.position_embedding.weight": (9, 8),
            "model.vision_tower.embeddings.patch_embedding.weight": (8, 3, 4, 4),
            "model.audio_tower.embed_positions.weight": (16, 8),
            "model.qformer.embeddings.word_embeddings.weight": (50, 8),
            "model.qformer.embeddings.position_embeddings.weight": (16, 8),
            "model.language_model.embed_tokens.weight": (50, 8),
            "lm_head.weight": (50, 8),
        },
        {"text_config": {"rope_parameters": {"rope_theta": 10000.0}}, "model_type": "of_the_future"},
    )
    assert name_of(found.input) == "model.language_model.embed_tokens.weight"
    assert found.ambiguous == ()
    assert found.positions == ()
    assert found.position_kinds == ("rotary",)
    assert [entry.name for entry in found.candidates] == ["model.qformer.embeddings.word_embeddings.weight"]


# --- tied or not --------------------------------------------------------------------------------------------------


def test_the_file_decides_whether_the_head_is_tied_and_a_contradiction_is_a_note() -> None:
    shapes = {"transformer.wte.weight": (50, 8), "lm_head.weight": (50, 8)}
    found = find(shapes, {**GPT2, "tie_word_embeddings": True})
    assert found.tied is False
    assert any("lm_head.weight" in note for note in found.notes)
    assert find(shapes, {**GPT2, "tie_word_embeddings": False}).notes == find(shapes, GPT2).notes
    absent = find({"transformer.wte.weight": (50, 8)}, {**GPT2, "tie_word_embeddings": False})
    assert absent.tied is True
    assert any("taken as tied" in note for note in absent.notes)


@pytest.mark.parametrize(
    ("config", "tied"),
    [
        (GPT2, True),
        ({"model_type": "gpt2"}, True),
        ({"model_type": "gpt2", "tie_word_embeddings": True}, True),
        ({"model_type": "gpt2", "architectures": ["GPT2Model"]}, None),
        ({"model_type": "gpt2", "architectures": ["GPT2ForSequenceClassification"]}, None),
        ({}, None),
    ],
)
def test_without_a_head_in_the_file_the_class_tells_whether_there_is_one(
    config: dict[str, Any], tied: bool | None
) -> None:
    found = find({"wte.weight": (50, 8), "wpe.weight": (16, 8), "ln_f.weight": (8,)}, config)
    assert found.tied is tied
    if not config:
        assert "The file holds no output head, and nothing tells whether the model has one." in found.notes


@pytest.mark.parametrize(
    ("name", "tied"),
    [
        ("transformer.wte.weight", True),
        ("module._orig_mod.transformer.wte.weight", True),
        ("embedding.weight", None),
        ("0.auto_model.embeddings.word_embeddings.weight", None),
    ],
)
def test_without_config_a_model_wrapped_for_a_head_that_is_not_there_has_a_tied_one(
    name: str, tied: bool | None
) -> None:
    assert find({name: (50, 8)}).tied is tied


def test_a_classifier_beside_the_model_is_no_sign_of_a_tied_head() -> None:
    assert find({"model.embed_tokens.weight": (50, 8), "score.weight": (2, 8)}).tied is None


def test_what_is_left_of_a_head_tells_that_it_is_tied() -> None:
    shapes = {"bert.embeddings.word_embeddings.weight": (50, 8), "cls.predictions.bias": (50,)}
    assert find(shapes).tied is True


# --- positions ----------------------------------------------------------------------------------------------------


def test_two_rows_come_before_the_first_position_of_opt() -> None:
    found = find(
        {"decoder.embed_tokens.weight": (10, 4), "decoder.embed_positions.weight": (8, 4)},
        {"model_type": "opt", "max_position_embeddings": 6},
    )
    assert found.positions[0].first_used_row == 2
    assert found.notes.count(
        "Position p is row p + 2 of decoder.embed_positions.weight: the first rows stand for no position."
    )


@pytest.mark.parametrize(
    ("config", "first"),
    [
        ({"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 514}, 2),
        ({"model_type": "xlm-roberta", "pad_token_id": 5, "max_position_embeddings": 514}, 6),
        ({"model_type": "camembert"}, 2),
        ({"model_type": "mpnet", "pad_token_id": 7}, 2),
        ({"model_type": "bert", "pad_token_id": 1, "max_position_embeddings": 512, "n_positions": 514}, 0),
        ({"model_type": "of_the_future", "max_position_embeddings": 512}, 2),
        ({"model_type": "of_the_future", "max_position_embeddings": 514}, 2),
        ({"model_type": "of_the_future", "max_position_embeddings": 500}, 0),
        ({"model_type": "of_the_future", "max_position_embeddings": 514, "n_positions": 512}, 0),
        ({"text_config": {"model_type": "roberta", "pad_token_id": 1}}, 2),
        ({}, 2),
    ],
)
def test_the_row_of_the_first_position_follows_the_family_the_padding_or_the_shape(
    config: dict[str, Any], first: int
) -> None:
    shapes = {"embeddings.word_embeddings.weight": (50, 8), "embeddings.position_embeddings.weight": (514, 8)}
    assert [table.first_used_row for table in find(shapes, config).positions] == [first]


def test_a_file_without_config_is_recognised_by_its_outermost_module() -> None:
    found = find(
        {
            "module.roberta.embeddings.word_embeddings.weight": (50, 8),
            "module.roberta.embeddings.position_embeddings.weight": (514, 8),
        }
    )
    assert found.family == "RoBERTa"
    assert found.positions[0].first_used_row == 2


def test_rows_come_from_the_tensor_and_a_mismatch_with_the_config_is_a_note() -> None:
    found = find({"wte.weight": (10, 4), "wpe.weight": (9, 4)}, {**GPT2, "n_positions": 8})
    assert found.positions[0].entry.shape == (9, 4)
    assert found.positions[0].first_used_row == 0
    assert "wpe.weight has 9 rows; config.json says 8 positions." in found.notes


KINDS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"model_type": "llama", "rope_theta": 10000.0}, ("rotary",)),
    ({"model_type": "llama"}, ("rotary",)),
    ({"model_type": "of_the_future", "rope_scaling": None, "rope_theta": 5e5}, ("rotary",)),
    ({"model_type": "gpt_neox", "rotary_pct": 0.25}, ("rotary",)),
    ({"model_type": "falcon", "alibi": True}, ("alibi",)),
    ({"model_type": "falcon", "alibi": False}, ("rotary",)),
    ({"model_type": "mpt", "attn_config": {"alibi": True}}, ("alibi",)),
    ({"model_type": "bloom"}, ("alibi",)),
    ({"model_type": "granitemoehybrid", "position_embedding_type": "nope"}, ("none",)),
    ({"model_type": "esm", "position_embedding_type": "rotary"}, ("rotary",)),
    ({"model_type": "ctrl"}, ("sinusoidal",)),
    ({"model_type": "xlnet"}, ("relative",)),
    ({"model_type": "bigram"}, ("none",)),
    ({"model_type": "zamba2", "rope_theta": 1e4, "use_mem_rope": True}, ("rotary",)),
    ({"model_type": "zamba2", "rope_theta": 1e4, "use_mem_rope": False}, ()),
    ({"model_type": "glm5_next_text", "qk_rope_head_dim": 0}, ()),
    ({"model_type": "of_the_future"}, ()),
    ({"model_type": "of_the_future", "vision_config": {"rope_theta": 1e4}, "text_config": {}}, ()),
    ({"model_type": "of_the_future", "rope_theta": None, "rotary": False, "alibi": "yes"}, ()),
]


@pytest.mark.parametrize(("config", "kinds"), KINDS)
def test_the_kind_of_positions_comes_from_config_and_record_where_no_table_tells(
    config: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    found = find({"model.embed_tokens.weight": (50, 8)}, config)
    assert found.positions == ()
    assert found.position_kinds == kinds
    assert ("Neither config nor tensors tell which kind of positions the model uses." in found.notes) == (
        kinds == ()
    )


def test_recurrent_layers_without_anything_else_need_no_positions() -> None:
    shapes = {"backbone.embeddings.weight": (50, 8), "backbone.layers.0.mixer.A_log": (16, 4)}
    assert find(shapes).position_kinds == ("none",)
    assert find(shapes, {"model_type": "mamba"}).position_kinds == ("none",)
    assert find(shapes, {"model_type": "of_the_future", "rope_theta": 1e4}).position_kinds == ("rotary",)


def test_relative_tables_are_no_position_tables() -> None:
    found = find(
        {
            "shared.weight": (50, 8),
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 4),
        }
    )
    assert found.positions == ()
    assert found.position_kinds == ("relative",)
    deberta = find(
        {
            "deberta.embeddings.word_embeddings.weight": (50, 8),
            "deberta.embeddings.position_embeddings.weight": (16, 8),
            "deberta.encoder.rel_embeddings.weight": (32, 8),
        }
    )
    assert deberta.position_kinds == ("learned", "relative")


def test_stored_sinusoids_are_called_so() -> None:
    found = find(
        {"model.shared.weight": (50, 8), "model.encoder.embed_positions.weight": (16, 8)},
        {"model_type": "pegasus", "max_position_embeddings": 16},
    )
    assert [(table.kind, table.first_used_row) for table in found.positions] == [("sinusoidal", 0)]
    assert found.position_kinds == ("sinusoidal",)


# --- what is done to a row ----------------------------------------------------------------------------------------


def test_what_is_added_and_scaled_before_the_first_layer_is_said() -> None:
    bert = find(
        {
            "embeddings.word_embeddings.weight": (50, 8),
            "embeddings.token_type_embeddings.weight": (2, 8),
            "embeddings.LayerNorm.weight": (8,),
        }
    )
    assert bert.input_additions == (
        "The row of the token's type (its segment) is added.",
        "The sum is normalised.",
    )
    gemma = find(
        {"embed_tokens.weight": (50, 16), "norm.weight": (16,)}, {"model_type": "gemma2", "hidden_size": 16}
    )
    assert gemma.input_scale == 4.0
    assert gemma.input_additions == ("The token row is multiplied by sqrt(16) = 4.",)
    scaled = find({"embed_tokens.weight": (50, 16)}, {"model_type": "granite", "embedding_multiplier": 12})
    assert scaled.input_scale == 12.0
    assert (
        find({"shared.weight": (50, 16)}, {"model_type": "bart", "scale_embedding": True}).input_scale == 4.0
    )
    plain = find({"wte.weight": (50, 16), "ln_f.weight": (16,)}, GPT2)
    assert plain.input_scale is None
    assert plain.input_additions == ()


def test_the_norm_behind_the_last_layer_is_not_taken_for_one_before_the_first() -> None:
    assert find({"model.embed_tokens.weight": (50, 8), "model.norm.weight": (8,)}).input_additions == ()


# --- adapters and packed tables -----------------------------------------------------------------------------------


def test_an_adapters_factors_are_no_token_table() -> None:
    prefix = "base_model.model.model.embed_tokens"
    factors = {f"{prefix}.lora_embedding_A": (2, 10), f"{prefix}.lora_embedding_B": (4, 2)}
    found = find(factors)
    assert found.adapter
    assert found.input is None
    assert found.candidates == ()
    with_copy = find({**factors, f"{prefix}.weight": (10, 4), "base_model.model.lm_head.weight": (10, 4)})
    assert with_copy.adapter
    assert with_copy.input is None
    assert [entry.name for entry in with_copy.candidates] == [f"{prefix}.weight"]


def test_a_whole_model_with_low_rank_factors_inside_is_no_adapter() -> None:
    found = find(
        {
            "model.embed_tokens.weight": (50, 8),
            "model.layers.0.mlp.down_proj.base_layer.weight": (8, 8),
            "model.layers.0.mlp.down_proj.lora_A.speech.weight": (2, 8),
        }
    )
    assert not found.adapter
    assert name_of(found.input) == "model.embed_tokens.weight"


@pytest.mark.parametrize(
    ("weight", "companions"),
    [
        ("model.embed_tokens.weight", ["model.embed_tokens.scales", "model.embed_tokens.biases"]),
        ("model.embed_tokens.weight", ["model.embed_tokens.weight_scale_inv"]),
        (
            "model.embed_tokens.weight",
            ["model.embed_tokens.weight.absmax", "model.embed_tokens.weight.quant_map"],
        ),
    ],
)
def test_the_companions_of_a_quantised_table_are_named(weight: str, companions: list[str]) -> None:
    tensors = Headers({weight: ["U32", [6, 4]], **{name: ["F16", [6, 1]] for name in companions}})
    found = find_tables(tensors, {"model_type": "llama"})
    assert name_of(found.input) == weight
    assert sorted(found.quantised_companions) == sorted(companions)


def test_a_table_packed_under_another_name_is_found_so_that_it_can_be_refused_by_name() -> None:
    tensors = Headers(
        {"model.embed_tokens.qweight": ["I32", [6, 4]], "model.embed_tokens.scales": ["F16", [6, 1]]}
    )
    found = find_tables(tensors, {"model_type": "llama"})
    assert name_of(found.input) == "model.embed_tokens.qweight"
    assert found.quantised_companions == ("model.embed_tokens.scales",)


def test_a_table_one_number_wide_is_a_table() -> None:
    found = find({"wte.weight": (34, 1), "lm_head.weight": (34, 1)}, {"model_type": "bigram"})
    assert name_of(found.input) == "wte.weight"
    assert name_of(found.output) == "lm_head.weight"


# --- buffers ------------------------------------------------------------------------------------------------------


def test_masks_are_buffers_and_biases_are_not() -> None:
    shapes = {
        "wte.weight": (10, 4),
        "wpe.weight": (8, 4),
        "h.0.attn.bias": (1, 1, 8, 8),
        "h.0.attn.masked_bias": (),
        "h.0.attn.c_attn.bias": (12,),
        "h.1.attn.bias": (4,),
    }
    buffers = find_buffers(of(shapes), GPT2)
    assert {buffer.entry.name for buffer in buffers} == {"h.0.attn.bias", "h.0.attn.masked_bias"}


@pytest.mark.parametrize("encoding", ["F32", "U8", "BOOL"])
def test_a_mask_is_a_buffer_in_any_encoding(encoding: str) -> None:
    tensors = Headers({"h.0.attn.bias": [encoding, [1, 1, 8, 8]], "wte.weight": ["F32", [10, 4]]})
    assert [buffer.entry.name for buffer in find_buffers(tensors, {})] == ["h.0.attn.bias"]


def test_whole_numbers_are_no_parameters_unless_they_are_packed() -> None:
    tensors = Headers(
        {
            "some.table_of_places": ["I64", [4, 4]],
            "some.flags.0": ["BOOL", [4]],
            "layers.0.q_proj.qweight": ["I32", [4, 4]],
            "layers.0.q_proj.weight": ["U8", [4, 4]],
            "layers.0.q_proj.weight_shape": ["I64", [2]],
            "layers.0.norm.weight": ["F32", [4]],
        }
    )
    assert {buffer.entry.name for buffer in find_buffers(tensors, {})} == {
        "some.table_of_places",
        "some.flags.0",
    }


def test_frozen_batch_norms_hold_no_parameters_and_others_do() -> None:
    frozen = {f"backbone.norm.{part}": (8,) for part in ("weight", "bias", "running_mean", "running_var")}
    assert len(find_buffers(of(frozen), {})) == 4
    learned = {**frozen, "backbone.norm.num_batches_tracked": ()}
    names = {buffer.entry.name for buffer in find_buffers(of(learned), {})}
    assert names == {
        f"backbone.norm.{part}" for part in ("running_mean", "running_var", "num_batches_tracked")
    }


def test_what_only_a_record_can_tell_is_told_by_the_record_and_else_is_a_note() -> None:
    shapes = {"model.layers.0.mlp.expert_bias": (4,)}
    assert len(find_buffers(of(shapes), {"model_type": "hy_v3"})) == 1
    assert len(find_buffers(of(shapes), {"model_type": "afmoe"})) == 0
    assert judge_buffers(of(shapes), {"model_type": "afmoe"}).notes == ()
    unknown = judge_buffers(of(shapes), {"model_type": "of_the_future"})
    assert len(unknown.buffers) == 1
    assert [note.split(":")[0] for note in unknown.notes] == [
        "model.layers.0.mlp.expert_bias is counted as a buffer"
    ]


def test_sam_learns_its_frequencies_and_sam_2_does_not() -> None:
    shapes = {"shared_image_embedding.positional_embedding": (2, 8)}
    assert find_buffers(of(shapes), {"model_type": "sam"}) == ()
    assert len(find_buffers(of(shapes), {"model_type": "sam2"})) == 1
    assert judge_buffers(of(shapes), {"model_type": "sam9"}).notes


# --- records, and input that means harm -----------------------------------------------------------------------------


def test_records_are_consistent() -> None:
    types = [model_type for family in FAMILIES for model_type in family.model_types]
    assert len(types) == len(set(types))
    prefixes = [prefix for family in FAMILIES for prefix in family.prefixes]
    assert len(prefixes) == len(set(prefixes))
    for family in FAMILIES:
        assert family.name, family
        assert family.source, family.name
        assert family.model_types, family.name
        assert not (family.rows_follow_padding and family.first_used_row is not None), family.name
        assert not re.search(r"https?://", family.source), family.name
    assert all(BUFFER_LEAVES.values())
    assert all(len(types) == len(set(types)) for types in DOUBTFUL.values())


KEYS = [
    "model_type", "architectures", "tie_word_embeddings", "text_config", "encoder", "decoder", "pad_token_id", "alibi",
    "attn_config", "position_embedding_type", "peft_type", "scale_embedding", *ROPE_KEYS, *SIZE_KEYS, *LENGTH_KEYS, *FACTOR_KEYS,
]  # fmt: skip
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(["roberta", "gpt2", "opt"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
words = st.sampled_from(
    ["", "weight", "0", "12", "²", "\n", "embed_tokens", "wte", "w", "lm_head", "wpe", "attn", "bias", "shared", "model", "layers",
     "text_model", "position_embeddings", "embed_positions", "default", "base_layer", "running_var", "expert_bias", "lora_A"]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(
        st.lists(words, min_size=1, max_size=6).map(".".join),
        st.tuples(st.sampled_from(sorted(ENCODINGS)), st.lists(st.integers(0, 2**40), max_size=5)),
        max_size=8,
    ),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=8),
)
def test_no_name_shape_or_config_breaks_anything(tensors: dict[str, Any], config: dict[str, Any]) -> None:
    headers = Headers(tensors)
    found = find_tables(headers, config)
    chosen = [found.input, found.output, *found.positions]
    assert all(choice.entry.name in headers for choice in chosen if choice)
    assert all(choice.first_used_row >= 0 for choice in found.positions)
    assert not (found.input and found.output and found.input.entry == found.output.entry)
    buffers = judge_buffers(headers, config).buffers
    assert len({buffer.entry.name for buffer in buffers}) == len(buffers)
