"""What the tensors are called: which is the token table, which the head, which hold positions, which are no parameters.

Everything is told from names, shapes and config; no value is read. Rules come first and hold for every
architecture: leaf names in a ranking, the modules that a name passes through, shapes, keys of the config.
`FAMILIES` holds a record for each family that departs from the rules: data, not code.

Where nothing can be told, nothing is said: a table that is missing is None, with a note.

Source: the model code of Hugging Face transformers, file by file as the records say, and the checkpoints that
other libraries write.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from inspect_embed.formats import TensorEntry, TensorSet

Role = Literal["input", "output", "position"]
PositionKind = Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]


# --- what is answered ----------------------------------------------------------------------------------------


class Family(NamedTuple):
    """How a family of models departs from the rules.

    Names of tensors are tails: `wte` stands for every name that ends in `wte` or `wte.weight`.
    """

    name: str
    """The name people use."""
    model_types: tuple[str, ...]
    """Values of `model_type` in config.json."""
    source: str
    """Where the departure can be read."""
    prefixes: tuple[str, ...] = ()
    """Modules that only this family's files have at their root: by them a file without config is recognised."""
    input_tails: tuple[str, ...] = ()
    """Token tables, best first."""
    output_tails: tuple[str, ...] = ()
    """Output heads, best first."""
    position_tails: tuple[str, ...] = ()
    """Position tables that the rules do not know, or take for another model's."""
    first_used_row: int | None = None
    """The row of the first position."""
    rows_follow_padding: bool = False
    """The first position is the row after the padding token's."""
    position_kinds: tuple[PositionKind, ...] = ()
    """Kinds of positions, whatever the config says."""
    position_kinds_by_default: tuple[PositionKind, ...] = ()
    """Kinds of positions where neither config nor tensors say."""
    fixed_positions: bool = False
    """The stored position tables are computed (sinusoids), not learned."""
    scale: str = ""
    """The token row is multiplied by: `sqrt(width)`, or a number that this key of the config holds."""
    additions: tuple[str, ...] = ()
    """What else happens to a row before the first layer."""
    reads_no_text: bool = False
    """What looks like a token table is never asked for a row."""
    classes_with_head: tuple[str, ...] = ()
    """Classes that have an output head though their names do not tell."""
    classes_without_head: tuple[str, ...] = ()
    """Classes that have none though their names sound so."""
    buffers: tuple[str, ...] = ()
    """Tensors that are no parameters in this family."""
    parameters: tuple[str, ...] = ()
    """Tensors that are parameters here though they are buffers by the rules."""


class TableChoice(NamedTuple):
    """A tensor and the part it plays.

    `first_used_row` is the row of the first position, and 0 for other roles; `kind` tells for position tables
    whether they are learned or hold computed sinusoids.
    """

    entry: TensorEntry
    role: Role
    first_used_row: int = 0
    kind: Literal["learned", "sinusoidal"] = "learned"


class FoundTables(NamedTuple):
    """The tables of a checkpoint.

    `tied` is True where the model has an output head and the file has none of its own, False where the file has
    one, None where the model has no head or nothing tells whether it has one. `candidates` are further tables of
    ids, best first; `ambiguous` are the input tables (the first-ranked among them) of which any could be meant.
    `position_kinds` are those of the text model, empty where nothing tells. `input_additions` says what is done to
    a token row before the first layer reads it, and `input_scale` by which number it is multiplied.
    `quantised_companions` are tensors that belong to an input table whose numbers are packed or scaled.
    """

    family: str
    input: TableChoice | None = None
    output: TableChoice | None = None
    tied: bool | None = None
    positions: tuple[TableChoice, ...] = ()
    position_kinds: tuple[str, ...] = ()
    candidates: tuple[TensorEntry, ...] = ()
    ambiguous: tuple[TensorEntry, ...] = ()
    adapter: bool = False
    quantised_companions: tuple[str, ...] = ()
    input_additions: tuple[str, ...] = ()
    input_scale: float | None = None
    notes: tuple[str, ...] = ()


class Buffer(NamedTuple):
    """A tensor in the file that is no parameter, and why."""

    entry: TensorEntry
    reason: str


# --- the rules, as data --------------------------------------------------------------------------------------

INPUT_LEAVES: tuple[tuple[str, ...], ...] = (
    ("shared",),
    (
        "embed_tokens", "wte", "word_embeddings", "word_embedding", "tok_embeddings", "tok_embedding",
        "token_embedding", "token_embeddings", "tokens_embed", "embed_in", "token_embd", "tok_emb", "token_emb",
        "word_emb", "embed_text_tokens", "text_embed_tokens", "input_embeds_layer", "W_E", "emb_luts", "lut", "wte.embedding",
        "token_emb.emb", "word_emb.emb_layers",
    ),
    ("input_embedding", "input_embeddings", "embeddings", "embedding", "embed", "emb", "w"),
)  # fmt: skip
"""Names of token tables, ranked. The last rank is of names that other tables have too."""

FURTHER_LEAVES = (
    "entity_embeddings", "xpath_tag_sub_embeddings", "xpath_subs_sub_embeddings", "unit_embedding", "embed_audio_tokens",
    "audio_embeddings", "codebook_embeddings", "vision_embed_tokens", "embed_tokens_per_layer",
    "shape_embed", "pronunciation_embed", "embed_char", "per_layer_token_embd",
)  # fmt: skip
"""Names of tables of other ids than those of text."""

NUMBERED_LEAVES = ("emb_layers", "emb_luts")
"""Tables of words that come in numbered parts; other numbered tables (`embed_tokens.0`, `embed_tokens.1`) are codebooks."""

BARE_LEAVES = ("weight", "vectors", "E", "embedding_matrix")
"""Names of a token table that is alone in its file."""

OUTPUT_LEAVES: tuple[tuple[str, ...], ...] = (
    ("lm_head", "embed_out", "unembed", "lm_head.decoder", "lm_head.linear", "predictions.decoder"),
    (
        "head", "output", "decoder", "output_projection", "output_layer", "final_linear", "proj_out", "to_logits",
        "lm_loss", "pred_layer.proj", "generator.proj", "ff_out", "text_head", "final_proj", "lm_head.out_proj", "cls",
        "codec_head",
    ),
)  # fmt: skip
"""Names of output heads, ranked. The second rank holds only where the head has a row for each row of the token table."""

POSITION_LEAVES = (
    "position_embeddings", "position_embedding", "embed_positions", "wpe", "positions_embed", "pos_embed",
    "pos_emb", "pos_embedding", "pos_embeddings", "positional_embedding", "positional_embeddings", "position_embd",
    "position_embed", "position_emb", "position_embeds_layer", "learned_position_embeddings", "text_position_embeddings",
    "positional_encoding", "W_pos", "pos_emb.emb",
)  # fmt: skip
"""Names of tables of absolute positions."""

RELATIVE_LEAVES = (
    "relative_attention_bias", "rel_embeddings", "r_w_bias", "r_r_bias", "emb_rel_k", "emb_rel_v", "distance_embedding",
    "relative_bias", "rel_logits_proj", "relative_position_bias", "rel_pos_bias", "rel_attn_bias", "attn_rel_b",
)  # fmt: skip
"""Names of what only relative positions need."""

RECURRENT_LEAVES = ("A_log", "time_decay", "time_mix_key", "time_maa_k", "dt_bias", "igate_preact", "ssm_a")
"""Names of what recurrent layers (state-space, RWKV, xLSTM) have; such models need no positions."""

ROPE_LEAVES = ("inv_freq", "rope.freqs", "freqs_cis", "freqs_cos")
"""Names of stored rotary frequencies."""

ROPE_KEYS = (
    "rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct", "rotary_emb_base", "rotary_emb_fraction",
    "rotary_embedding_base", "partial_rotary_factor", "rope_interleaved", "rope_pct", "rope_ratio", "rotary",
    "qk_rope_head_dim", "layer_rope_theta", "global_rope_theta",
)  # fmt: skip
"""Keys of a config that say that positions are rotary, where their value is not null, false or zero."""

