"""The same small model in each scheme: the same count, and the same neighbours as far as the scheme's precision goes.

The packing is written out here, number by number, from the published layouts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import Stored, random_table, write_checkpoint
from numpy.typing import NDArray

from inspect_embed import neighbors, open_checkpoint, params, schemes
from inspect_embed.errors import DamagedFileError, UnsupportedEncodingError

N_ROWS, WIDTH, GROUP = 48, 64, 32
TABLE = random_table(N_ROWS, WIDTH, seed=2)
TABLE[8:16] = TABLE[:8] + 0.15 * TABLE[8:16]
Numbers = NDArray[np.int64]


def bit_stream(numbers: Numbers, bits: int) -> NDArray[np.uint32]:
    """Each row's numbers one after the other, lowest bits first, in 32-bit words."""
    rows = []
    for row in numbers:
        whole = sum(int(number) << (bits * place) for place, number in enumerate(row))
        n_words = -(-len(row) * bits // 32)
        rows.append([(whole >> (32 * word)) & 0xFFFFFFFF for word in range(n_words)])
    return np.array(rows, np.uint32)


def grouped(E: NDArray[np.float32], bits: int) -> tuple[Numbers, NDArray[np.float16], Numbers]:
    """Numbers, and the scale and zero of each group of a row: (rows, groups)."""
    parts = E.reshape(len(E), -1, GROUP)
    low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 0)
    scales = ((high - low) / (2**bits - 1)).astype(np.float16)
    zeros = np.clip(np.round(-low / scales), 1, 2**bits - 1).astype(np.int64)
    numbers = np.round(parts / scales[..., None].astype(np.float32)) + zeros[..., None]
    return np.clip(numbers, 0, 2**bits - 1).astype(np.int64).reshape(E.shape), scales, zeros


Made = tuple[dict[str, Stored], dict[str, Any], NDArray[np.float32] | None]
"""Tensors of one matrix by leaf, config, and the values that they stand for where they can be read."""


def held(
    numbers: Numbers, scales: NDArray[Any], zeros: Numbers, order: Numbers | None = None
) -> NDArray[np.float32]:
    groups = np.arange(numbers.shape[1]) // GROUP if order is None else order
    return (
        ((numbers - zeros[:, groups]) * scales[:, groups].astype(np.float64))
        .astype(np.float16)
        .astype(np.float32)
    )


def gptq(bits: int, form: str = "gptq", shuffled: bool = False) -> Callable[[NDArray[np.float32]], Made]:
    def make(E: NDArray[np.float32]) -> Made:
        order = np.arange(WIDTH) // GROUP
        lying = E
        if shuffled:
            places = np.random.default_rng(1).permutation(WIDTH)
            lying, order = E[:, np.argsort(places, kind="stable")], order[places]
            # Column c of E lies in group order[c]: quantise group by group.
            lying = np.concatenate([E[:, order == group] for group in range(WIDTH // GROUP)], axis=1)
        numbers, scales, zeros = grouped(lying, bits)
        if shuffled:
            back = np.argsort(np.argsort(order, kind="stable"), kind="stable")
            numbers = numbers[:, back]
        stored = zeros - (form == "gptq")
        tensors: dict[str, Stored] = {
            "qweight": bit_stream(numbers, bits).T.astype(np.uint32).view(np.int32),
            "qzeros": bit_stream(stored.T, bits).view(np.int32),
            "scales": scales.T,
            "g_idx": order.astype(np.int32),
        }
        said = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "checkpoint_format": form}
        return tensors, {"quantization_config": said}, held(numbers, scales, zeros, order)

    return make


def awq(E: NDArray[np.float32]) -> Made:
    numbers, scales, zeros = grouped(E, 4)

    def pack(rows_last: Numbers) -> NDArray[np.int32]:
        places = np.arange(N_ROWS).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]].ravel()
        return bit_stream(rows_last[:, places], 4).view(np.int32)

    tensors: dict[str, Stored] = {"qweight": pack(numbers.T), "qzeros": pack(zeros.T), "scales": scales.T}
    said = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
    return tensors, {"quantization_config": said}, held(numbers, scales, zeros)


