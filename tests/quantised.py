"""The published layouts of quantised weights: names, encodings and shapes, and files whose data are a hole of zeros."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Entry = tuple[str, str, tuple[int, ...]]
"""Name, encoding, shape."""
Layout = Callable[[str, int, int], Iterator[Entry]]
"""The entries that stand for a matrix (rows, columns) of this name."""

SIZES = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "I64": 8,
    "I32": 4,
    "U32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
}


def plain(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.weight", "F16", (rows, columns)


def gptq(bits: int, group: int = 128, order: bool = True) -> Layout:
    def layout(name: str, rows: int, columns: int) -> Iterator[Entry]:
        groups = -(-columns // group) if group > 0 else 1
        yield f"{name}.qweight", "I32", (columns * bits // 32, rows)
        yield f"{name}.qzeros", "I32", (groups, rows * bits // 32)
        yield f"{name}.scales", "F16", (groups, rows)
        if order:
            yield f"{name}.g_idx", "I32", (columns,)

    return layout


def awq_gemm(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.qweight", "I32", (columns, rows // 8)
    yield f"{name}.qzeros", "I32", (columns // 128, rows // 8)
    yield f"{name}.scales", "F16", (columns // 128, rows)


def awq_gemv(name: str, rows: int, columns: int) -> Iterator[Entry]:
    words = -(-(columns // 128) // 8)
    yield f"{name}.qweight", "I32", (rows, columns // 8)
    yield f"{name}.qzeros", "I32", (rows, words)
    yield f"{name}.scales", "F16", (rows, 8 * words)


def awq_gemv_fast(name: str, rows: int, columns: int) -> Iterator[Entry]:
    padded = 8 * -(-(columns // 128) // 8)
    yield f"{name}.qweight", "I16", (rows // 4, columns)
    yield f"{name}.qzeros", "F16", (padded, rows)
    yield f"{name}.scales", "F16", (padded, rows)


def awq_marlin(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.qweight", "I32", (columns // 16, rows * 2)
    yield f"{name}.qzeros", "I32", (columns // 128, rows // 8)
    yield f"{name}.scales", "F16", (columns // 128, rows)


def bitsandbytes_4(kind: str, nested: bool, encoding: str = "U8") -> Layout:
    def layout(name: str, rows: int, columns: int) -> Iterator[Entry]:
        runs = -(-rows * columns // 64)
        yield f"{name}.weight", encoding, (rows * columns // 2 // SIZES[encoding], 1)
        yield f"{name}.weight.absmax", "U8" if nested else "F32", (runs,)
        yield f"{name}.weight.quant_map", "F32", (16,)
        if nested:
            yield f"{name}.weight.nested_absmax", "F32", (-(-runs // 256),)
            yield f"{name}.weight.nested_quant_map", "F32", (256,)
        yield f"{name}.weight.quant_state.bitsandbytes__{kind}", "U8", (160,)

    return layout


def llm_int8(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.weight", "I8", (rows, columns)
    yield f"{name}.SCB", "F32", (rows,)
    yield f"{name}.weight_format", "U8", ()


def fp8_blocks(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.weight", "F8_E4M3", (rows, columns)
    yield f"{name}.weight_scale_inv", "F32", (-(-rows // 128), -(-columns // 128))


def fp8_channels(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.weight", "F8_E4M3", (rows, columns)
    yield f"{name}.weight_scale", "BF16", (rows, 1)


def fp8_tensor(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.weight", "F8_E4M3", (rows, columns)
    yield f"{name}.weight_scale", "F32", ()
    yield f"{name}.input_scale", "F32", ()


def mlx(bits: int, group: int = 64) -> Layout:
    def layout(name: str, rows: int, columns: int) -> Iterator[Entry]:
        yield f"{name}.weight", "U32", (rows, columns * bits // 32)
        yield f"{name}.scales", "F16", (rows, columns // group)
        yield f"{name}.biases", "F16", (rows, columns // group)

    return layout


def packed_words(bits: int, group: int = 128) -> Layout:
    def layout(name: str, rows: int, columns: int) -> Iterator[Entry]:
        yield f"{name}.weight_packed", "I32", (rows, -(-columns * bits // 32))
        yield f"{name}.weight_scale", "BF16", (rows, columns // group if group > 0 else 1)
        yield f"{name}.weight_shape", "I64", (2,)

    return layout


def packed_pairs(group: int, scale: str) -> Layout:
    def layout(name: str, rows: int, columns: int) -> Iterator[Entry]:
        yield f"{name}.weight_packed", "U8", (rows, columns // 2)
        yield f"{name}.weight_scale", scale, (rows, columns // group)
        if group == 16:
            yield f"{name}.weight_global_scale", "F32", (1,)
            yield f"{name}.input_global_scale", "F32", (1,)

    return layout


def int8_rows(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.weight", "I8", (rows, columns)
    yield f"{name}.weight_scale", "BF16", (rows, 1)


def modelopt(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.weight", "U8", (rows, columns // 2)
    yield f"{name}.weight_scale", "F8_E4M3", (rows, columns // 16)
    yield f"{name}.weight_scale_2", "F32", ()
    yield f"{name}.input_scale", "F32", ()


def eetq(name: str, rows: int, columns: int) -> Iterator[Entry]:
    yield f"{name}.weight", "I8", (columns, rows)
    yield f"{name}.weight_scales", "F16", (rows,)


def llama_2_7b(layout: Layout, tables: Layout = plain) -> Iterator[Entry]:
    """A Llama of 6,738,415,616 parameters, its matrices in this layout, and its two tables in another."""
    yield from tables("model.embed_tokens", 32000, 4096)
    for number in range(32):
        layer = f"model.layers.{number}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield from layout(f"{layer}.self_attn.{name}", 4096, 4096)
        yield from layout(f"{layer}.mlp.gate_proj", 11008, 4096)
        yield from layout(f"{layer}.mlp.up_proj", 11008, 4096)
        yield from layout(f"{layer}.mlp.down_proj", 4096, 11008)
        yield f"{layer}.input_layernorm.weight", "F16", (4096,)
        yield f"{layer}.post_attention_layernorm.weight", "F16", (4096,)
    yield "model.norm.weight", "F16", (4096,)
    yield from tables("lm_head", 32000, 4096)


def gpt_oss(layers: int, experts: int, d: int = 2880, vocabulary: int = 201088) -> Iterator[Entry]:
    yield "model.embed_tokens.weight", "BF16", (vocabulary, d)
    for number in range(layers):
        layer = f"model.layers.{number}"
        attention = f"{layer}.self_attn"
        for name, rows, columns in (
            ("q_proj", 4096, d), ("k_proj", 512, d), ("v_proj", 512, d), ("o_proj", d, 4096),
        ):  # fmt: skip
            yield f"{attention}.{name}.weight", "BF16", (rows, columns)
            yield f"{attention}.{name}.bias", "BF16", (rows,)
        yield f"{attention}.sinks", "BF16", (64,)
        yield f"{layer}.mlp.router.weight", "BF16", (experts, d)
        yield f"{layer}.mlp.router.bias", "BF16", (experts,)
        for name, rows in (("gate_up_proj", 2 * d), ("down_proj", d)):
            yield f"{layer}.mlp.experts.{name}_blocks", "U8", (experts, rows, d // 32, 16)
            yield f"{layer}.mlp.experts.{name}_scales", "U8", (experts, rows, d // 32)
            yield f"{layer}.mlp.experts.{name}_bias", "BF16", (experts, rows)
        yield f"{layer}.input_layernorm.weight", "BF16", (d,)
        yield f"{layer}.post_attention_layernorm.weight", "BF16", (d,)
    yield "model.norm.weight", "BF16", (d,)
    yield "lm_head.weight", "BF16", (vocabulary, d)


def hollow(folder: Path, entries: Iterator[Entry], config: Mapping[str, Any]) -> Path:
    """A checkpoint whose header is real and whose data are a hole of zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = {}
    end = 0
    for name, code, shape in entries:
        start, end = end, end + SIZES[code] * math.prod(shape)
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    return folder