ROPE_SWITCHES = ("use_mem_rope", "use_rope", "use_rotary_embedding")
"""Keys of a config that switch rotary positions off, whatever other keys say."""

SINUSOID_KEYS = ("sinusoidal_pos_embds", "sinusoidal_embeddings")
"""Keys of a config that say that the stored position table holds computed sinusoids."""

FOREIGN_WORDS = frozenset((
    "vision", "visual", "image", "images", "img", "pixel", "pixels", "vit", "audio", "speech", "sound",
    "acoustic", "video", "videos", "vae", "vqvae", "vq", "vqmodel", "vqgan", "quantizer", "quantizers",
    "quantize", "codebook", "codebooks", "codec", "qformer", "resampler", "vocoder", "t2u", "mit",
    "tracker", "mtp", "dit", "talker", "token2wav", "depth", "mim", "mimi", "speaker", "patcher",
    "gemma_expert",
))  # fmt: skip
"""Words in a module's name that say that what is below belongs to no text model."""

TEXT_WORDS = frozenset(("text", "language", "llm", "lm", "bert"))
"""Words that say the opposite, where they come deeper."""

NOT_A_TOKEN_TABLE = re.compile(
    r"pos|time|tile|type|segment|patch|codebook|quanti|vq|class|label|speaker|mask|query"
)
"""What the module around a table of a general name (`embedding`) must not be called."""

IMAGE_SIBLINGS = (
    "cls_token", "class_embedding", "class_token", "mask_token", "patch_embedding.weight", "patch_embedding", "conv1.weight",
    "patch_embed.proj.weight", "patch_embed.projection.weight", "patch_embed.weight", "conv.weight", "patch_embed.norm.weight",
    "patch_embeddings.projection.weight", "patch_embeddings.weight", "patch_embedder.weight", "patch_embedding.projection.weight",
)  # fmt: skip
"""Tensors beside a table of positions by which it belongs to images or sound."""

SIZE_KEYS = ("vocab_size", "n_vocab", "padded_vocab_size", "text_vocab_size", "src_vocab_size")
LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_target_positions", "max_source_positions", "max_seq_len", "n_ctx",
    "seq_length", "max_seq_length", "block_size", "max_sequence_length", "max_encoder_position_embeddings",
    "max_decoder_position_embeddings",
)  # fmt: skip

HEAD_CLASSES = re.compile(
    r"LMHead|ForCausalLM|ForMaskedLM|ForConditionalGeneration|ForPreTraining|ForSeq2Seq|ForImageTextToText|ForMultimodalLM"
    r"|MTModel$|DoubleHeads|WithLM|ForSpeechSeq2Seq|ForSpeechToText|ForTextToText|ForGeneration|ForPrefixLM|ForVision2Seq"
)
"""Classes of models that have an output head."""

HEAD_REMAINS = re.compile(
    r"^(?:cls\.predictions\.|lm_head\.(?:bias|dense|layer_norm|transform)|predictions\.(?:bias|dense|LayerNorm)"
    r"|generator_predictions\.|vocab_(?:transform|projector|layer_norm)|final_logits_bias|mlm\.|lm_predictions)"
)
"""What is left of a head in a file that does not hold the tied matrix itself."""

REMAINS_ROOTS = frozenset(
    (
        "cls", "lm_head", "predictions", "generator_predictions", "vocab_transform", "vocab_projector", "vocab_layer_norm",
        "final_logits_bias", "mlm", "lm_predictions",
    )
)  # fmt: skip
"""The modules at the root of such names."""

WRAPPER_WORDS = frozenset(("module", "_orig_mod", "_fsdp_wrapped_module", "base_model", "0", "auto_model"))
"""Modules that frameworks wrap around a model: they say nothing about it."""

PARAMETER_WORDS = frozenset((
    "weight", "qweight", "weight_packed", "base_layer", "default", "modules_to_save", "original_module", "original",
))  # fmt: skip
"""Last words of a name that belong to the tensor, not to its module."""

COMPANION_LEAVES = (
    "scales", "biases", "qweight", "qzeros", "g_idx", "SCB", "absmax", "weight.absmax", "weight.quant_map",
    "weight.nested_absmax", "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4",
    "weight.quant_state.bitsandbytes__fp4", "weight_scale", "weight_scale_inv", "weight_zero_point", "weight_packed",
    "weight_shape", "weight_g_idx", "zeros", "zero_point", "scale", "scale_inv", "weight_format", "weight_scale_2",
)  # fmt: skip
"""Tensors beside a quantised one."""

BUFFER_LEAVES: Mapping[str, str] = {
    "position_ids": "row numbers of positions",
    "token_type_ids": "token types of a plain text",
    "inv_freq": "rotary or sinusoidal frequencies, computed",
    "original_inv_freq": "rotary or sinusoidal frequencies, computed",
    "freqs_cis": "rotary angles, computed",
    "freqs_cos": "rotary angles, computed",
    "freqs_sin": "rotary angles, computed",
    "rope.freqs": "rotary frequencies, computed",
    "rope_freqs": "factors of rotary frequencies, computed",
    "rope_factors_long": "factors of rotary frequencies, computed",
    "rope_factors_short": "factors of rotary frequencies, computed",
    "exp_probs_b.bias": "balances the experts, not learned by gradient",
    "cos_cached": "rotary angles, computed",
    "sin_cached": "rotary angles, computed",
    "running_mean": "running statistics of batch normalisation",
    "running_var": "running statistics of batch normalisation",
    "num_batches_tracked": "running statistics of batch normalisation",
    "relative_position_index": "places in a table of relative positions",
    "relative_coords_table": "places in a table of relative positions",
    "e_score_correction_bias": "balances the experts, not learned by gradient",
    "expert_bias": "balances the experts, not learned by gradient",
    "final_logits_bias": "zeros added to the logits",
    "masked_bias": "value that a causal mask writes",
    "causal_mask": "causal mask",
    "attn_mask": "attention mask",
    "layer_scalar": "fixed factor of a layer",
    "norm_mean": "statistics of the inputs",
    "norm_std": "statistics of the inputs",
    "cluster_size": "running statistics of a codebook",
    "embed_avg": "running statistics of a codebook",
    "inited": "running statistics of a codebook",
    "cluster_usage": "running statistics of a codebook",
    "embed_sum": "running statistics of a codebook",
    "initialized": "running statistics of a codebook",
    "codebook.embed": "running means that make a codebook",
    "router_bias": "balances the experts, not learned by gradient",
    "balancing_biases": "balances the experts, not learned by gradient",
    "input_min": "range to which a layer's inputs are cut",
    "input_max": "range to which a layer's inputs are cut",
    "output_min": "range to which a layer's outputs are cut",
    "output_max": "range to which a layer's outputs are cut",
    "global_mean": "statistics of the inputs",
    "global_invstd": "statistics of the inputs",
    "n_points_scale": "numbers of sampling points",
    "num_points_scale": "numbers of sampling points",
    "pos_idx_to_embed": "sinusoids, computed",
    "act_fn.beta": "constant of an activation",
    "act_fn.eps": "constant of an activation",
    "slope_rate": "decay of linear attention, computed",
    "key_decay": "decay of linear attention, computed",
    "query_decay": "decay of linear attention, computed",
    "diagonal_decay": "decay of linear attention, computed",
}
"""Tensors that are no parameters, by the end of their name."""

MASK_LEAVES = ("attn.bias", "attention.bias", "attn.masked_bias")
"""Causal masks: square in their last two dimensions; a bias of this name with one dimension is a parameter."""

QUANTISED_INTEGERS = frozenset((
    "weight", "weight_shape", "g_idx", "weight_g_idx", "qweight", "qzeros", "weight_packed",
    "weight_zero_point",
))  # fmt: skip
"""Last words of names whose whole numbers are packed parameters, or belong to them."""

INTEGERS_NEVER_LEARNED = ("I64", "U64", "BOOL")
"""Encodings in which no parameter is stored, packed ones aside."""