def mlx(bits: int) -> Callable[[NDArray[np.float32]], Made]:
    def make(E: NDArray[np.float32]) -> Made:
        parts = E.reshape(N_ROWS, -1, GROUP)
        biases = parts.min(-1).astype(np.float32)
        scales = ((parts.max(-1) - biases) / (2**bits - 1)).astype(np.float32)
        numbers = np.clip(np.round((parts - biases[..., None]) / scales[..., None]), 0, 2**bits - 1)
        values = numbers.astype(np.float32) * scales[..., None] + biases[..., None]
        tensors: dict[str, Stored] = {
            "weight": bit_stream(numbers.reshape(E.shape).astype(np.int64), bits), "scales": scales, "biases": biases,
        }  # fmt: skip
        return tensors, {"quantization": {"bits": bits, "group_size": GROUP}}, values.reshape(E.shape)

    return make


# The 16 values of NF4. Source: QLoRA, appendix E.
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32
)  # fmt: skip


def nf4(E: NDArray[np.float32]) -> Made:
    runs = E.reshape(-1, 64)
    largest = np.abs(runs).max(1)
    places = np.abs(runs[..., None] / largest[:, None, None] - NF4).argmin(-1)
    pairs = places.reshape(-1, 2)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": list(E.shape)}
    tensors: dict[str, Stored] = {
        "weight": (pairs[:, :1] << 4 | pairs[:, 1:]).astype(np.uint8),
        "weight.absmax": largest,
        "weight.quant_map": NF4,
        "weight.quant_state.bitsandbytes__nf4": np.frombuffer(json.dumps(state).encode(), np.uint8),
    }
    said = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    return tensors, {"quantization_config": said}, (NF4[places] * largest[:, None]).reshape(E.shape)


def llm_int8(E: NDArray[np.float32]) -> Made:
    largest = np.abs(E).max(1)
    numbers = np.round(127 * E / largest[:, None]).astype(np.int8)
    values = numbers * largest[:, None] * np.float32(1 / 127)
    return {"weight": numbers, "SCB": largest}, {}, values


def fp8(E: NDArray[np.float32]) -> Made:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    scales = (np.abs(E).max(1, keepdims=True) / 448).astype(np.float32)
    numbers = (E / scales).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": numbers, "weight_scale": scales}, {}, numbers.astype(np.float32) * scales


def compressed(E: NDArray[np.float32]) -> Made:
    scales = (np.abs(E).max(1, keepdims=True) / 7).astype(np.float32)
    numbers = np.clip(np.round(E / scales), -8, 7).astype(np.int64)
    tensors: dict[str, Stored] = {
        "weight_packed": bit_stream(numbers + 8, 4).view(np.int32),
        "weight_scale": scales,
        "weight_shape": np.array(E.shape, np.int64),
    }
    return (
        tensors,
        {"quantization_config": {"quant_method": "compressed-tensors"}},
        numbers.astype(np.float32) * scales,
    )


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def modelopt(E: NDArray[np.float32]) -> Made:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    parts = E.reshape(N_ROWS, -1, 16)
    whole = np.float32(np.abs(E).max() / (6 * 448))
    scales = (np.abs(parts).max(-1) / 6 / whole).astype(ml_dtypes.float8_e4m3fn)
    factor = scales.astype(np.float32) * whole
    places = np.abs(parts[..., None] / factor[..., None, None] - FP4).argmin(-1)
    pairs = places.reshape(N_ROWS, -1, 2)
    tensors: dict[str, Stored] = {
        "weight": (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8), "weight_scale": scales,
        "weight_scale_2": np.array(whole, np.float32),
    }  # fmt: skip
    said = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    return tensors, said, (FP4[places] * factor[..., None]).reshape(E.shape)


def mxfp4(E: NDArray[np.float32]) -> Made:
    parts = E.reshape(N_ROWS, -1, 32)
    exponents = np.floor(np.log2(np.abs(parts).max(-1))) - 2
    places = np.abs(parts[..., None] / 2.0 ** exponents[..., None, None] - FP4).argmin(-1)
    pairs = places.reshape(N_ROWS, -1, 16, 2)
    tensors: dict[str, Stored] = {
        "_blocks": (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8), "_scales": (exponents + 127).astype(np.uint8),
    }  # fmt: skip
    return tensors, {"quantization_config": {"quant_method": "mxfp4"}}, None


