"""The ledger of parameters, held against transformers, the zoo, and small files whose sums are known by hand."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import index, random_table, safetensors, write, write_checkpoint

from inspect_embed import open_checkpoint, params
from inspect_embed.analyses.params import WAYS, Params, params_side_by_side
from inspect_embed.outputs import csv, markdown, text
from inspect_embed.outputs import json as json_output

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U32": 4, "U8": 1, "BOOL": 1, "F8_E4M3": 1}
GPT2 = 124_439_808


def hollow(
    folder: Path,
    shapes: Mapping[str, Sequence[int]],
    config: Mapping[str, Any] | None = None,
    code: str = "F32",
    codes: Mapping[str, str] | None = None,
) -> Path:
    """A checkpoint whose header is real and whose data are a hole of zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        kind = (codes or {}).get(name, code)
        start, end = end, end + SIZES[kind] * math.prod(shape)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
    (folder / "config.json").write_text(json.dumps(dict(config or {})))
    return folder


def gpt2_shapes(
    masks: bool, d: int = 768, layers: int = 12, vocabulary: int = 50257, places: int = 1024
) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (vocabulary, d), "wpe.weight": (places, d)}
    for layer in range(layers):
        h = f"h.{layer}"
        if masks:
            shapes[f"{h}.attn.bias"] = (1, 1, places, places)
        for name, shape in {
            "attn.c_attn": (d, 3 * d),
            "attn.c_proj": (d, d),
            "mlp.c_fc": (d, 4 * d),
            "mlp.c_proj": (4 * d, d),
        }.items():
            shapes[f"{h}.{name}.weight"], shapes[f"{h}.{name}.bias"] = shape, shape[1:]
        for name in ("ln_1", "ln_2"):
            shapes[f"{h}.{name}.weight"] = shapes[f"{h}.{name}.bias"] = (d,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (d,)
    return shapes


GPT2_CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 1024}


def count(folder: Path, **options: Any) -> Params:
    found = params(open_checkpoint(folder), **options)
    check(found)
    return found


def check(found: Params) -> None:
    """What holds for every ledger."""
    buffers = sum(buffer.elements for buffer in found.buffers)
    copies = sum(copy.elements for copy in found.tied_copies)
    assert (
        found.parameters == found.stored_elements - buffers - copies - found.packed_elements + found.unpacked
    )
    assert sum(part.parameters for part in found.parts) == found.parameters
    if found.parameters:
        assert math.isclose(sum(part.share for part in found.parts), 1)
        rest = [part for part in found.parts if part.share_without_embeddings is not None]
        assert sum(part.parameters for part in rest) == found.parameters_without_embeddings
    if found.by != "part":
        assert sum(group.parameters for group in found.groups) == found.parameters


def part(found: Params, name: str) -> int:
    return sum(item.parameters for item in found.parts if item.part == name)


def share(found: Params, name: str) -> float:
    (value,) = (item.share for item in found.parts if item.part == name)
    return round(100 * value, 2)


# --- the zoo -------------------------------------------------------------------------------------------------