NAMED_KINDS: Mapping[str, tuple[PositionKind, ...]] = {
    "relative_key": ("relative",),
    "relative_key_query": ("relative",),
    "relative": ("relative",),
    "rotary": ("rotary",),
    "rope": ("rotary",),
    "alibi": ("alibi",),
    "nope": ("none",),
    "sinusoidal": ("sinusoidal",),
    "learned": ("learned",),
}
"""Kinds of positions that a config names outright in `position_embedding_type`."""

BASE_MODULES = frozenset((
    "model", "transformer", "gpt_neox", "backbone", "rwkv", "bert", "roberta", "albert", "distilbert",
    "electra", "mpnet", "deberta", "camembert", "xlm_roberta",
))  # fmt: skip
"""Modules that hold the whole model without its head: a file with nothing beside them has a tied head."""

GENERATIVE_ROOTS = frozenset(
    ("wte", "h", "tokens_embed", "embed_in", "model", "transformer", "decoder", "layers")
)
"""Modules at the root of models that write text."""

SQUARE_ROOT_KEYS = ("scale_embedding", "rescale_embeddings", "embeddings_scale_by_sqrt_dim")
"""Keys of a config that say that token rows are multiplied by the square root of their width."""

FACTOR_KEYS = ("embedding_multiplier", "scale_emb", "embedding_multiplier_scale", "embed_scale", "emb_scale")
"""Keys of a config that hold a factor for token rows."""

ADDITIONS: Mapping[str, str] = {
    "token_type_embeddings": "The row of the token's type (its segment) is added.",
    "token_types": "The row of the token's type (its segment) is added.",
    "token_embd_norm": "The sum is normalised.",
    "token_type_embeddings_0": "Rows of several token types (segment, column, row and the like) are added.",
    "task_type_embeddings": "The row of the task is added.",
    "lang_embeddings": "The row of the language is added.",
    "x_position_embeddings": "Rows for the place on the page are added.",
    "embed_tokens_per_layer": "A second table has a row of each token for every layer (embed_tokens_per_layer).",
    "word_embeddings_layernorm": "The row is normalised.",
    "layernorm_embedding": "The sum is normalised.",
    "encoder.layernorm_embedding": "The sum is normalised.",
    "layer_norm_emb": "The sum is normalised.",
    "emb_ln": "The sum is normalised.",
    "embed_norm": "The row is normalised.",
    "embeddings_project": "The sum is projected to the model's width.",
    "encoder.embedding_hidden_mapping_in": "The sum is projected to the model's width.",
    "embedding_transformation": "The rows of the token and of its neighbours are projected to the model's width.",
    "project_in": "The token row is projected to the model's width.",
}
"""What tensors near the token table say is done to its rows before the first layer."""

NORMS_OF_EMBEDDINGS = ("LayerNorm", "layer_norm", "norm")
"""Names of norms that are the first layer's affair only where they lie in a module of embeddings."""

BALANCING_LEAVES = ("e_score_correction_bias", "expert_bias", "router_bias", "balancing_biases")
"""Buffers only where they have one dimension."""

DOUBTFUL: Mapping[str, tuple[str, ...]] = {
    "e_score_correction_bias": (
        "axk1", "axk2", "beam", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "ernie4_5_vl_moe", "exaone_moe",
        "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm4v_moe_text", "glm5_next", "glm5_next_text", "glm_moe_dsa", "hy_v4",
        "hy_v4_vl", "hy_v4_vl_text", "inkling_text", "kimi_k2", "kimi_linear", "laguna", "longcat_flash", "mimo_v2_flash", "minimax_m2",
        "minimax_m3_vl", "minimax_m3_vl_text", "muse_spark", "muse_spark_text", "nemo_speechlm", "nemotron_h",
        "nemotron_h_omni", "sarvam_mla", "solar_open",
    ),
    "expert_bias": ("afmoe", "bailing_hybrid", "hy_v3", "kolibri1", "sarvam_moe"),
    "router_bias": ("step3p7",),
    "balancing_biases": ("zaya",),
    "layer_scalar": (
        "embedding_gemma2", "embedding_gemma2_text", "gemma4", "gemma4_assistant", "gemma4_text", "gemma4_unified",
        "gemma4_unified_assistant", "gemma4_unified_text",
    ),
    "gate.bias": (
        "d_fine", "deimv2", "deepseek_v4", "inkling2", "inkling2_loop", "inkling2_loop_text", "inkling2_text",
        "inkling_mm_model", "inkling_text",
    ),
    "shared_embedding.positional_embedding": (
        "edgetam", "edgetam_video", "sam", "sam2", "sam2_video", "sam3_tracker", "sam3_tracker_video", "sam3_video", "sam_hq",
    ),
    "shared_image_embedding.positional_embedding": (
        "edgetam", "edgetam_video", "sam", "sam2", "sam2_video", "sam3_tracker", "sam3_tracker_video", "sam3_video", "sam_hq",
    ),
}  # fmt: skip
"""Tensors that are parameters in some families and buffers in others, and the model types of which it is known."""

# --- the records ---------------------------------------------------------------------------------------------