def eetq(E: NDArray[np.float32]) -> Made:
    scales = (np.abs(E).max(1) / 127).astype(np.float16)
    return {"weight": np.round(E / scales[:, None]).astype(np.int8).T, "weight_scales": scales}, {}, None


def hqq(E: NDArray[np.float32]) -> Made:
    numbers, scales, zeros = grouped(E, 4)
    lying = numbers.reshape(-1, GROUP)
    half = len(lying) // 2
    tensors: dict[str, Stored] = {
        "W_q": (lying[:half] << 4 | lying[half:]).astype(np.uint8), "scale": scales.reshape(-1, 1),
        "zero": zeros.reshape(-1, 1).astype(np.float16), "shape": np.array(E.shape, np.int64), "nbits": np.array(4, np.int32),
        "group_size": np.array(GROUP, np.int32), "axis": np.array(1, np.int32),
    }  # fmt: skip
    return tensors, {}, None


def torchao(E: NDArray[np.float32]) -> Made:
    scales = (np.abs(E).max(1, keepdims=True) / 127).astype(np.float32)
    numbers = np.round(E / scales).astype(np.int8)
    zeros = np.zeros(scales.shape, np.int8)
    return {"_weight_qdata": numbers, "_weight_scale": scales, "_weight_zero_point": zeros}, {}, None


def bitnet(E: NDArray[np.float32]) -> Made:
    numbers = (np.sign(np.round(E)) + 1).astype(np.uint8)
    quarters = numbers.reshape(4, -1, WIDTH) << np.array([0, 2, 4, 6], np.uint8)[:, None, None]
    tensors: dict[str, Stored] = {
        "weight": quarters.sum(0).astype(np.uint8),
        "weight_scale": np.ones(1, np.float32),
    }
    return tensors, {"quantization_config": {"quant_method": "bitnet"}}, None


MAKERS: dict[str, tuple[str, Callable[[NDArray[np.float32]], Made]]] = {
    "mlx 4": ("mlx", mlx(4)),
    "mlx 3": ("mlx", mlx(3)),
    "gptq 2": ("gptq", gptq(2)),
    "gptq 3": ("gptq", gptq(3)),
    "gptq 4": ("gptq", gptq(4)),
    "gptq 8": ("gptq", gptq(8)),
    "gptq 4, second form": ("gptq", gptq(4, "gptq_v2")),
    "gptq 3, second form": ("gptq", gptq(3, "gptq_v2")),
    "gptq 4, shuffled": ("gptq", gptq(4, shuffled=True)),
    "awq": ("awq", awq),
    "nf4": ("bitsandbytes", nf4),
    "llm.int8": ("int8", llm_int8),
    "compressed-tensors": ("compressed_tensors", compressed),
    "modelopt": ("modelopt", modelopt),
    "mxfp4": ("mxfp4", mxfp4),
    "eetq": ("eetq", eetq),
    "hqq": ("hqq", hqq),
    "fp8": ("fp8", fp8),
    "torchao": ("torchao", torchao),
    "bitnet": ("bitnet", bitnet),
}


def model(folder: Path, made: Made) -> Path:
    """A model of a plain table, and of a head in a scheme; a norm beside them."""
    tensors, config, _ = made
    named: dict[str, Stored] = {
        "model.embed_tokens.weight": TABLE,
        "model.norm.weight": np.ones(WIDTH, np.float32),
    }
    for leaf, value in tensors.items():
        named[f"lm_head{'' if leaf in ('_blocks', '_scales') else '.'}{leaf}"] = value
    tokens = tuple(f"w{row}" for row in range(N_ROWS))
    return write_checkpoint(folder, named, {"model_type": "llama", **config}, tokens)