def miscounted(architectures: Path, folder: Path) -> tuple[list[str], int]:
    """The architectures whose count or buffers are not the truth's, and how many there are."""
    wrong: list[str] = []
    n_entries = 0
    with gzip.open(architectures, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            truth = entry["truth"]
            n_entries += 1
            shapes = {name: shape for name, (_, shape) in entry["tensors"].items()}
            codes = {name: code for name, (code, _) in entry["tensors"].items()}
            # The data are holes of zeros, where equal values say nothing.
            found = count(hollow(folder, shapes, entry["config"], codes=codes), headers_only=True)
            buffers = sorted(buffer.tensor for buffer in found.buffers)
            if (found.parameters, buffers) != (
                truth["parameters"],
                sorted(truth["buffers"]),
            ) or found.partial:
                wrong.append(entry["name"])
            table = truth["token_table"]
            if table not in truth["buffers"]:
                assert part(found, "token table") == (math.prod(shapes[table]) if table else 0), entry["name"]
    return wrong, n_entries


def test_every_architecture_of_the_zoo_is_counted_exactly(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, n_entries = miscounted(shared / "zoo" / "zoo.jsonl.gz", tmp_path)
    with capsys.disabled():
        print(f"\nzoo: {n_entries - len(wrong)} of {n_entries} counted exactly, buffers and all")
    assert n_entries == 440
    assert not wrong


def test_further_architectures_are_counted_exactly(tmp_path: Path) -> None:
    wrong, n_entries = miscounted(
        Path(__file__).parents[1] / "data" / "more_architectures.jsonl.gz", tmp_path
    )
    assert n_entries > 500
    assert not wrong


# --- GPT-2, the toy, and others of which the sums are known --------------------------------------------------


def test_gpt2_as_on_the_hub(tmp_path: Path) -> None:
    found = count(hollow(tmp_path, gpt2_shapes(masks=True), GPT2_CONFIG))
    assert found.stored_elements == 137_022_720
    assert found.parameters == GPT2
    assert len(found.buffers) == 12
    assert sum(buffer.elements for buffer in found.buffers) == 12_582_912
    assert share(found, "token table") == 31.02
    assert share(found, "position table") == 0.63
    assert part(found, "attention") == 28_348_416
    assert part(found, "feed-forward") == 56_669_184
    assert part(found, "norms") == 38_400
    assert [item.part for item in found.parts] == [
        "token table",
        "position table",
        "attention",
        "feed-forward",
        "norms",
    ]
    assert found.parts[0].bytes == 4 * 38_597_376
    assert found.active_parameters is None
    assert not found.partial


def test_gpt2_without_masks(tmp_path: Path) -> None:
    found = count(hollow(tmp_path, gpt2_shapes(masks=False), GPT2_CONFIG))
    assert (found.parameters, found.buffers) == (GPT2, ())
    assert share(found, "token table") == 31.02


def test_gpt2_with_its_tied_head_stored_twice(tmp_path: Path) -> None:
    # The tables are holes of zeros, equal by nature: what is tested is that equal bytes count once.
    shapes = {f"transformer.{name}": shape for name, shape in gpt2_shapes(masks=False).items()}
    folder = hollow(tmp_path, {**shapes, "lm_head.weight": (50257, 768)}, GPT2_CONFIG)
    found = count(folder)
    assert found.stored_elements == 163_037_184
    assert found.parameters == GPT2
    assert share(found, "token table") == 31.02
    ((name, same_as),) = [(copy.tensor, copy.same_as) for copy in found.tied_copies]
    assert (name, same_as) == ("lm_head.weight", "transformer.wte.weight")
    assert any("all zeros" in note for note in found.notes)
    apart = count(folder, headers_only=True)
    assert apart.parameters == 163_037_184
    assert any("--headers-only" in note and "lm_head.weight" in note for note in apart.notes)


def test_the_toy_by_its_shapes(tmp_path: Path) -> None:
    shapes = gpt2_shapes(masks=False, d=128, layers=4, vocabulary=4096, places=128)
    found = count(hollow(tmp_path, {f"transformer.{n}": s for n, s in shapes.items()}, GPT2_CONFIG))
    assert found.parameters == 1_334_016
    assert part(found, "token table") == 524_288
    assert part(found, "position table") == 16_384
    assert round(100 * found.parts[0].share, 1) == 39.3


def test_the_toy_as_shipped() -> None:
    folder = Path(__file__).parents[2] / "checkpoints" / "toy"
    if not folder.is_dir():
        pytest.skip("checkpoints/toy is not here")
    found = count(folder)
    assert found.parameters == 1_334_016
    assert round(100 * found.parts[0].share, 1) == 39.3


def test_a_mixture_of_experts_as_published(tmp_path: Path) -> None:
    """Mixtral 8x7B: 46.7 billion parameters, of which 12.9 billion see a token."""
    d, ff, vocabulary, key_value = 4096, 14336, 32000, 1024
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary, d),
        "lm_head.weight": (vocabulary, d),
    }
    for layer in range(32):
        path = f"model.layers.{layer}"
        attention = {"q": (d, d), "k": (key_value, d), "v": (key_value, d), "o": (d, d)}
        shapes |= {f"{path}.self_attn.{name}_proj.weight": shape for name, shape in attention.items()}
        shapes |= {f"{path}.{name}_layernorm.weight": (d,) for name in ("input", "post_attention")}
        shapes[f"{path}.block_sparse_moe.gate.weight"] = (8, d)
        for expert in range(8):
            for name, shape in {"w1": (ff, d), "w2": (d, ff), "w3": (ff, d)}.items():
                shapes[f"{path}.block_sparse_moe.experts.{expert}.{name}.weight"] = shape
    shapes["model.norm.weight"] = (d,)
    config = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    found = count(hollow(tmp_path, shapes, config, code="BF16"), headers_only=True)
    assert found.parameters == 46_702_792_704
    assert found.active_parameters == 12_879_925_248
    assert part(found, "experts") == 32 * 8 * 3 * d * ff
    assert part(found, "other: routers") == 32 * 8 * d