FAMILIES: tuple[Family, ...] = (
    # -- rows before the first position
    Family(
        "RoBERTa",
        (
            "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "xmod", "data2vec-text",
            "longformer", "luke", "mluke", "lilt", "layoutlmv3", "markuplm", "bridgetower_text_model", "altclip_text_model",
            "altclip", "bridgetower", "clap_text_model", "clap",
        ),
        "create_position_ids_from_input_ids: positions are counted from padding_idx + 1",
        prefixes=("roberta", "xlm_roberta", "camembert", "longformer", "roberta_prelayernorm", "luke", "lilt"),
        rows_follow_padding=True,
    ),
    Family(
        "MPNet",
        ("mpnet",),
        "modeling_mpnet.py, MPNetEmbeddings: padding_idx = 1, whatever the config says",
        prefixes=("mpnet",),
        first_used_row=2,
    ),
    Family(
        "ESM",
        ("esm",),
        "modeling_esm.py, EsmEmbeddings: as RoBERTa where positions are absolute",
        prefixes=("esm",),
        rows_follow_padding=True,
    ),
    Family(
        "ProphetNet",
        ("prophetnet", "xlm-prophetnet"),
        "modeling_prophetnet.py, ProphetNetPositionalEmbeddings: counted from padding_idx + 1",
        prefixes=("prophetnet",),
        rows_follow_padding=True,
    ),
    Family(
        "BART",
        ("bart", "mbart", "plbart", "mvp", "biogpt", "pp_formulanet", "pp_formulanet_text", "florence2", "opt"),
        "LearnedPositionalEmbedding of these models: self.offset = 2",
        first_used_row=2,
    ),
    Family(
        "TrOCR",
        ("trocr",),
        "modeling_trocr.py: TrOCRLearnedPositionalEmbedding with offset 2, or sinusoids computed anew",
        first_used_row=2,
        position_kinds_by_default=("sinusoidal",),
    ),
    Family(
        "I-BERT",
        ("ibert",),
        "modeling_ibert.py: as RoBERTa; ranges and integers of its quantisation are buffers",
        prefixes=("ibert",),
        rows_follow_padding=True,
        buffers=(
            "act_scaling_factor", "weight_scaling_factor", "fc_scaling_factor", "weight_integer", "bias_integer", "x_min",
            "x_max", "LayerNorm.shift",
        ),
    ),
    Family(
        "Nystromformer",
        ("nystromformer", "yoso", "mra"),
        "modeling_nystromformer.py, NystromformerEmbeddings: position_ids = arange + 2",
        prefixes=("nystromformer", "yoso", "mra"),
        first_used_row=2,
    ),
    # -- computed positions
    Family(
        "Marian",
        ("marian", "pegasus"),
        "modeling_marian.py, MarianSinusoidalPositionalEmbedding: sinusoids, stored or computed anew",
        position_kinds=("sinusoidal",),
        fixed_positions=True,
        first_used_row=0,
    ),
    Family(
        "FSMT",
        ("fsmt",),
        "modeling_fsmt.py, SinusoidalPositionalEmbedding: counted from padding_idx + 1",
        position_kinds=("sinusoidal",),
        fixed_positions=True,
        rows_follow_padding=True,
    ),
    Family(
        "RoFormer",
        ("roformer",),
        "modeling_roformer.py, RoFormerSinusoidalPositionalEmbedding: sines and cosines that turn queries and keys",
        prefixes=("roformer",),
        position_tails=("encoder.embed_positions",),
        position_kinds=("rotary",),
        fixed_positions=True,
        first_used_row=0,
    ),
    Family(
        "M2M100",
        (
            "m2m_100", "nllb-moe", "xglm", "speech_to_text", "speech_to_text_2", "kosmos-2", "kosmos-2.5", "kosmos_2_text_model",
            "kosmos_2_5_text_model",
        ),
        "SinusoidalPositionalEmbedding of these models: computed from row 2 on; older files store the table",
        position_tails=("embed_positions.weights",),
        position_kinds=("sinusoidal",),
        fixed_positions=True,
        first_used_row=2,
        buffers=("embed_positions.weights",),
    ),
    Family(
        "SeamlessM4T",
        ("seamless_m4t", "seamless_m4t_v2"),
        "modeling_seamless_m4t.py, SeamlessM4TSinusoidalPositionalEmbedding; SeamlessM4TModel has a tied lm_head",
        position_kinds=("sinusoidal",),
        classes_with_head=(
            "SeamlessM4TModel", "SeamlessM4TForTextToText", "SeamlessM4TForSpeechToText", "SeamlessM4TForTextToSpeech",
            "SeamlessM4TForSpeechToSpeech", "SeamlessM4Tv2Model", "SeamlessM4Tv2ForTextToText", "SeamlessM4Tv2ForSpeechToText",
            "SeamlessM4Tv2ForTextToSpeech", "SeamlessM4Tv2ForSpeechToSpeech",
        ),
    ),
    Family(
        "Sinusoids that are not stored",
        ("pegasus_x", "canary", "canary_decoder", "tipsv2", "tipsv2_text_model", "musicgen_decoder", "musicgen_melody_decoder"),
        "the SinusoidalPositionalEmbedding of each of these models",
        position_kinds=("sinusoidal",),
    ),
    Family(
        "SpeechT5",
        ("speecht5",),
        "modeling_speecht5.py, SpeechT5ScaledPositionalEncoding: sinusoids times a learned number",
        position_kinds=("sinusoidal",),
        classes_with_head=("SpeechT5ForSpeechToText",),
    ),
    Family(
        "CTRL",
        ("ctrl",),
        "modeling_ctrl.py, positional_encoding; inputs_embeds *= sqrt(d_model_size)",
        position_kinds=("sinusoidal",),
        scale="sqrt(width)",
    ),
    Family(
        "VideoPrism",
        ("videoprism", "videoprism_text_model"),
        "modeling_videoprism.py: the text model's position_embedding is a buffer of sinusoids",
        position_kinds=("sinusoidal",),
        fixed_positions=True,
        scale="sqrt(width)",
        buffers=("text_model.embeddings.position_embedding", "embeddings.position_embedding"),
    ),
    # -- positions that neither names nor config tell
    Family(
        "BLOOM",
        ("bloom", "gpt_refact"),
        "modeling_bloom.py, build_alibi_tensor",
        position_kinds=("alibi",),
    ),
    Family(
        "Inkling",
        (
            "inkling_mm_model", "inkling_text", "inkling2", "inkling2_text", "inkling2_loop", "inkling2_loop_text",
        ),
        "modeling_inkling.py: relative logits; the gate's bias is a buffer",
        position_kinds=("relative",),
        buffers=("mlp.gate.bias",),
    ),
    Family(
        "Bigram",
        ("bigram",),
        "checkpoints/bigram/README.md: the next token depends on the last one alone",
        position_kinds=("none",),
    ),
    Family(
        "Kimi Linear",
        ("kimi_linear",),
        "modeling_kimi_linear.py: attention without positions between layers of linear attention",
        position_kinds=("none",),
    ),
    Family(
        "Nemotron-H",
        ("nemotron_h", "nemotron_h_omni", "nemo_speechlm", "jamba", "zamba"),
        "modeling_nemotron_h.py: attention without positions between state-space layers",
        position_kinds_by_default=("none",),
    ),
    Family(
        "XLNet",
        ("xlnet", "transfo-xl"),
        "modeling_xlnet.py, relative_positional_encoding",
        position_kinds=("relative",),
    ),
    Family(
        "FastSpeech2 Conformer",
        ("fastspeech2_conformer", "fastspeech2_conformer_with_hifigan"),
        "modeling_fastspeech2_conformer.py, FastSpeech2ConformerRelPositionalEncoding; the vocoder's statistics are buffers",
        position_kinds=("relative",),
        buffers=("vocoder.mean", "vocoder.scale"),
    ),
    Family(
        "Moonshine Streaming",
        ("moonshine_streaming",),
        "modeling_moonshine_streaming.py: the decoder's pos_emb is added to the sound, its own positions are rotary",
        position_kinds=("rotary",),
    ),
    Family(
        "RNN transducer",
        ("parakeet_rnnt", "parakeet_tdt", "nemotron3_5_asr", "nemotron_asr_streaming"),
        "modeling_parakeet.py: an LSTM reads the tokens",
        position_kinds=("none",),
    ),
    Family(
        "Rotary by default",
        (
            "llama", "mistral", "mixtral", "gpt_neox", "gpt_neox_japanese", "gptj", "codegen", "falcon", "RefinedWeb",
            "RefinedWebModel", "persimmon", "phi", "phi-msft", "stablelm", "stablelm_epoch", "olmo", "chatglm",
            "internlm", "internlm2", "qwen", "qwen2", "xverse", "yi", "Yi", "aquila", "deepseek", "cohere", "dbrx",
            "starcoder2", "nomic_bert", "hf_olmo", "minicpm", "open_llama",
        ),
        "the models' RotaryEmbedding, which older configs do not mention",
        position_kinds_by_default=("rotary",),
    ),
    Family(
        "MPT",
        ("mpt",),
        "modeling_mpt.py: attn_config.alibi, True by default",
        position_kinds_by_default=("alibi",),
    ),
    # -- tables under names of their own
    Family(
        "Reformer",
        ("reformer",),
        "modeling_reformer.py, AxialPositionEmbeddings: a position's row is put together from two tables",
        prefixes=("reformer",),
        position_tails=("position_embeddings.weights", "position_embeddings.embedding"),
        position_kinds=("learned",),
        first_used_row=0,
    ),
    Family(
        "CANINE",
        ("canine",),
        "modeling_canine.py, CanineEmbeddings: characters are hashed into several tables; none has a row for each",
        position_tails=("char_embeddings.char_position_embeddings",),
        first_used_row=0,
    ),
    Family(
        "Perceiver",
        ("perceiver",),
        "modeling_perceiver.py, PerceiverTextPreprocessor",
        prefixes=("perceiver",),
        position_tails=("input_preprocessor.position_embeddings",),
    ),
    Family(
        "Bark",
        ("bark",),
        "modeling_bark.py: the semantic model reads text",
        input_tails=("semantic.input_embeds_layer",),
        output_tails=("semantic.lm_head",),
        position_tails=("semantic.position_embeds_layer",),
    ),
    Family(
        "Cohere ASR",
        ("cohere_asr",),
        "modeling_cohere_asr.py",
        output_tails=("log_softmax.mlp.layer0",),
        position_tails=("_embedding.position_embedding.pos_enc", "decoder.pos_emb"),
        position_kinds=("sinusoidal",),
        fixed_positions=True,
    ),
    Family(
        "Decision Transformer",
        ("decision_transformer",),
        "modeling_decision_transformer.py: states, actions and returns go in, never ids",
        reads_no_text=True,
    ),
    # -- heads that a class name does not tell
    Family(
        "BLIP-2",
        ("blip-2",),
        "modeling_blip_2.py: Blip2Model holds the language model with its head",
        classes_with_head=("Blip2Model",),
    ),
    Family(
        "BERT generation",
        ("bert-generation",),
        "modeling_bert_generation.py",
        classes_with_head=("BertGenerationDecoder",),
    ),
    Family(
        "Two models side by side",
        ("encoder-decoder", "vision-encoder-decoder", "speech-encoder-decoder"),
        "modeling_encoder_decoder.py: the decoder is a causal language model",
        classes_with_head=("EncoderDecoderModel", "VisionEncoderDecoderModel", "SpeechEncoderDecoderModel"),
    ),
    Family(
        "Pre-training without a language-model head",
        ("electra", "funnel", "splinter", "dia", "clvp", "higgs_audio_v2", "csm", "csm_depth_decoder_model", "pi0"),
        "ElectraForPreTraining and the like tell replaced tokens or spans, or write sound, not text",
        classes_without_head=(
            "ElectraForPreTraining", "FunnelForPreTraining", "SplinterForPreTraining", "DiaForConditionalGeneration",
            "ClvpModelForConditionalGeneration", "HiggsAudioV2ForConditionalGeneration", "CsmDepthDecoderForCausalLM",
            "PI0ForConditionalGeneration",
        ),
    ),
    # -- factors that no config states
    Family(
        "Gemma",
        (
            "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gemma4_assistant",
            "gemma4_unified", "gemma4_unified_text", "gemma4_unified_assistant", "paligemma", "shieldgemma2", "recurrent_gemma",
            "t5gemma", "t5gemma2", "t5gemma2_text", "t5gemma2_encoder", "t5gemma2_decoder", "t5_gemma_module", "vaultgemma",
            "embedding_gemma2", "embedding_gemma2_text", "diffusion_gemma", "diffusion_gemma_text",
        ),
        "modeling_gemma.py: normalizer = hidden_size ** 0.5",
        position_kinds_by_default=("rotary",),
        scale="sqrt(width)",
    ),
    Family(
        "nanochat",
        ("nanochat",),
        "modeling_nanochat.py: the row is normalised without learned numbers",
        additions=("The row is normalised (root mean square, no learned numbers).",),
    ),
    # -- tensors whose name does not tell whether they are learned
    Family(
        "ERNIE 4.5 MoE",
        ("ernie4_5_moe", "ernie4_5_vl_moe", "ernie4_5_vl_moe_text"),
        "modeling_ernie4_5_moe.py, Ernie4_5_MoeStatics: e_score_correction_bias is an nn.Parameter",
        parameters=("e_score_correction_bias",),
    ),
    Family(
        "Laguna",
        ("laguna",),
        "modeling_laguna.py: e_score_correction_bias is an nn.Parameter",
        parameters=("e_score_correction_bias",),
    ),
    Family(
        "AFMoE",
        ("afmoe",),
        "modeling_afmoe.py: expert_bias is an nn.Parameter",
        parameters=("expert_bias",),
    ),
    Family(
        "DeepSeek V4",
        ("deepseek_v4",),
        "modeling_deepseek_v4.py: the gate's bias is a buffer",
        buffers=("gate.bias",),
    ),
    Family(
        "SAM 2 and 3",
        (
            "sam2", "sam2_video", "sam3_tracker", "sam3_tracker_video", "sam3_video", "edgetam", "edgetam_video",
        ),
        "modeling_sam2.py, Sam2PositionalEmbedding: random frequencies kept in a buffer; in SAM they are a parameter",
        buffers=("shared_embedding.positional_embedding", "shared_image_embedding.positional_embedding"),
    ),
)  # fmt: skip
"""Every family that departs from the rules."""