def test_every_scheme_is_among_these() -> None:
    assert {scheme for scheme, _ in MAKERS.values()} == set(schemes.SCHEMES)


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_model_counts_the_same_in_every_scheme(tmp_path: Path, name: str) -> None:
    checkpoint = open_checkpoint(model(tmp_path, MAKERS[name][1](TABLE)))
    found = params(checkpoint)
    assert found.parameters == 2 * N_ROWS * WIDTH + WIDTH
    assert not found.partial
    assert found.quantisation_bytes > 0


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_model_has_the_same_neighbours_in_every_scheme(tmp_path: Path, name: str) -> None:
    made = MAKERS[name][1](TABLE)
    checkpoint = open_checkpoint(model(tmp_path, made))
    values = made[2]
    if values is None:
        if name != "mxfp4":  # which packs experts, and is taken for no head
            with pytest.raises(UnsupportedEncodingError, match=r"(?s)Beside it lie .*quantised"):
                checkpoint.table("output", f"lm_head.{next(iter(made[0]))}").rows([0])
        return
    table = checkpoint.table("output")
    assert np.allclose(table.rows(np.arange(N_ROWS)), values, rtol=2e-6, atol=1e-6)
    assert np.array_equal(
        np.concatenate([block.copy() for _, block in table.blocks()]), table.rows(range(N_ROWS))
    )
    for row in range(8):
        (found,) = neighbors(checkpoint, [f"w{row}"], k=1, table="output").results
        assert found.neighbors[0].id == row + 8


def test_zeros_below_nought_borrow_from_the_next_number(tmp_path: Path) -> None:
    """A zero of nought less one: the whole word is moved by one in each part, so that moving it back is exact."""
    tensors, config, _ = gptq(4)(TABLE)
    zeros = np.zeros((N_ROWS, WIDTH // GROUP), np.int64)
    zeros[1::2] = 3
    words = bit_stream(zeros.T, 4) - np.uint32(0x11111111)
    tensors["qzeros"] = words.view(np.int32)
    table = open_checkpoint(model(tmp_path, (tensors, config, None))).table("output")
    numbers, scales, _ = grouped(TABLE, 4)
    assert np.array_equal(table.rows(range(N_ROWS)), held(numbers, scales, zeros))


def test_groups_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    tensors, config, _ = gptq(4)(TABLE)
    tensors["g_idx"] = np.full(WIDTH, 7, np.int32)
    with pytest.raises(DamagedFileError, match="names groups"):
        open_checkpoint(model(tmp_path, (tensors, config, None))).table("output").rows([0])


@pytest.mark.parametrize("leaf", ["weight.absmax", "weight.quant_map"])
def test_scales_that_are_too_few_are_an_error(tmp_path: Path, leaf: str) -> None:
    tensors, config, _ = nf4(TABLE)
    tensors[leaf] = np.asarray(tensors[leaf])[:3]
    with pytest.raises(DamagedFileError, match=r"lm_head\.weight"):
        open_checkpoint(model(tmp_path, (tensors, config, None))).table("output").rows([0])


def test_places_that_are_broken_text_leave_the_count_and_refuse_the_values(tmp_path: Path) -> None:
    tensors, config, _ = nf4(TABLE)
    tensors["weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(b"{]" * 40, np.uint8)
    checkpoint = open_checkpoint(model(tmp_path, (tensors, config, None)))
    assert params(checkpoint).parameters == 2 * N_ROWS * WIDTH + WIDTH
    with pytest.raises(UnsupportedEncodingError, match="absmax"):
        checkpoint.table("output", "lm_head.weight").rows([0])


def test_a_table_stored_twice_counts_once_though_packed(tmp_path: Path) -> None:
    tensors, config, _ = mlx(4)(TABLE)
    named = {
        f"{module}.{leaf}": value
        for module in ("model.embed_tokens", "lm_head")
        for leaf, value in tensors.items()
    }
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, named, {"model_type": "llama", **config}))
    assert checkpoint.table("output").has_same_values(checkpoint.table("input"))
    found = params(checkpoint)
    assert found.parameters == N_ROWS * WIDTH
    assert [copy.tensor for copy in found.tied_copies] == ["lm_head.weight"]


def test_packed_tables_differ_where_their_scales_differ(tmp_path: Path) -> None:
    tensors, config, _ = mlx(4)(TABLE)
    named = {
        f"{module}.{leaf}": value
        for module in ("model.embed_tokens", "lm_head")
        for leaf, value in tensors.items()
    }
    named["lm_head.scales"] = 2 * np.asarray(tensors["scales"])
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, named, {"model_type": "llama", **config}))
    assert not checkpoint.table("output").has_same_values(checkpoint.table("input"))
    assert params(checkpoint).parameters == 2 * N_ROWS * WIDTH