# --- against transformers ------------------------------------------------------------------------------------


def small(model_type: str) -> dict[str, Any]:
    common = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 99,
    }
    experts = {**common, "num_key_value_heads": 2, "num_experts_per_tok": 2}
    return {
        "albert": {**common, "embedding_size": 16},
        "t5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99},
        "mixtral": {**experts, "num_local_experts": 8},
        "qwen2_moe": {
            **experts, "num_experts": 8, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 40,
        },
    }.get(model_type, common)  # fmt: skip


@pytest.fixture(scope="module")
def transformers() -> Any:
    pytest.importorskip("torch")
    return pytest.importorskip("transformers")


def make(transformers: Any, class_name: str, model_type: str, options: Mapping[str, Any]) -> Any:
    config = transformers.AutoConfig.for_model(model_type, **options)
    return getattr(transformers, class_name)(config)


@pytest.mark.parametrize(
    ("class_name", "model_type"),
    [
        ("BertForMaskedLM", "bert"),
        ("BertModel", "bert"),
        ("AlbertForMaskedLM", "albert"),
        ("T5ForConditionalGeneration", "t5"),
        ("LlamaForCausalLM", "llama"),
        ("MixtralForCausalLM", "mixtral"),
        ("Qwen2MoeForCausalLM", "qwen2_moe"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_transformers_counts_the_same(
    transformers: Any, tmp_path: Path, class_name: str, model_type: str
) -> None:
    model = make(transformers, class_name, model_type, small(model_type))
    model.save_pretrained(tmp_path)
    found = count(tmp_path)
    assert found.parameters == model.num_parameters()
    assert part(found, "token table") == model.get_input_embeddings().weight.numel()


@pytest.mark.filterwarnings("ignore")
def test_bert_base_in_full_size(transformers: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = make(transformers, "BertModel", "bert", {})
    found = count(
        hollow(
            tmp_path, {name: tuple(p.shape) for name, p in model.named_parameters()}, {"model_type": "bert"}
        )
    )
    assert found.parameters == model.num_parameters() == 109_482_240
    assert found.parameters_without_embeddings == model.num_parameters(exclude_embeddings=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("class_name", "model_type"), [("MixtralForCausalLM", "mixtral"), ("Qwen2MoeForCausalLM", "qwen2_moe")]
)
def test_active_parameters_are_those_of_the_model_with_only_the_chosen_experts(
    transformers: Any, tmp_path: Path, class_name: str, model_type: str
) -> None:
    options = small(model_type)
    (key,) = {"num_local_experts", "num_experts"} & options.keys()
    make(transformers, class_name, model_type, options).save_pretrained(tmp_path)
    found = count(tmp_path)
    chosen = make(transformers, class_name, model_type, {**options, key: options["num_experts_per_tok"]})
    # The router of the smaller model has a row for each of its experts; all rows of the true one are active.
    rows_gone = options[key] - options["num_experts_per_tok"]
    routers = rows_gone * options["hidden_size"] * options["num_hidden_layers"]
    assert found.active_parameters == chosen.num_parameters() + routers
    assert f"2 of {options[key]} experts" in " ".join(found.notes)


# --- buffers, ties, positions --------------------------------------------------------------------------------


def test_masks_are_no_parameters_and_biases_are(tmp_path: Path) -> None:
    shapes = {
        "wte.weight": (10, 4),
        "wpe.weight": (8, 4),
        "h.0.attn.bias": (1, 1, 8, 8),
        "h.0.attn.c_attn.bias": (12,),
    }
    found = count(hollow(tmp_path, shapes, {"model_type": "gpt2"}))
    assert found.parameters == 84
    assert [(buffer.tensor, buffer.elements) for buffer in found.buffers] == [("h.0.attn.bias", 64)]
    shown = text.render(found.report())
    assert "h.0.attn.bias (1, 1, 8, 8)" in shown


def test_many_kinds_of_buffers_are_all_listed(tmp_path: Path) -> None:
    shapes = {
        "wte.weight": (10, 4),
        "h.0.attn.bias": (1, 1, 8, 8),
        "h.1.attn.bias": (1, 1, 8, 8),
        "h.0.attn.masked_bias": (),
    }
    shown = text.render(
        count(hollow(tmp_path, {**shapes, "rotary.inv_freq": (16,)}, {"model_type": "gpt2"})).report()
    )
    assert "2  h.N.attn.bias" in shown
    assert "1  h.0.attn.masked_bias" in shown
    assert "1  rotary.inv_freq" in shown


def tables(head: Any = None) -> dict[str, Any]:
    table = random_table(600, 8)
    return {"transformer.wte.weight": table, **({} if head is None else {"lm_head.weight": head})}


def test_a_head_with_the_same_values_counts_once(tmp_path: Path) -> None:
    found = count(
        write_checkpoint(tmp_path, tables(random_table(600, 8)), {**GPT2_CONFIG, "tie_word_embeddings": True})
    )
    assert found.parameters == 4800
    assert [(copy.tensor, copy.elements) for copy in found.tied_copies] == [("lm_head.weight", 4800)]
    assert "same values" in text.render(found.report())
    assert part(found, "output head") == 0


@pytest.mark.parametrize("place", [0, 599])
def test_a_head_that_differs_in_one_value_counts_in_full_and_contradicts_a_config(
    tmp_path: Path, place: int
) -> None:
    head = random_table(600, 8)
    head[place, -1] += 1
    opened = open_checkpoint(
        write_checkpoint(tmp_path, tables(head), {**GPT2_CONFIG, "tie_word_embeddings": True})
    )
    found = params(opened)
    check(found)
    assert found.parameters == 9600
    assert part(found, "output head") == 4800
    assert found.tied_copies == ()
    assert any("lm_head.weight" in warning and "tied" in warning for warning in opened.warnings)


def test_an_absent_head_that_is_tied_is_normal(tmp_path: Path) -> None:
    opened = open_checkpoint(
        write_checkpoint(tmp_path, tables(), {**GPT2_CONFIG, "tie_word_embeddings": True})
    )
    found = params(opened)
    assert found.parameters == 4800
    assert opened.warnings == []
    assert any("tied" in note for note in found.notes)


def test_comparing_reads_no_further_than_the_first_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = random_table(100_000, 8, seed=1)
    opened = open_checkpoint(
        write_checkpoint(
            tmp_path, {"transformer.wte.weight": random_table(100_000, 8), "lm_head.weight": head}
        )
    )
    read: list[int] = []
    original = type(opened.tensors).read

    def watch(self: Any, entry: Any, start: int, stop: int) -> memoryview:
        read.append(stop)
        return original(self, entry, start, stop)

    monkeypatch.setattr(type(opened.tensors), "read", watch)
    assert params(opened).parameters == 1_600_000
    assert max(read) <= 4096
    read.clear()
    params(opened, headers_only=True)
    assert read == []


def test_a_rotary_model_has_no_position_table(tmp_path: Path) -> None:
    shapes = {
        "model.embed_tokens.weight": (10, 4),
        "model.layers.0.self_attn.q_proj.weight": (4, 4),
        "lm_head.weight": (10, 4),
    }
    found = count(hollow(tmp_path, shapes, {"model_type": "llama", "rope_theta": 1e4}), headers_only=True)
    assert part(found, "position table") == 0
    assert "position table" in [item.part for item in found.parts]
    assert "No position table: positions are rotary." in found.notes
    assert part(found, "output head") == 40


def test_the_rows_of_a_position_table_are_those_of_the_tensor(tmp_path: Path) -> None:
    shapes = {"wte.weight": (10, 4), "wpe.weight": (9, 4), "h.0.ln_1.weight": (4,)}
    found = count(hollow(tmp_path, shapes, {"model_type": "gpt2", "n_positions": 8}))
    assert part(found, "position table") == 36
    assert any("wpe" in note and "9" in note and "8" in note for note in found.notes)


def test_another_tensor_can_be_taken_as_the_token_table(tmp_path: Path) -> None:
    found = count(hollow(tmp_path, {"wte.weight": (10, 4), "codes.weight": (7, 4)}), tensor="codes.weight")
    assert part(found, "token table") == 28
    assert found.parameters == 68


# --- quantised data ------------------------------------------------------------------------------------------


def mlx_file(tmp_path: Path, config: Mapping[str, Any]) -> Path:
    tensors = {"q.weight": np.zeros((4, 8), np.uint32), "q.scales": np.ones((4, 1), np.float16)}
    return write_checkpoint(tmp_path, tensors, config)


@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
def test_words_of_which_the_bits_are_known_count_as_what_they_stand_for(tmp_path: Path, key: str) -> None:
    found = count(mlx_file(tmp_path, {key: {"bits": 4, "group_size": 64}}))
    assert found.parameters == 256
    assert found.stored_elements == 36
    assert found.unpacked == 220
    assert not found.partial
    assert "scales" in found.quantisation


def test_bits_are_told_by_the_shapes_layer_by_layer(tmp_path: Path) -> None:
    tensors = {
        "a.weight": np.zeros((4, 16), np.uint32), "a.scales": np.ones((4, 1), np.float16), "a.biases": np.ones((4, 1), np.float16),
        "b.weight": np.zeros((4, 24), np.uint32), "b.scales": np.ones((4, 4), np.float16), "b.biases": np.ones((4, 4), np.float16),
        "norm.weight": np.ones(5, np.float16),
    }  # fmt: skip
    config = {"quantization": {"bits": 4, "group_size": 64, "b": {"bits": 6, "group_size": 32}}}
    found = count(write_checkpoint(tmp_path, tensors, config))
    assert found.parameters == 4 * 64 + 4 * 128 + 5  # 8 bits in groups of 64; 6 bits in groups of 32
    assert count(tmp_path, by="tensor").groups[0].group == "a.weight"


def test_packing_that_is_not_known_is_never_counted_as_it_lies(tmp_path: Path) -> None:
    tensors = {
        "embed.weight": random_table(10, 4),
        "q.qweight": np.zeros((4, 8), np.int32), "q.qzeros": np.zeros((1, 1), np.int32), "q.scales": np.ones((1, 8), np.float16),
        "q.g_idx": np.zeros(32, np.int32), "q.bias": np.ones(8, np.float16),
    }  # fmt: skip
    found = count(
        write_checkpoint(tmp_path, tensors, {"quantization_config": {"quant_method": "unheard_of"}})
    )
    assert found.partial
    assert found.parameters == 48
    assert found.packed_elements == 32 + 1 + 8 + 32
    assert found.packed_tensors == ("q.qweight",)
    shown = text.render(found.report())
    assert "stored elements, packed" in shown
    assert "partial" in shown


def test_8_bit_floats_count_as_they_lie_and_their_scales_do_not(tmp_path: Path) -> None:
    shapes = {"embed.weight": (10, 4), "q.weight": (128, 128), "q.weight_scale_inv": (1, 1)}
    found = count(hollow(tmp_path, shapes, {}, codes={"q.weight": "F8_E4M3"}))
    assert found.parameters == 40 + 128 * 128
    assert found.unpacked == -1
    assert not found.partial


def test_bytes_with_row_scales_count_one_each(tmp_path: Path) -> None:
    tensors = {
        "q.weight": np.ones((4, 6), np.int8),
        "q.SCB": np.ones(4, np.float32),
        "q.weight_format": np.zeros((), np.uint8),
    }
    assert count(write_checkpoint(tmp_path, tensors)).parameters == 24


def test_whole_numbers_that_are_no_weights_are_buffers(tmp_path: Path) -> None:
    found = count(
        write_checkpoint(tmp_path, {"embed.weight": random_table(5, 2), "step": np.zeros((), np.int32)})
    )
    assert found.parameters == 10
    assert [buffer.tensor for buffer in found.buffers] == ["step"]


# --- shards and indices --------------------------------------------------------------------------------------


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def test_a_missing_shard_makes_the_total_partial_and_is_named(tmp_path: Path) -> None:
    files = {
        FIRST: safetensors({"wte.weight": random_table(10, 4)}),
        "model.safetensors.index.json": index(
            {"wte.weight": FIRST, "h.0.attn.c_attn.weight": SECOND, "h.1.attn.c_attn.weight": SECOND}
        ),
        "config.json": {"model_type": "gpt2"},
    }
    found = count(write(tmp_path, files))
    assert found.partial
    assert found.parameters == 40
    assert found.missing_files == (SECOND,)
    shown = text.render(found.report())
    assert "partial" in shown
    assert SECOND in shown
    assert "2 tensors: h.N.attn.c_attn.weight" in shown


def test_a_second_copy_of_the_model_is_not_counted(tmp_path: Path) -> None:
    table, layer = random_table(10, 4), random_table(4, 4)
    files = {
        FIRST: safetensors({"wte.weight": table}),
        SECOND: safetensors({"h.0.mlp.c_fc.weight": layer}),
        "model.safetensors.index.json": index({"wte.weight": FIRST, "h.0.mlp.c_fc.weight": SECOND}),
        "consolidated.safetensors": safetensors(
            {"tok_embeddings.weight": table, "layers.0.feed_forward.w1.weight": layer}
        ),
    }
    found = count(write(tmp_path, files))
    assert found.parameters == 56
    assert any("consolidated.safetensors" in note for note in found.notes)


def test_what_an_index_states_is_checked_and_never_used(tmp_path: Path) -> None:
    weight_map = {"wte.weight": FIRST}
    stated = {"metadata": {"total_size": 7, "total_parameters": 8}, "weight_map": weight_map}
    files: dict[str, Any] = {
        FIRST: safetensors({"wte.weight": random_table(10, 4)}),
        "model.safetensors.index.json": stated,
    }
    found = count(write(tmp_path, files))
    assert found.parameters == 40
    assert any("total_size of 7" in note and "160" in note for note in found.notes)
    assert any("8 parameters" in note for note in found.notes)
    stated["metadata"] = {"total_size": 160, "total_parameters": 40}
    assert not any("states" in note for note in count(write(tmp_path, files)).notes)


@pytest.mark.parametrize(
    "stated", [None, "much", [1], {"total_size": {}}, {"total_size": "7"}, {"total_parameters": math.nan}]
)
def test_nonsense_in_an_index_is_survived(tmp_path: Path, stated: object) -> None:
    content = {"metadata": stated, "weight_map": {"wte.weight": FIRST}}
    write(
        tmp_path,
        {FIRST: safetensors({"wte.weight": random_table(10, 4)}), "model.safetensors.index.json": content},
    )
    assert count(tmp_path).parameters == 40


def test_a_file_that_is_cut_short_is_still_counted(tmp_path: Path) -> None:
    data = safetensors(tables(random_table(600, 8)))
    config = {**GPT2_CONFIG, "tie_word_embeddings": True}
    opened = open_checkpoint(write(tmp_path, {"model.safetensors": data[:-100], "config.json": config}))
    found = params(opened)
    check(found)
    assert found.parameters == 9600
    assert any("could not be compared" in note for note in found.notes)
    assert not any("differ" in note for note in found.notes)
    assert any("cut short" in warning for warning in opened.warnings)


# --- experts -------------------------------------------------------------------------------------------------


def experts_file(folder: Path, config: Mapping[str, Any]) -> Path:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (10, 4),
        "model.layers.0.mlp.gate.weight": (8, 4),
    }
    shapes |= {f"model.layers.0.mlp.experts.{n}.up_proj.weight": (6, 4) for n in range(8)}
    shapes["model.layers.0.mlp.shared_experts.up_proj.weight"] = (5, 4)
    return hollow(folder, shapes, {"model_type": "made_up", "num_experts": 8, **config})


@pytest.mark.parametrize(
    ("said", "active"),
    [
        ({"num_experts_per_tok": 2}, 40 + 32 + 2 * 24 + 20),
        ({"num_experts_per_token": 1}, 40 + 32 + 24 + 20),
        ({"moe_topk": [2, 2]}, 40 + 32 + 2 * 24 + 20),
        ({"text_config": {"moe_k": 4}}, 40 + 32 + 4 * 24 + 20),
        ({}, None),
        ({"num_experts_per_tok": 9}, None),
        ({"num_experts_per_tok": "two"}, None),
        ({"moe_topk": [1, 2]}, None),
        ({"num_experts_per_tok": 2, "num_experts": 7}, None),
    ],
)
def test_active_parameters_by_hand(tmp_path: Path, said: dict[str, Any], active: int | None) -> None:
    found = count(experts_file(tmp_path, said))
    assert found.parameters == 40 + 32 + 8 * 24 + 20
    assert part(found, "experts") == 8 * 24 + 20
    assert part(found, "other: routers") == 32
    assert found.active_parameters == active
    assert ("active per token" in text.render(found.report())) == (active is not None)


def test_active_parameters_are_not_told_while_experts_may_be_missing(tmp_path: Path) -> None:
    experts = {f"model.layers.0.mlp.experts.{n}.up_proj.weight": random_table(6, 4) for n in range(2)}
    weight_map = {**dict.fromkeys(experts, FIRST), "model.layers.0.mlp.experts.2.up_proj.weight": SECOND}
    config = {"num_experts": 2, "num_experts_per_tok": 1}
    files = {
        FIRST: safetensors(experts),
        "model.safetensors.index.json": index(weight_map),
        "config.json": config,
    }
    found = count(write(tmp_path, files))
    assert found.partial
    assert found.active_parameters is None


# --- grouping and writing ------------------------------------------------------------------------------------


@pytest.fixture
def little(tmp_path: Path) -> Path:
    return hollow(
        tmp_path / "little", gpt2_shapes(masks=True, d=8, layers=12, vocabulary=20, places=6), GPT2_CONFIG
    )


@pytest.mark.parametrize("by", WAYS)
def test_every_grouping_sums_to_the_total(little: Path, by: str) -> None:
    whole = count(little)
    found = count(little, by=by)
    assert found.parameters == whole.parameters
    assert found.parts == whole.parts
    report = found.report()
    assert text.render(report)
    assert markdown.render(report)
    assert len(csv.render(report).splitlines()) == 1 + len(found.groups or found.parts)


def test_layers_come_in_the_order_of_their_numbers(little: Path) -> None:
    groups = count(little, by="layer").groups
    assert [group.group for group in groups] == [*(f"h.{n}" for n in range(12)), "outside the layers"]
    assert groups[-1].parameters == 20 * 8 + 6 * 8 + 2 * 8
    assert len({group.parameters for group in groups[:-1]}) == 1


def test_modules_of_all_layers_are_one_line(little: Path) -> None:
    groups = {group.group: group for group in count(little, by="module").groups}
    assert groups["h.N.attn.c_attn"].parameters == 12 * (8 * 24 + 24)
    assert groups["h.N.attn.c_attn"].tensors == 24
    assert "h.N.attn" not in groups  # only the masks lie there


def test_an_unknown_grouping_is_refused(little: Path) -> None:
    with pytest.raises(ValueError, match="by must be one of"):
        params(open_checkpoint(little), by="colour")


def test_the_ledger_as_it_is_drawn(little: Path) -> None:
    lines = text.render(count(little).report()).splitlines()
    found = [line.split("  ")[0] for line in lines]
    start = found.index("elements in the files")
    assert found[start : start + 5] == [
        "elements in the files",
        "- masks and other buffers",
        "- copies of tied tensors",
        "+ unpacked from quantised data",
        "= parameters",
    ]
    assert lines[start + 1].endswith("432   12 x h.N.attn.bias (1, 1, 6, 6)")
    (table,) = (line for line in lines if line.startswith("token table"))
    assert f"{100 * 160 / count(little).parameters:.2f} %" in table
    (widest,) = (line for line in lines if line.startswith("feed-forward"))
    assert widest.endswith(
        "  " + "#" * round(32 * part(count(little), "feed-forward") / count(little).parameters)
    )


def test_the_json_contract(little: Path) -> None:
    answer = json.loads(json_output.render(count(little).report()))
    keys = (
        "parameters",
        "stored_elements",
        "buffers",
        "tied_copies",
        "unpacked",
        "parts",
        "active_parameters",
        "partial",
        "notes",
    )
    assert [key for key in answer if key in keys] == list(keys)
    assert answer["buffers"][0]["tensor"] == "h.0.attn.bias"
    assert answer["buffers"][0]["elements"] == 36
    assert answer["active_parameters"] is None
    assert answer["partial"] is False
    first = answer["parts"][0]
    assert first["part"] == "token table"
    assert first["parameters"] == 160
    assert first["share"] == 160 / answer["parameters"]
    assert first["share_without_embeddings"] is None
    assert first["bytes"] == 640
    assert math.isclose(sum(item["share_without_embeddings"] or 0 for item in answer["parts"]), 1)


def test_several_checkpoints_stand_side_by_side(little: Path, tmp_path: Path) -> None:
    other = hollow(tmp_path / "other", {"model.embed_tokens.weight": (10, 4)}, {"model_type": "llama"})
    found = params_side_by_side([open_checkpoint(little), open_checkpoint(other)])
    assert [item.parameters for item in found.checkpoints] == [count(little).parameters, 40]
    shown = text.render(found.report())
    assert "little" in shown
    assert "other" in shown
    (table,) = (line for line in shown.splitlines() if line.startswith("token table") and "%" not in line)
    assert table.split()[-2:] == ["160", "40"]
    rows = csv.render(found.report()).splitlines()
    assert rows[0].startswith("checkpoint,part,parameters")
    assert rows[-1].startswith("other,")
    first = next(iter(found.report().figures.values()))
    assert list(first.column_labels) == ["little", "other"]
    place = list(first.row_labels).index("token table")
    assert first.values[place][1] == 100
    assert markdown.render(found.report())


def test_a_file_without_parameters_has_undefined_shares(tmp_path: Path) -> None:
    found = params(open_checkpoint(hollow(tmp_path, {"rotary.inv_freq": (16,)})))
    assert found.parameters == 0
    answer = json.loads(json_output.render(found.report()))
    assert answer["parts"][0]["share"] is None
    assert text.render(found.report())


def test_the_figure_shows_the_share_of_each_part(little: Path) -> None:
    (bars,) = count(little).report().figures.values()
    assert list(bars.labels) == ["token table", "position table", "attention", "feed-forward", "norms"]
    assert sum(bars.values) == count(little).parameters
    assert f"{count(little).parameters:,}" in bars.title
    assert "432 elements" in bars.caption


def test_the_figure_of_many_parts_still_shows_the_whole(tmp_path: Path) -> None:
    shapes = {f"module{'x' * n}.weight": (n + 1, 3) for n in range(30)}
    found = count(hollow(tmp_path, {"wte.weight": (10, 4), **shapes}))
    bars = found.report().figures["share"]
    assert len(bars.labels) == len(bars.values) == 12
    assert sum(bars.values) == found.parameters
    assert (bars.labels[0], bars.labels[-1]) == ("token table", "the rest")


def test_an_adapter_alone_has_parts_too(tmp_path: Path) -> None:
    shapes = {
        f"base_model.model.model.layers.{n}.self_attn.q_proj.lora_{x}.weight": (4, 8)
        for n in range(2)
        for x in "AB"
    }
    found = count(hollow(tmp_path, shapes, {"peft_type": "LORA"}))
    assert part(found, "other: adapters") == found.parameters == 4 * 32
    assert part(found, "token table") == 0


WORDS = st.sampled_from(
    ("", "weight", "bias", "scales", "qweight", "experts", "gate", "router", "0", "17", "h", "wte", "lm_head", "attn", "mlp",
     "norm", "w\nx", "qzeros", "down_proj_blocks", "down_proj_scales", "weight_scale", "SCB", "embed_tokens")
)  # fmt: skip
NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("bits", "group_size", "h.0")), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ("model_type", "quantization", "quantization_config", "num_experts", "num_experts_per_tok", "text_config", "moe_topk",
     "tie_word_embeddings", "architectures", "group_size")
)  # fmt: skip


@given(
    names=st.dictionaries(
        st.lists(WORDS, min_size=1, max_size=5).map(".".join),
        st.tuples(
            st.sampled_from(("F32", "U32", "U8", "I64", "F8_E4M3", "F16")),
            st.lists(st.integers(0, 3), max_size=4).map(tuple),
        ),
        min_size=1,
        max_size=12,
    ),
    config=st.dictionaries(KEYS, NONSENSE, max_size=5),
    by=st.sampled_from(WAYS),
)
def test_every_ledger_adds_up_whatever_names_and_config_hold(
    tmp_path_factory: pytest.TempPathFactory, names: dict[str, Any], config: dict[str, Any], by: str
) -> None:
    shapes = {name: shape for name, (_, shape) in names.items()}
    codes = {name: code for name, (code, _) in names.items()}
    found = count(hollow(tmp_path_factory.mktemp("made"), shapes, config, codes=codes), by=by)
    assert all(item.parameters >= 0 and item.bytes >= 0 for item in (*found.parts, *found.groups))
    json_output.render(found.report())
    assert text.render(found.report())


def test_the_command_imports_no_numpy(little: Path) -> None:
    code = (
        "import sys\n"
        "from inspect_embed.cli import run\n"
        f"status = run(['params', {str(little)!r}])\n"
        "heavy = {'numpy', 'tokenizers', 'safetensors', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "= parameters" in done.stdout


def test_the_program_ends_with_its_whole_answer_in_a_pipe(little: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "inspect_embed", "params", str(little), "--by", "tensor", "--format", "json"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["parameters"] == count(little).parameters