# --- names ---------------------------------------------------------------------------------------------------

_LEAF_RANKS = {leaf: rank for rank, leaves in enumerate(INPUT_LEAVES) for leaf in leaves}
_HEAD_RANKS = {leaf: rank for rank, leaves in enumerate(OUTPUT_LEAVES) for leaf in leaves}
_GENERAL_RANK = len(INPUT_LEAVES) - 1
_TAIL = 24
"""So many of a name's last characters are looked at before the name is taken apart."""
_DIGITS = "0123456789"


class _Name(NamedTuple):
    """A tensor's name, taken apart: `h.0.attn.bias` is the leaf `bias` in the modules `h`, `0`, `attn`."""

    full: str
    modules: tuple[str, ...]
    leaf: str
    number: int | None
    """The number behind the leaf, as in `embed_tokens.0.weight`."""

    @property
    def path(self) -> str:
        """The module that the leaf is in, with its dot."""
        return ".".join(self.modules) + "." if self.modules else ""

    @property
    def last_two(self) -> str:
        """The leaf and the module around it."""
        return f"{self.modules[-1]}.{self.leaf}" if self.modules else self.leaf

    @property
    def foreign(self) -> bool:
        """Whether it lies in a tower of images or sound, in a codec, or in another helper of the text model."""
        foreign = False
        for module in self.modules:
            words = {module, *module.lower().split("_")}
            if words & TEXT_WORDS:
                foreign = False
            elif words & FOREIGN_WORDS:
                foreign = True
        return foreign

    @property
    def in_layer(self) -> bool:
        """Whether it lies inside one of the layers."""
        return any(
            here.isdigit() and before in ("layers", "layer", "h", "blocks", "block")
            for before, here in zip(self.modules, self.modules[1:], strict=False)
        )

    def ends_in(self, tails: Iterable[str]) -> bool:
        """Whether the name, without its `weight`, is or ends in one of these."""
        whole = self.path + self.leaf
        return any(whole == tail or whole.endswith("." + tail) for tail in tails)


def _split(name: str) -> _Name:
    parts = name.split(".")
    while len(parts) > 1 and parts[-1] in PARAMETER_WORDS:
        parts.pop()
    index = None
    if len(parts) > 1 and parts[-1].isdecimal():
        index = int(parts.pop()[:9])
        while len(parts) > 1 and parts[-1] in PARAMETER_WORDS:
            parts.pop()
    return _Name(name, tuple(parts[:-1]), parts[-1], index)


def _cut_tails(names: list[str]) -> list[str]:
    """The last characters of each name.

    A checkpoint has up to millions of names and few kinds of endings, so that endings are judged, once each.
    """
    return list(map(itemgetter(slice(-_TAIL, None)), names))


def _select(names: list[str], tails: list[str], leaves: frozenset[str]) -> list[_Name]:
    """The names with one of these leaves (or pairs of a module and a leaf), in the order of the file."""
    last_words = {leaf.rpartition(".")[2] for leaf in leaves}
    last_letters = {word[-3:] for word in (*last_words, *PARAMETER_WORDS)}
    wanted = set()
    for ending in set(tails):
        word = ending.removesuffix(".weight")
        if word[-1:].isdecimal() and (numbered := word.rstrip(_DIGITS)).endswith("."):
            word = numbered[:-1]
        if word.rpartition(".")[2][-3:] not in last_letters:
            continue
        split = _split(ending)
        if split.leaf in last_words or (
            not split.modules and any(w.endswith(split.leaf) for w in last_words)
        ):
            wanted.add(ending)
    found = map(_split, compress(names, map(wanted.__contains__, tails)))
    return [name for name in found if name.leaf in leaves or name.last_two in leaves]


# --- config --------------------------------------------------------------------------------------------------

_TEXT_CONFIG_KEYS = (
    "text_config", "llm_config", "language_config", "thinker_config", "vlm_config", "detector_config", "text_encoder",
    "lm_config", "language_model_config", "text_model_config", "text_encoder_config", "text_backbone_config", "text_cfg",
    "decoder", "encoder", "generator", "encoder_config", "decoder_config",
)  # fmt: skip


