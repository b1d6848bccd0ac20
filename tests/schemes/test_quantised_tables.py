"""Quantised tables, written by the programs that quantise: counted, and read back as those programs read them.

A writer that is not installed is skipped; none of them is needed to read what it wrote.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import random_table, words
from numpy.typing import NDArray

from inspect_embed import info, neighbors, open_checkpoint, params

N_ROWS, WIDTH = 96, 128
TABLE = random_table(N_ROWS, WIDTH, seed=5)
# A row beside each of the first ten, so that neighbours are nearer than rounding moves them.
TABLE[10:20] = TABLE[:10] + 0.2 * TABLE[10:20]


@dataclass
class Written:
    """What a writer made of the table: its tensors and config; the values that it reads from them itself."""

    tensors: Mapping[str, Any]
    config: Mapping[str, Any]
    held: NDArray[np.float32]
    scheme: str
    role: str = "input"


def load(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, exc_type=ImportError)


def save(folder: Path, written: Written) -> Path:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in written.tensors.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **written.config}))
    (folder / "tokenizer.json").write_bytes(words(*(f"w{row}" for row in range(N_ROWS))))
    return folder


def run(name: str) -> Written:
    """What a writer makes, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WRITERS[name]()


def floats(tensor: Any) -> NDArray[np.float32]:
    return np.array(tensor.detach().float().numpy(), np.float32)


def under(module: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{module}.{name}": value for name, value in tensors.items()}


EMBEDDING, HEAD = "model.embed_tokens", "lm_head"


def write_mlx(kind: str, bits: int, group: int) -> Written:
    mx, torch = load("mlx.core"), load("torch")
    E = mx.array(TABLE).astype(getattr(mx, kind))
    words_, scales, biases = mx.quantize(E, group_size=group, bits=bits)
    held = np.array(mx.dequantize(words_, scales, biases, group_size=group, bits=bits).astype(mx.float32))
    plain = getattr(torch, kind)
    tensors = {
        "weight": torch.from_numpy(np.array(words_)),
        "scales": torch.from_numpy(np.array(scales.astype(mx.float32))).to(plain),
        "biases": torch.from_numpy(np.array(biases.astype(mx.float32))).to(plain),
    }
    config = {"quantization": {"bits": 4, "group_size": group}}
    return Written(under(EMBEDDING, tensors), config, held, "MLX")


def write_mlx_floats(mode: str) -> Written:
    mx, torch = load("mlx.core"), load("torch")
    words_, scales = mx.quantize(mx.array(TABLE), mode=mode)
    held = np.array(mx.dequantize(words_, scales, mode=mode).astype(mx.float32))
    tensors = {"weight": torch.from_numpy(np.array(words_)), "scales": torch.from_numpy(np.array(scales))}
    size = {"bits": 8 if mode == "mxfp8" else 4, "group_size": 16 if mode == "nvfp4" else 32}
    return Written(under(EMBEDDING, tensors), {"quantization": {"mode": mode, **size}}, held, "MLX")


def write_bitsandbytes(kind: str, nested: bool, encoding: str) -> Written:
    torch, functional = load("torch"), load("bitsandbytes.functional")
    E = torch.from_numpy(TABLE).to(getattr(torch, encoding))
    data, state = functional.quantize_4bit(E, quant_type=kind, compress_statistics=nested)
    tensors = {"weight": data, **under("weight", state.as_dict(packed=True))}
    held = floats(functional.dequantize_4bit(data, state))
    config = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    return Written(under(EMBEDDING, tensors), config, held, "bitsandbytes 4 bits")


def write_llm_int8() -> Written:
    torch, functional = load("torch"), load("bitsandbytes.functional")
    data, scales, _ = functional.int8_vectorwise_quant(torch.from_numpy(TABLE).half())
    held = floats(functional.int8_vectorwise_dequant(data, scales))
    tensors = {"weight": data, "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return Written(
        under(EMBEDDING, tensors), {"quantization_config": {"load_in_8bit": True}}, held, "LLM.int8"
    )


def write_compressed(
    compressor: str, scale: str = "bfloat16", name: str = "compressed-tensors", **arguments: Any
) -> Written:
    torch = load("torch")
    quantization, utils = (
        load("compressed_tensors.quantization"),
        load("compressed_tensors.quantization.utils"),
    )
    module = load("compressed_tensors.compressors")
    weights = quantization.QuantizationArgs(**arguments)
    scheme = quantization.QuantizationScheme(targets=["Embedding"], weights=weights)
    E = torch.from_numpy(TABLE).to(getattr(torch, scale))
    group = arguments.get("group_size") or WIDTH
    parts = E.reshape(N_ROWS, -1, group)
    state: dict[str, Any] = {"weight": E}
    low, high = parts.amin(-1), parts.amax(-1)
    if arguments.get("strategy") == "tensor":
        low, high = low.min().reshape(1), high.max().reshape(1)
    if compressor.startswith("NVFP4"):
        state["weight_global_scale"] = torch.tensor([448.0 * 6 / float(E.abs().max())])
        scales = (parts.abs().amax(-1).float() / 6 * state["weight_global_scale"]).to(torch.float8_e4m3fn)
        state["weight_scale"] = scales.to(E.dtype)
    elif compressor.startswith("MXFP4"):
        state["weight_scale"] = (2.0 ** torch.floor(torch.log2(parts.abs().amax(-1).float() / 4))).to(E.dtype)
    else:
        state["weight_scale"], zeros = utils.calculate_qparams(low, high, weights)
        if not weights.symmetric:
            state["weight_zero_point"] = zeros
    made = getattr(module, compressor).compress(state, scheme)
    held = getattr(module, compressor).decompress(dict(made), scheme)["weight"]
    made = {leaf: value.data if hasattr(value, "data") else value for leaf, value in made.items()}
    config = {"quantization_config": {
        "quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": arguments["num_bits"],
        "group_size": arguments.get("group_size")}}},
    }}  # fmt: skip
    return Written(under(EMBEDDING, made), config, floats(held), name)


