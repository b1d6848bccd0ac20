"""Quantised checkpoints are counted as what they stand for: headers in each scheme's layout, against published counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantised as q
from made import random_table, words, write, write_checkpoint

from inspect_embed import info, open_checkpoint, params
from inspect_embed.errors import UnsupportedEncodingError
from inspect_embed.outputs import json as json_output
from inspect_embed.outputs import text

LLAMA_2_7B = 6_738_415_616


def said(method: str, **more: Any) -> dict[str, Any]:
    return {"model_type": "llama", "quantization_config": {"quant_method": method, **more}}


def groups(bits: int, size: int | None) -> dict[str, Any]:
    return {"config_groups": {"group_0": {"weights": {"num_bits": bits, "type": "int", "group_size": size}}}}


CASES: dict[str, tuple[q.Layout, dict[str, Any], str]] = {
    "gptq 2": (q.gptq(2), said("gptq", bits=2, group_size=128), "GPTQ"),
    "gptq 3": (q.gptq(3), said("gptq", bits=3, group_size=128), "GPTQ"),
    "gptq 4": (q.gptq(4), said("gptq", bits=4, group_size=128), "GPTQ"),
    "gptq 8": (q.gptq(8), said("gptq", bits=8, group_size=128), "GPTQ"),
    "gptq 4, one group": (q.gptq(4, -1), said("gptq", bits=4, group_size=-1), "GPTQ"),
    "gptq 4, config silent": (q.gptq(4, 32), {"model_type": "llama"}, "GPTQ"),
    "gptq 4, config wrong": (q.gptq(4), said("gptq", bits=8, group_size=128), "GPTQ"),
    "autoround": (q.gptq(4, order=False), said("auto-round", bits=4, group_size=128), "GPTQ"),
    "autoround 5": (q.gptq(5, order=False), said("auto-round", bits=5, group_size=128), "GPTQ"),
    "awq gemm": (q.awq_gemm, said("awq", bits=4, group_size=128, version="gemm"), "AWQ"),
    "awq gemv": (q.awq_gemv, said("awq", bits=4, group_size=128, version="gemv"), "AWQ"),
    "awq gemv_fast": (q.awq_gemv_fast, said("awq", bits=4, version="gemv_fast"), "AWQ"),
    "awq marlin": (q.awq_marlin, said("awq", bits=4, version="marlin"), "AWQ"),
    "nf4": (q.bitsandbytes_4("nf4", False), said("bitsandbytes", load_in_4bit=True), "bitsandbytes"),
    "nf4, twice": (q.bitsandbytes_4("nf4", True), said("bitsandbytes", load_in_4bit=True), "bitsandbytes"),
    "fp4": (q.bitsandbytes_4("fp4", False), said("bitsandbytes", load_in_4bit=True), "bitsandbytes"),
    "nf4 stored as bf16": (q.bitsandbytes_4("nf4", True, "BF16"), said("bitsandbytes"), "bitsandbytes"),
    "nf4 stored as f32": (q.bitsandbytes_4("nf4", False, "F32"), said("bitsandbytes"), "bitsandbytes"),
    "int8": (q.llm_int8, said("bitsandbytes", load_in_8bit=True), "LLM.int8"),
    "fp8 blocks": (q.fp8_blocks, said("fp8", weight_block_size=[128, 128]), "FP8"),
    "fp8 channels": (q.fp8_channels, said("compressed-tensors", format="float-quantized"), "FP8"),
    "fp8 tensor": (q.fp8_tensor, said("fp8"), "FP8"),
    "compressed-tensors 4": (q.packed_words(4), said("compressed-tensors", **groups(4, 128)), "compressed"),
    "compressed-tensors 3": (q.packed_words(3), said("compressed-tensors", **groups(3, 128)), "compressed"),
    "compressed-tensors 4 rows": (q.packed_words(4, -1), said("compressed-tensors", **groups(4, None)), "compr"),
    "compressed-tensors int8": (q.int8_rows, said("compressed-tensors", format="int-quantized"), "compressed"),
    "compressed-tensors nvfp4": (q.packed_pairs(16, "F8_E4M3"), said("compressed-tensors"), "compressed"),
    "compressed-tensors mxfp4": (q.packed_pairs(32, "U8"), said("compressed-tensors"), "compressed"),
    "modelopt nvfp4": (q.modelopt, said("modelopt", quant_algo="NVFP4"), "NVFP4"),
    "eetq": (q.eetq, said("eetq"), "EETQ"),
    "mlx 4": (q.mlx(4), {"model_type": "llama", "quantization": {"bits": 4, "group_size": 64}}, "MLX"),
    "mlx 3": (q.mlx(3), {"model_type": "llama", "quantization": {"bits": 3, "group_size": 64}}, "MLX"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_llama_counts_the_same_however_it_is_packed(tmp_path: Path, case: str) -> None:
    layout, config, scheme = CASES[case]
    tables = layout if case.startswith("mlx") else q.plain
    checkpoint = open_checkpoint(q.hollow(tmp_path, q.llama_2_7b(layout, tables), config))
    found = params(checkpoint, headers_only=True)
    assert found.parameters == LLAMA_2_7B
    assert not found.partial
    assert found.packed_tensors == ()
    assert found.parts[0].parameters == 32000 * 4096
    stored = sum(item.elements for item in (*found.buffers, *found.tied_copies))
    assert found.parameters == found.stored_elements - stored + found.unpacked
    assert scheme in found.quantisation
    assert scheme in info(checkpoint).quantisation
    assert found.quantisation_bytes > 0
    size = sum(checkpoint.tensors.count_bytes().values())
    assert found.bits_per_parameter == 8 * size / LLAMA_2_7B


def test_a_llama_of_4_bits_says_how_many_bits_that_is(tmp_path: Path) -> None:
    found = params(
        open_checkpoint(q.hollow(tmp_path, q.llama_2_7b(q.gptq(4)), CASES["gptq 4"][1])), headers_only=True
    )
    shown = text.render(found.report())
    matrices, tables = 32 * (4 * 4096**2 + 3 * 11008 * 4096), 2 * 32000 * 4096
    order = 32 * 32 * (6 * 4096 + 11008)
    bits = 16 * (tables + 65 * 4096) + matrices * (4 + (16 + 4) / 128) + order
    assert found.bits_per_parameter == bits / LLAMA_2_7B
    assert f"{bits / LLAMA_2_7B:.2f}" == "4.62"
    assert "4.62" in shown
    assert "+ unpacked from quantised data" in shown
    assert "are no parameters" in shown
    answer = json.loads(json_output.render(found.report()))
    assert answer["bits_per_parameter"] == found.bits_per_parameter
    assert list(answer).index("notes") < list(answer).index("quantisation_bytes")


GPT_OSS = {
    # Billions of the mixtures, of attention, of the two tables, of all; and GiB of the files, as published.
    "20b": (24, 32, 19.12, 0.64, 1.16, 20.91, 12.8),
    "120b": (36, 128, 114.71, 0.96, 1.16, 116.83, 60.8),
}
"""Source: gpt-oss-120b & gpt-oss-20b Model Card, table 1."""


@pytest.mark.parametrize("size", GPT_OSS)
def test_a_mixture_in_mxfp4_counts_what_its_card_says(tmp_path: Path, size: str) -> None:
    layers, experts, mixtures, attention, tables, total, gib = GPT_OSS[size]
    config = {
        "model_type": "gpt_oss",
        "num_local_experts": experts,
        "num_experts_per_tok": 4,
        "quantization_config": {"quant_method": "mxfp4"},
    }
    checkpoint = open_checkpoint(q.hollow(tmp_path, q.gpt_oss(layers, experts), config))
    found = params(checkpoint, headers_only=True)
    parts = {part.part: part.parameters for part in found.parts}
    assert round(found.parameters / 1e9, 2) == total
    assert round((parts["experts"] + parts["other: routers"]) / 1e9, 2) == mixtures
    assert round(parts["attention"] / 1e9, 2) == attention
    assert round((parts["token table"] + parts["output head"]) / 1e9, 2) == tables
    assert round(sum(checkpoint.tensors.count_bytes().values()) / 2**30, 1) == gib
    assert "MXFP4" in found.quantisation
    assert not found.partial


def test_layers_of_different_widths_and_plain_ones_stand_side_by_side(tmp_path: Path) -> None:
    entries = [
        ("model.embed_tokens.weight", "F16", (64, 256)),
        *q.gptq(4, 128)("model.layers.0.self_attn.q_proj", 256, 256),
        *q.gptq(8, 32)("model.layers.0.mlp.down_proj", 256, 512),
        *q.gptq(2, 64)("model.layers.1.mlp.up_proj", 512, 256),
        *q.plain("model.layers.1.mlp.down_proj", 256, 512),
    ]
    found = params(open_checkpoint(q.hollow(tmp_path, iter(entries), said("gptq", bits=4, group_size=128))))
    assert found.parameters == 64 * 256 + 256 * 256 + 3 * 256 * 512


def test_words_with_scales_and_a_config_stand_for_what_they_hold(tmp_path: Path) -> None:
    tensors = {"q.weight": np.zeros((4, 8), np.uint32), "q.scales": np.ones((4, 1), np.float16)}
    config = {"quantization": {"bits": 4, "group_size": 64}}
    found = params(open_checkpoint(write_checkpoint(tmp_path, tensors, config)))
    assert found.parameters == 4 * 64
    assert found.stored_elements - 4 == 32
    assert "32 packed elements" in found.quantisation


def test_words_without_a_known_packing_are_shown_as_stored(tmp_path: Path) -> None:
    tensors = {
        "embed.weight": random_table(10, 4), "q.qweight": np.zeros((4, 8), np.int32), "q.scales": np.ones((3, 5), np.float16),
    }  # fmt: skip
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, tensors, said("unheard_of")))
    found = params(checkpoint)
    assert found.partial
    assert found.parameters == 40
    assert found.packed_tensors == ("q.qweight",)
    assert found.bits_per_parameter is None
    assert "not known" in info(checkpoint).quantisation


def table_in_8_bits(tmp_path: Path, **beside: Any) -> Path:
    """Six rows of 16 numbers of 8 bits, though the config says 4 bits for the whole model."""
    numbers = np.arange(96, dtype=np.uint8).reshape(6, 16)
    tensors = {
        "model.embed_tokens.weight": numbers.view(np.uint32),
        "model.embed_tokens.scales": np.full((6, 1), 0.5, np.float16),
        "model.embed_tokens.biases": np.full((6, 1), -2, np.float16),
    }
    config = {"model_type": "llama", "quantization": {"bits": 4, "group_size": 16}}
    return write_checkpoint(tmp_path, {**tensors, **beside}, config, tokens=tuple("abcdef"))


def test_a_table_packed_at_another_width_than_the_config_says_is_read_at_its_own(tmp_path: Path) -> None:
    table = open_checkpoint(table_in_8_bits(tmp_path)).table()
    assert (table.n_rows, table.width) == table.shape == (6, 16)
    assert np.array_equal(table.rows([3, 0]), np.arange(96).reshape(6, 16)[[3, 0]] * 0.5 - 2)
    assert "8 bits" in " ".join(table.notes)
    assert np.array_equal(np.concatenate([block for _, block in table.blocks()]), table.rows(range(6)))
    assert np.allclose(table.norms, np.linalg.norm(table.rows(range(6)), axis=1))


def test_info_knows_the_rows_of_a_packed_table(tmp_path: Path) -> None:
    found = info(open_checkpoint(table_in_8_bits(tmp_path)))
    assert found.quantisation == "MLX"
    assert found.vocabulary is not None
    assert found.vocabulary.rows_without_token == found.vocabulary.tokens_without_row == 0
    assert any(line.startswith("quantised") for line in text.render(found.report()).splitlines())


def test_a_table_that_cannot_be_unpacked_is_refused_by_naming_what_lies_beside_it(tmp_path: Path) -> None:
    tensors = {
        "model.embed_tokens.weight": np.zeros((6, 4), np.uint32),
        "model.embed_tokens.scales": np.ones((6, 1), np.float16),
        "model.embed_tokens.biases": np.ones((6, 1), np.float16),
    }
    files = write_checkpoint(tmp_path, tensors, {"model_type": "llama"})
    write(files, {"tokenizer.json": words(*"abcdef")})
    with pytest.raises(UnsupportedEncodingError, match=r"scales.*biases.*quantised"):
        open_checkpoint(files).table().rows([0])