def nested_configs(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The config of the text model, then those around it, innermost first."""
    found = [config]
    while len(found) < 5:
        inner = next((found[0][k] for k in _TEXT_CONFIG_KEYS if isinstance(found[0].get(k), Mapping)), None)
        if inner is None:
            break
        found.insert(0, inner)
    return tuple(found)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    """A finite number, or None for whatever else a config may hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


class _Config(NamedTuple):
    """What a config says, whatever it holds."""

    nested: tuple[Mapping[str, Any], ...]

    @property
    def outer(self) -> Mapping[str, Any]:
        return self.nested[-1]

    def get(self, key: str) -> Any:
        """The value that the config nearest to the text model has; None where none has it."""
        return next((config[key] for config in self.nested if config.get(key) is not None), None)

    def first_integer(self, keys: Iterable[str]) -> int | None:
        """The first of these keys that holds a whole number, nearest to the text model first."""
        numbers = (_integer(config.get(key)) for config in self.nested for key in keys)
        return next((number for number in numbers if number is not None), None)

    @property
    def model_types(self) -> tuple[str, ...]:
        """`model_type` of the text model, then of those around it."""
        return tuple(t for t in (config.get("model_type") for config in self.nested) if isinstance(t, str))

    @property
    def class_name(self) -> str | None:
        """The class that saved the checkpoint."""
        names = self.outer.get("architectures")
        if isinstance(names, list) and names and isinstance(names[0], str):
            return names[0]
        return None

    @property
    def says_tied(self) -> bool | None:
        """What `tie_word_embeddings` says; None where it is not set."""
        for config in reversed(self.nested):
            value = config.get("tie_word_embeddings")
            if isinstance(value, bool):
                return value
        return None


def _read_config(config: Mapping[str, Any]) -> _Config:
    return _Config(nested_configs(config))


# --- which records apply -------------------------------------------------------------------------------------

_BY_MODEL_TYPE = {model_type: family for family in FAMILIES for model_type in family.model_types}
_BY_PREFIX = {prefix: family for family in FAMILIES for prefix in family.prefixes}


def _unwrap(name: str) -> str:
    """The name without the modules that frameworks wrap around a model."""
    while True:
        first, dot, rest = name.partition(".")
        if not dot or first not in WRAPPER_WORDS:
            return name
        name = rest


def _applicable(config: _Config, names: list[str]) -> tuple[Family, ...]:
    """The records of the text model and of the models around it; without config, the one that the names give away."""
    if config.model_types:
        found = (_BY_MODEL_TYPE.get(model_type) for model_type in config.model_types)
        return tuple(dict.fromkeys(family for family in found if family))
    for name in names[:1000]:
        family = _BY_PREFIX.get(_unwrap(name).partition(".")[0])
        if family:
            return (family,)
    return ()


# --- tables --------------------------------------------------------------------------------------------------


class _Evidence(NamedTuple):
    """All that a question about tables is answered from."""

    tensors: TensorSet
    config: _Config
    families: tuple[Family, ...]
    names: list[str]
    endings: set[str]
    found: list[_Name]

    @property
    def may_lack_tensors(self) -> bool:
        """Whether tensors of the model may lie elsewhere than in these files."""
        return bool(self.tensors.missing_files) or not self.config.outer

    @property
    def reads_no_text(self) -> bool:
        """Whether no table of this model is asked for the row of a token."""
        return any(family.reads_no_text for family in self.families)

    def with_leaf(self, leaves: Iterable[str]) -> Iterator[_Name]:
        """The names with one of these leaves, or pairs of module and leaf."""
        wanted = frozenset(leaves)
        return (name for name in self.found if name.leaf in wanted or name.last_two in wanted)

    def with_tail(self, tails: Iterable[str]) -> list[_Name]:
        """The names with one of these tails, in the order of the tails."""
        return [name for tail in tails for name in self.found if name.ends_in((tail,))]

    def shape(self, name: _Name) -> tuple[int, ...]:
        """The shape of this tensor."""
        return self.tensors[name.full].shape


def find_tables(tensors: TensorSet, config: Mapping[str, Any]) -> FoundTables:
    """Which tensors are the token table, the output head and the position tables of the text model?

    `config` is what config.json holds, or an empty mapping; a value of a wrong type counts as absent. No tensor
    data are read.
    """
    read = _read_config(config)
    names = tensors.names()
    families = _applicable(read, names)
    leaves = frozenset(
        (
            *_LEAF_RANKS, *_HEAD_RANKS, *BARE_LEAVES, *FURTHER_LEAVES, *POSITION_LEAVES, *RELATIVE_LEAVES, *RECURRENT_LEAVES,
            *ROPE_LEAVES,
            *(
                ".".join(tail.split(".")[-2:])
                for family in families
                for tail in (*family.input_tails, *family.output_tails, *family.position_tails)
            ),
        )
    )  # fmt: skip
    tails = _cut_tails(names)
    evidence = _Evidence(tensors, read, families, names, set(tails), _select(names, tails, leaves))
    notes: list[str] = []

    inputs, further = _rank_inputs(evidence)
    adapter = _is_adapter(evidence)
    if adapter:
        inputs, further = [], inputs + further
    best = inputs[0] if inputs else None
    head = _find_output(evidence, best) if not adapter else None
    if best is None and head and read.says_tied and not further and not tensors.missing_files:
        notes.append(f"The table that is token table and output head in one is stored as {head.full}.")
        best, head = head, None
        inputs = [best]
    tied = _judge_tied(evidence, best, head, notes)
    positions = _find_positions(evidence, best, notes)
    kinds = _judge_kinds(evidence, best, positions, notes)
    additions, scale = _find_additions(evidence, best)
    if best is None:
        notes.append(
            "The files hold an adapter, not a model: the token table is in the base model."
            if adapter
            else "No tensor looks like a token table."
        )
    return FoundTables(
        family=(read.model_types[-1:] or tuple(family.name for family in families) or ("unknown",))[0],
        input=TableChoice(tensors[best.full], "input") if best else None,
        output=TableChoice(tensors[head.full], "output") if head else None,
        tied=tied,
        positions=positions,
        position_kinds=kinds,
        candidates=tuple(tensors[name.full] for name in (*inputs[1:], *further)),
        ambiguous=_equally_good(evidence, inputs),
        adapter=adapter,
        quantised_companions=_find_companions(evidence, best),
        input_additions=additions,
        input_scale=scale,
        notes=tuple(notes),
    )


def _rank_inputs(evidence: _Evidence) -> tuple[list[_Name], list[_Name]]:
    """The tables of text ids, best first, and the other tables of ids."""
    vocabulary = evidence.config.first_integer(SIZE_KEYS)
    tails = [tail for family in evidence.families for tail in family.input_tails]
    recorded = [name for name in evidence.with_tail(tails) if len(evidence.shape(name)) == 2]
    ranked: list[tuple[tuple[bool, bool, int, bool, int], _Name]] = []
    further: list[_Name] = []
    numbered = Counter(
        (name.path, name.leaf) for name in evidence.with_leaf(_LEAF_RANKS) if name.number is not None
    )
    for name in evidence.with_leaf((*_LEAF_RANKS, *FURTHER_LEAVES)):
        if name in recorded:
            continue
        shape = evidence.shape(name)
        if len(shape) != 2:
            continue
        rank = _LEAF_RANKS.get(name.last_two, _LEAF_RANKS.get(name.leaf))
        codebook = name.leaf not in NUMBERED_LEAVES and numbered[name.path, name.leaf] > 1
        if rank is None or name.foreign or codebook or evidence.reads_no_text:
            further.append(name)
            continue
        if rank == _GENERAL_RANK:
            if shape[1] < 2 or (name.modules and NOT_A_TOKEN_TABLE.search(name.modules[-1])):
                continue
            if vocabulary is not None and shape[0] < vocabulary:
                further.append(name)
                continue
        ranked.append(((name.in_layer, bool(name.number), rank, shape[0] != vocabulary, _depth(name)), name))
    ranked.sort(key=lambda pair: pair[0])
    inputs = recorded + [name for _, name in ranked]
    if not inputs and len(evidence.names) <= 3:
        inputs = [
            name
            for name in evidence.with_leaf(BARE_LEAVES)
            if not name.modules and len(shape := evidence.shape(name)) == 2 and shape[0] > shape[1]
        ]
    return inputs, further


def _depth(name: _Name) -> int:
    """Encoders before decoders, else as in the file."""
    return 1 if any("decoder" in module for module in name.modules) else 0


def _equally_good(evidence: _Evidence, inputs: list[_Name]) -> tuple[TensorEntry, ...]:
    """The input tables of which any could be meant: the same leaf in sister modules, and nothing that ranks them."""
    if not inputs or inputs[0].ends_in(tail for family in evidence.families for tail in family.input_tails):
        return ()
    best = inputs[0]
    same = [
        name
        for name in inputs
        if name.leaf == best.leaf
        and name.in_layer == best.in_layer
        and bool(name.number) == bool(best.number)
    ]
    return tuple(evidence.tensors[name.full] for name in same) if len(same) > 1 else ()


def _find_output(evidence: _Evidence, best: _Name | None) -> _Name | None:
    """The output head that is a tensor of its own."""
    sizes = {evidence.config.first_integer(SIZE_KEYS)}
    if best:
        sizes.add(evidence.shape(best)[0])
    tails = [tail for family in evidence.families for tail in family.output_tails]
    for name in evidence.with_tail(tails):
        if len(evidence.shape(name)) == 2:
            return name
    if best is None and evidence.config.class_name and not HEAD_CLASSES.search(evidence.config.class_name):
        return None
    ranked: list[tuple[tuple[bool, int, bool], _Name]] = []
    for name in evidence.with_leaf(_HEAD_RANKS):
        shape = evidence.shape(name)
        if len(shape) != 2 or name.foreign or name == best:
            continue
        rank = min(_HEAD_RANKS.get(name.leaf, 9), _HEAD_RANKS.get(name.last_two, 9))
        if rank == 0 or (best and shape[0] in sizes):
            ranked.append(((name.in_layer, rank, shape[0] not in sizes), name))
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _judge_tied(evidence: _Evidence, best: _Name | None, head: _Name | None, notes: list[str]) -> bool | None:
    """Whether the token table is the output head too."""
    says_tied = evidence.config.says_tied
    if head is not None:
        if says_tied and best is not None:
            notes.append(
                f"config.json says that the output head is tied to the token table; the file holds {head.full}. "
                "The file decides: only its values tell whether they are equal."
            )
        return False
    if best is None:
        return None
    other_names = [other for other, listed in evidence.tensors.aliases.items() if listed == best.full]
    if any(_split(other).leaf in _HEAD_RANKS for other in other_names):
        return True
    class_name = evidence.config.class_name
    if class_name is not None:
        if any(class_name in family.classes_without_head for family in evidence.families):
            return None
        if any(class_name in family.classes_with_head for family in evidence.families) or HEAD_CLASSES.search(
            class_name
        ):
            if says_tied is False:
                notes.append(
                    "config.json says that the output head is not tied to the token table, and the file holds no head: "
                    "taken as tied."
                )
            return True
        return None
    if says_tied:
        return True
    roots = _roots(evidence.names)
    if _has_remains(evidence.names, roots) or (len(roots) == 1 and roots <= BASE_MODULES and best.modules):
        notes.append(
            "No config names the class of the model: that its output head is tied is told from the names alone."
        )
        return True
    if evidence.config.outer and says_tied is None and roots & GENERATIVE_ROOTS:
        notes.append(
            "config.json does not say whether the output head is tied; the file holds none: taken as tied."
        )
        return True
    notes.append("The file holds no output head, and nothing tells whether the model has one.")
    return None


def _roots(names: list[str]) -> set[str]:
    """The modules at the root of the model, whatever it is wrapped in."""
    # Most names share the root of one or two of them: they need not be taken apart.
    usual = tuple({_first_word(name) for name in (*names[:1], *names[-1:])})
    roots = {word.removesuffix(".") for word in usual} if usual else set()
    roots |= {name.partition(".")[0] for name in names if not name.startswith(usual)}
    if roots & WRAPPER_WORDS:
        roots = {_unwrap(name).partition(".")[0] for name in names}
    return roots


def _first_word(name: str) -> str:
    """The module at the root of a name, with its dot; the whole name where there is none."""
    return "".join(name.partition(".")[:2])


def _has_remains(names: list[str], roots: set[str]) -> bool:
    """Whether the file holds what belongs to an output head and not to the tied matrix itself."""
    return bool(roots & REMAINS_ROOTS) and any(HEAD_REMAINS.match(_unwrap(name)) for name in names)


def _find_positions(evidence: _Evidence, best: _Name | None, notes: list[str]) -> tuple[TableChoice, ...]:
    """The tables of absolute positions that belong to the text model."""
    tails = [tail for family in evidence.families for tail in family.position_tails]
    fixed = any(family.fixed_positions for family in evidence.families) or any(
        evidence.config.get(key) is True for key in SINUSOID_KEYS
    )
    chosen = [name for name in evidence.found if name.ends_in(tails)]
    kinds = next((family.position_kinds for family in evidence.families if family.position_kinds), None)
    if (
        not chosen
        and (kinds is None or set(kinds) & {"learned", "sinusoidal"})
        and not evidence.reads_no_text
    ):
        for name in evidence.with_leaf(POSITION_LEAVES):
            shape = evidence.shape(name)
            if (
                not (len(shape) == 2 or (len(shape) in (3, 4) and set(shape[:-2]) == {1}))
                or min(shape[-2:]) < 2
            ):
                continue
            if (
                name.foreign
                or name.in_layer
                or any(name.path + s in evidence.tensors for s in IMAGE_SIBLINGS)
            ):
                continue
            if best is None and not (name.leaf in ("wpe", "positions_embed") and evidence.may_lack_tensors):
                continue
            chosen.append(name)
    return tuple(
        TableChoice(
            evidence.tensors[name.full],
            "position",
            first_used_row=_first_row(evidence, name, notes),
            kind="sinusoidal" if fixed else "learned",
        )
        for name in chosen
    )


def _first_row(evidence: _Evidence, name: _Name, notes: list[str]) -> int:
    """The row of the first position, with a note where rows come before it or their number is not the config's."""
    shape = evidence.shape(name)
    rows = shape[-2]
    stated = (_integer(config.get(key)) for config in evidence.config.nested for key in LENGTH_KEYS)
    lengths = {length for length in stated if length is not None}
    first = _look_up_first_row(evidence, name)
    if first is None:
        first = _guess_first_row(rows, lengths)
        told = ", as their number tells"
    else:
        told = ""
    if first:
        notes.append(
            f"Position p is row p + {first} of {name.full}: the first rows stand for no position{told}."
        )
    if lengths and not lengths & {rows, rows - first} and len(shape) == 2:
        said = " or ".join(f"{length:,}" for length in sorted(lengths))
        notes.append(f"{name.full} has {rows:,} rows; config.json says {said} positions.")
    return first


def _look_up_first_row(evidence: _Evidence, name: _Name) -> int | None:
    """The row of the first position as a record has it."""
    if "entity_embeddings" in name.modules:
        return 0
    for family in evidence.families:
        if family.rows_follow_padding:
            padding = evidence.config.first_integer(("pad_token_id",))
            return (padding if padding is not None and 0 <= padding < evidence.shape(name)[-2] - 1 else 1) + 1
        if family.first_used_row is not None:
            return family.first_used_row
    return None


def _guess_first_row(rows: int, lengths: set[int]) -> int:
    """The row of the first position, from the number of rows: lengths are round numbers, and two rows more are reserved."""
    length = rows - 2
    if length in lengths:
        return 2 if rows not in lengths else 0
    round_number = length >= 64 and length & (length - 1) == 0
    return 2 if round_number and (not lengths or rows in lengths) else 0


def _judge_kinds(
    evidence: _Evidence, best: _Name | None, positions: tuple[TableChoice, ...], notes: list[str]
) -> tuple[PositionKind, ...]:
    """How the text model knows the place of a token."""
    if best is None and not positions:
        return ()
    for family in evidence.families:
        if family.position_kinds:
            return family.position_kinds
    config = evidence.config
    named = config.get("position_embedding_type")
    if isinstance(named, str) and named in NAMED_KINDS:
        return NAMED_KINDS[named]
    kinds: list[PositionKind] = [table.kind for table in positions[:1]]
    if any(not name.foreign for name in evidence.with_leaf(RELATIVE_LEAVES)):
        kinds.append("relative")
    if kinds:
        return tuple(kinds)
    attention = config.get("attn_config")
    alibi = config.get("alibi") or (attention.get("alibi") if isinstance(attention, Mapping) else None)
    if alibi is True:
        return ("alibi",)
    switched_off = any(config.get(key) is False for key in ROPE_SWITCHES)
    if not switched_off and any(_present(inner.get(key)) for inner in config.nested for key in ROPE_KEYS):
        return ("rotary",)
    if any(not name.foreign for name in evidence.with_leaf(ROPE_LEAVES)):
        return ("rotary",)
    for family in evidence.families:
        if family.position_kinds_by_default:
            return family.position_kinds_by_default
    if any(not name.foreign for name in evidence.with_leaf(RECURRENT_LEAVES)):
        return ("none",)
    notes.append("Neither config nor tensors tell which kind of positions the model uses.")
    return ()


def _present(value: object) -> bool:
    """Whether a key of the config is set to something."""
    return value is not None and value is not False and value != 0 and value != {}


def _find_additions(evidence: _Evidence, best: _Name | None) -> tuple[tuple[str, ...], float | None]:
    """What is done to a token row before the first layer, and the number it is multiplied by."""
    if best is None:
        return (), None
    said: list[str] = []
    width = evidence.shape(best)[1]
    scale: float | None = None
    for family in evidence.families:
        if family.scale == "sqrt(width)":
            scale = math.sqrt(width)
            said.append(f"The token row is multiplied by sqrt({width}) = {scale:.6g}.")
        said += family.additions
    if scale is None:
        for key in SQUARE_ROOT_KEYS:
            if evidence.config.get(key) is True:
                scale = math.sqrt(width)
                said.append(f"The token row is multiplied by sqrt({width}) = {scale:.6g} ({key}).")
                break
        for key in FACTOR_KEYS:
            factor = _number(evidence.config.get(key))
            if scale is None and factor is not None and factor != 1:
                scale = factor
                said.append(f"The token row is multiplied by {factor:.6g} ({key}).")
    parents = {best.path, *(".".join((*best.modules[:-n], "")) for n in (1, 2) if len(best.modules) > n)}
    if len(best.modules) <= 2:
        parents.add("")
    beside = best.modules[-1:] and "emb" in best.modules[-1]
    for leaf, sentence in ADDITIONS.items():
        if leaf == "embeddings_project" and beside:
            said += _find_norm(evidence, best)
        if any(f"{parent}{leaf}.weight" in evidence.tensors for parent in parents):
            said.append(sentence)
    return tuple(dict.fromkeys(said)), scale


def _find_norm(evidence: _Evidence, best: _Name) -> list[str]:
    """The norm that lies beside the token table in its module."""
    numbers = (f"{best.path}{norm}.{part}" for norm in NORMS_OF_EMBEDDINGS for part in ("weight", "gamma"))
    found = any(name in evidence.tensors for name in numbers)
    return ["The sum is normalised."] if found else []


def _is_adapter(evidence: _Evidence) -> bool:
    """Whether the files hold the factors of an adapter, and perhaps copies of whole tensors, but no model."""
    if "peft_type" in evidence.config.outer:
        return True
    if not any("lora" in tail for tail in evidence.endings):
        return False
    return all("lora" in name or name.startswith("base_model.") for name in evidence.names)


def _find_companions(evidence: _Evidence, best: _Name | None) -> tuple[str, ...]:
    """Tensors that say how the packed or scaled numbers of the input table are to be read."""
    if best is None:
        return ()
    module = f"{best.path}{best.leaf}"
    names = (f"{module}.{leaf}" for leaf in COMPANION_LEAVES)
    return tuple(name for name in names if name in evidence.tensors and name != best.full)


# --- buffers -------------------------------------------------------------------------------------------------


class JudgedBuffers(NamedTuple):
    """The tensors that are no parameters, and what the judgement hangs on."""

    buffers: tuple[Buffer, ...]
    notes: tuple[str, ...]


def find_buffers(tensors: TensorSet, config: Mapping[str, Any]) -> tuple[Buffer, ...]:
    """Which tensors in the files are no parameters?"""
    return judge_buffers(tensors, config).buffers


def judge_buffers(tensors: TensorSet, config: Mapping[str, Any]) -> JudgedBuffers:
    """Which tensors in the files are no parameters, and where does nothing on record tell?

    Masks, row numbers, computed frequencies, running statistics, expert-balancing biases and the like. Tables of
    sinusoids count as parameters, as they do in the library that writes them, unless a record says otherwise.
    """
    read = _read_config(config)
    names = tensors.names()
    families = _applicable(read, names)
    kept = tuple(tail for family in families for tail in family.parameters)
    recorded = tuple(tail for family in families for tail in family.buffers)
    leaves = frozenset(
        (*BUFFER_LEAVES, *MASK_LEAVES, *DOUBTFUL, *(".".join(tail.split(".")[-2:]) for tail in recorded))
    )
    reasons: dict[str, str] = {}
    doubts: dict[str, list[str]] = {}
    tails = _cut_tails(names)
    for name in _select(names, tails, leaves):
        shape = tensors[name.full].shape
        for leaf in (name.last_two, name.leaf):
            if leaf in DOUBTFUL and not set(read.model_types) & set(DOUBTFUL[leaf]):
                doubts.setdefault(leaf, []).append(name.full)
        reason = BUFFER_LEAVES.get(name.leaf) or BUFFER_LEAVES.get(name.last_two)
        if name.ends_in(recorded):
            reasons[name.full] = reason or "kept beside the parameters in this family"
        elif name.ends_in(kept):
            continue
        elif reason and (name.leaf not in BALANCING_LEAVES or len(shape) == 1):
            reasons[name.full] = reason
        elif name.last_two in MASK_LEAVES and len(shape) >= 2 and shape[-1] == shape[-2]:
            reasons[name.full] = "causal mask"
        if name.leaf == "running_var" and f"{name.path}num_batches_tracked" not in tensors:
            for part in ("weight", "bias"):
                if (other := name.path + part) in tensors:
                    reasons[other] = "frozen batch normalisation"
    one_of_each = {
        ending.rstrip(_DIGITS): name for ending, name in dict(zip(tails, names, strict=True)).items()
    }
    whole = {
        ending
        for ending, one in one_of_each.items()
        if ending.rpartition(".")[2] not in QUANTISED_INTEGERS
        and tensors[one].encoding.name in INTEGERS_NEVER_LEARNED
    }
    if whole:
        for one, tail in zip(names, tails, strict=True):
            if tail.rstrip(_DIGITS) in whole and tensors[one].encoding.name in INTEGERS_NEVER_LEARNED:
                reasons.setdefault(one, "whole numbers, not learned")
    notes = tuple(_doubt(leaf, found, found[0] in reasons) for leaf, found in doubts.items())
    return JudgedBuffers(tuple(Buffer(tensors[name], reason) for name, reason in reasons.items()), notes)


def _doubt(leaf: str, found: list[str], buffers: bool) -> str:
    if len(found) == 1:
        return (
            f"{found[0]} is counted as a {'buffer' if buffers else 'parameter'}: in some families a tensor of this name "
            "is the one, in some the other, and nothing on record tells about this one."
        )
    return (
        f"{len(found):,} tensors {leaf} are counted as {'buffers' if buffers else 'parameters'}: in some families tensors "
        "of this name are the one, in some the other, and nothing on record tells about this one."
    )