def numbers_with_zeros(torch: Any, bits: int, group: int) -> tuple[Any, Any]:
    """Scales and zeros of each row and group, as a quantiser finds them: (rows, groups)."""
    parts = torch.from_numpy(TABLE).reshape(N_ROWS, -1, group)
    low, high = parts.amin(-1), parts.amax(-1)
    scales = ((high - low) / (2**bits - 1)).half().float()
    return scales, torch.clamp(torch.round(-low / scales), 1, 2**bits - 1)


def write_gptq(bits: int, less_one: bool) -> Written:
    torch = load("torch")
    name = "qlinear_torch_zp" if less_one else "qlinear_torch"
    QuantLinear = load(f"auto_round_extension.torch.{name}").QuantLinear
    layer = QuantLinear(bits, 32, WIDTH, N_ROWS, bias=False)
    layer.device = "cpu"
    linear = torch.nn.Linear(WIDTH, N_ROWS, bias=False)
    linear.weight.data = torch.from_numpy(TABLE.copy())
    scales, zeros = numbers_with_zeros(torch, bits, 32)
    layer.pack(linear, scales, zeros, device="cpu")
    held = floats(layer(torch.eye(WIDTH))).T
    tensors = {leaf: getattr(layer, leaf) for leaf in ("qweight", "qzeros", "scales")}
    packing = "auto_round:auto_gptq" if less_one else "auto_round"
    config = {
        "tie_word_embeddings": False,
        "quantization_config": {
            "quant_method": "auto-round",
            "bits": bits,
            "group_size": 32,
            "packing_format": packing,
        },
    }
    embedding = {f"{EMBEDDING}.weight": torch.from_numpy(TABLE)}
    return Written({**embedding, **under(HEAD, tensors)}, config, held, "GPTQ", "output")


def write_awq() -> Written:
    torch = load("torch")
    module = load("auto_round.export.export_to_awq.utils")
    linear = torch.nn.Linear(WIDTH, N_ROWS, bias=False)
    linear.weight.data = torch.from_numpy(TABLE.copy())
    scales, zeros = numbers_with_zeros(torch, 4, 32)
    layer = module.WQLinear_GEMM.from_linear(
        linear, 4, 32, scales=scales.T.contiguous(), zeros=zeros.T.contiguous()
    )
    held = floats(module.dequantize_gemm(layer.qweight, layer.qzeros, layer.scales, 4, 32)).T
    tensors = {leaf: getattr(layer, leaf) for leaf in ("qweight", "qzeros", "scales")}
    config = {
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"},
    }
    embedding = {f"{EMBEDDING}.weight": torch.from_numpy(TABLE)}
    return Written({**embedding, **under(HEAD, tensors)}, config, held, "AWQ", "output")


