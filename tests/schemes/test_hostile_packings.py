"""Whatever lies beside a packed weight, it is counted or not, read or refused: never a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import write_checkpoint

from inspect_embed import info, open_checkpoint, params
from inspect_embed.errors import InspectEmbedError
from inspect_embed.schemes import COMPANIONS, COMPANIONS_OF, STATES, WEIGHTS

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
LIKELY = ("scales", "biases", "qzeros", "g_idx", "weight_scale", "weight_shape", "weight_zero_point", "SCB")
LEAVES = st.sampled_from(
    (
        *LIKELY, *LIKELY, *COMPANIONS, *COMPANIONS_OF["W_q"], *(f"weight.{state}" for state in STATES),
    )
)  # fmt: skip
SHAPES = st.lists(st.sampled_from((0, 1, 2, 3, 4, 8, 16, 32, 64)), max_size=3).map(tuple)
STATE = st.sampled_from(
    (b"", b"{]", b"[]", b'{"shape": [8, 8], "blocksize": 64, "dtype": "float16"}', b'{"shape": [-8, -8]}',
     b'{"shape": [8, 8], "blocksize": 0, "dtype": "float16"}', b'{"shape": "8", "blocksize": 1e9}', b"[" * 3000)
)  # fmt: skip
CONFIGS = st.sampled_from(
    (
        {}, {"quantization": {"group_size": 32, "bits": 4}}, {"quantization_config": {"bits": 4, "quant_method": "gptq"}},
        {"quantization_config": {"config_groups": {"a": {"weights": {"num_bits": 4, "group_size": 16}}}}},
        {"quantization_config": {"config_groups": {"a": {"weights": 3}, "b": None}}}, {"quantization_config": [1]},
        {"quantization_config": {"quant_method": "bitnet"}}, {"quantization": {"group_size": "many", "bits": None}},
        {"quantization_config": {"quant_method": "auto-round", "packing_format": 7, "bits": [4]}},
    )
)  # fmt: skip


@settings(max_examples=400)
@given(
    weight=st.sampled_from((*WEIGHTS, "up_blocks", "_weight_qdata")),
    encoding=st.sampled_from((*SIZES, "I32", "U32", "U8", "I8")),
    shape=st.lists(st.sampled_from((1, 2, 4, 8, 16, 32)), min_size=2, max_size=3).map(tuple),
    beside=st.dictionaries(LEAVES, st.tuples(st.sampled_from(tuple(SIZES)), SHAPES), max_size=5),
    state=STATE,
    config=CONFIGS,
    filling=st.integers(0, 255),
)
def test_nothing_beside_a_weight_makes_it_crash(
    tmp_path_factory: pytest.TempPathFactory,
    weight: str,
    encoding: str,
    shape: tuple[int, ...],
    beside: dict[str, tuple[str, tuple[int, ...]]],
    state: bytes,
    config: dict[str, Any],
    filling: int,
) -> None:
    tensors: dict[str, Any] = {}
    for leaf, (code, size) in {weight: (encoding, shape), **beside}.items():
        tensors[f"m.{leaf}"] = (code, size, bytes([filling]) * int(np.prod(size) * SIZES[code]))
    if any("quant_state" in leaf for leaf in beside):
        tensors["m.weight.quant_state.bitsandbytes__nf4"] = ("U8", (len(state),), state)
    checkpoint = open_checkpoint(write_checkpoint(tmp_path_factory.mktemp("made"), tensors, config))
    found = params(checkpoint)
    assert found.parameters >= 0
    info(checkpoint)
    try:
        table = checkpoint.table(tensor=f"m.{weight}")
        rows = table.rows([0, table.n_rows - 1])
    except InspectEmbedError:
        return
    assert rows.shape == (2, table.width)
    held = np.concatenate([block.copy() for _, block in table.blocks()])
    assert held.shape == (table.n_rows, table.width)
    assert np.array_equal(held[[0, -1]], rows, equal_nan=True)