INT = {"type": "int", "num_bits": 4, "group_size": 32, "strategy": "group", "symmetric": True}
ROWS = {"type": "int", "num_bits": 8, "strategy": "channel", "symmetric": True}
FLOAT = {"type": "float", "num_bits": 4, "symmetric": True}
PACKED, NAIVE = "PackedQuantizationCompressor", "IntQuantizationCompressor"
WRITERS: dict[str, Callable[[], Written]] = {
    **{
        f"mlx {bits} {kind}": lambda bits=bits, kind=kind, group=group: write_mlx(kind, bits, group)
        for bits, kind, group in (
            (2, "float16", 32), (3, "bfloat16", 64), (4, "float16", 64), (4, "bfloat16", 128), (5, "float32", 32), (6, "float16", 64),
            (8, "bfloat16", 32),
        )
    },
    **{
        f"bitsandbytes {kind} {nested} {encoding}": lambda kind=kind, nested=nested, encoding=encoding: write_bitsandbytes(
            kind, nested, encoding
        )
        for kind in ("nf4", "fp4") for nested in (False, True) for encoding in ("float16", "bfloat16", "float32")
    },
    **{f"mlx {mode}": lambda mode=mode: write_mlx_floats(mode) for mode in ("mxfp4", "nvfp4", "mxfp8")},
    "llm.int8": write_llm_int8,
    "compressed-tensors 4": lambda: write_compressed(PACKED, **INT),
    "compressed-tensors 4, float16": lambda: write_compressed(PACKED, "float16", **INT),
    "compressed-tensors 3": lambda: write_compressed(PACKED, **{**INT, "num_bits": 3}),
    "compressed-tensors 5": lambda: write_compressed(PACKED, **{**INT, "num_bits": 5}),
    "compressed-tensors 4 with zeros": lambda: write_compressed(PACKED, **{**INT, "symmetric": False}),
    "compressed-tensors 3 with zeros": lambda: write_compressed(PACKED, **{**INT, "num_bits": 3, "symmetric": False}),
    "compressed-tensors 4 by rows": lambda: write_compressed(PACKED, **{**ROWS, "num_bits": 4}),
    "compressed-tensors 8 packed": lambda: write_compressed(PACKED, **ROWS),
    "compressed-tensors int8 by rows": lambda: write_compressed(NAIVE, **ROWS),
    "compressed-tensors int8 by rows with zeros": lambda: write_compressed(NAIVE, **{**ROWS, "symmetric": False}),
    "compressed-tensors int8 as one": lambda: write_compressed(NAIVE, **{**ROWS, "strategy": "tensor"}),
    "compressed-tensors int8 by groups": lambda: write_compressed(NAIVE, **{**INT, "num_bits": 8}),
    "compressed-tensors fp8 by rows": lambda: write_compressed(
        "FloatQuantizationCompressor", "float32", "FP8", **{**ROWS, "type": "float"}
    ),
    "compressed-tensors nvfp4": lambda: write_compressed(
        "NVFP4PackedCompressor", **FLOAT, group_size=16, strategy="tensor_group"
    ),
    "compressed-tensors mxfp4": lambda: write_compressed("MXFP4PackedCompressor", **FLOAT, group_size=32, strategy="group"),
    **{f"gptq {bits} v1": lambda bits=bits: write_gptq(bits, True) for bits in (2, 3, 4, 5, 8)},
    **{f"gptq {bits} as it is": lambda bits=bits: write_gptq(bits, False) for bits in (2, 4, 8)},
    "awq": write_awq,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_writer_wrote_is_counted_and_read_as_it_reads_it(tmp_path: Path, name: str) -> None:
    written = run(name)
    checkpoint = open_checkpoint(save(tmp_path, written))
    found = params(checkpoint)
    assert found.parameters == N_ROWS * WIDTH * (2 if written.role == "output" else 1)
    assert not found.partial
    assert written.scheme in info(checkpoint).quantisation
    table = checkpoint.table(written.role)
    assert table.shape == (N_ROWS, WIDTH)
    assert np.array_equal(table.rows(np.arange(N_ROWS)), written.held)
    assert np.array_equal(table.rows([37, 3, 37]), written.held[[37, 3, 37]])
    assert np.array_equal(np.concatenate([block.copy() for _, block in table.blocks()]), written.held)


@pytest.mark.parametrize("name", WRITERS)
def test_neighbours_are_those_of_the_values_that_the_writer_reads(tmp_path: Path, name: str) -> None:
    written = run(name)
    checkpoint = open_checkpoint(save(tmp_path, written))
    (found,) = neighbors(checkpoint, ["w3"], k=5, table=written.role).results
    unit = written.held.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit[3]
    cosines[3] = -2
    expected = np.argsort(-cosines, kind="stable")[:5]
    assert [row.id for row in found.neighbors] == expected.tolist()
    assert np.allclose([row.score for row in found.neighbors], cosines[expected], atol=1e-5)
    if not name.startswith(("mlx 2", "gptq 2")):
        # Of the numbers before quantisation, too: the neighbour that was planted.
        assert found.neighbors[0].id == 13


def test_a_layer_of_bitnet_is_counted(tmp_path: Path) -> None:
    torch, bitnet = load("torch"), load("transformers.integrations.bitnet")
    numbers = torch.from_numpy(np.sign(np.round(TABLE)))
    tensors = {
        "weight": bitnet.pack_weights(numbers.clone()),
        "weight_scale": torch.ones(1, dtype=torch.bfloat16),
    }
    named = {f"{EMBEDDING}.weight": torch.from_numpy(TABLE), **under("model.layers.0.mlp.up_proj", tensors)}
    config = {"quantization_config": {"quant_method": "bitnet"}}
    checkpoint = open_checkpoint(save(tmp_path, Written(named, config, TABLE, "BitNet")))
    assert params(checkpoint).parameters == 2 * N_ROWS * WIDTH
    assert info(checkpoint).quantisation == "BitNet"


def test_a_layer_of_torchao_is_counted(tmp_path: Path) -> None:
    torch, quantization = load("torch"), load("torchao.quantization")
    support = load("torchao.prototype.safetensors.safetensors_support")
    layer = torch.nn.ModuleDict({"up_proj": torch.nn.Linear(WIDTH, N_ROWS, bias=False)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization.quantize_(layer, quantization.Int8WeightOnlyConfig(version=2))
        tensors, _ = support.flatten_tensor_state_dict(layer.state_dict())
    named = {f"{EMBEDDING}.weight": torch.from_numpy(TABLE), **under("model.layers.0.mlp", tensors)}
    checkpoint = open_checkpoint(save(tmp_path, Written(named, {}, TABLE, "torchao")))
    assert params(checkpoint).parameters == 2 * N_ROWS * WIDTH
    assert info(checkpoint).quantisation == "torchao"


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_a_layer_of_hqq_is_counted(tmp_path: Path, bits: int) -> None:
    torch, hqq = load("torch"), load("hqq.core.quantize")
    linear = torch.nn.Linear(WIDTH, N_ROWS, bias=False)
    config = hqq.BaseQuantizeConfig(nbits=bits, group_size=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = hqq.HQQLinear(linear, config, compute_dtype=torch.float32, device="cpu", initialize=True)
        tensors = under("model.layers.0.mlp.up_proj", layer.state_dict())
    tensors[f"{EMBEDDING}.weight"] = torch.from_numpy(TABLE)
    checkpoint = open_checkpoint(save(tmp_path, Written(tensors, {}, TABLE, "HQQ")))
    found = params(checkpoint)
    assert found.parameters == 2 * N_ROWS * WIDTH
    assert "HQQ" in found.quantisation


def test_an_odd_number_of_4_bit_numbers_is_told_by_the_state(tmp_path: Path) -> None:
    torch, functional = load("torch"), load("bitsandbytes.functional")
    E = torch.from_numpy(random_table(9, 7)).half()
    data, state = functional.quantize_4bit(E, quant_type="nf4")
    tensors = under(EMBEDDING, {"weight": data, **under("weight", state.as_dict(packed=True))})
    held = floats(functional.dequantize_4bit(data, state))
    checkpoint = open_checkpoint(save(tmp_path, Written(tensors, {}, held, "")))
    assert params(checkpoint).parameters == 63
    assert np.array_equal(checkpoint.table().rows(np.arange(9)), held)


def test_no_writer_is_loaded_for_reading() -> None:
    assert "inspect_embed" in sys.modules
    import inspect_embed.schemes as schemes

    for name in schemes.SCHEMES:
        source = Path(str(schemes.__file__)).with_name(f"{name}.py").read_text(encoding="utf-8")
        assert "import torch" not in source
