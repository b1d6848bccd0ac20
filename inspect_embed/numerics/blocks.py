"""Numbers that share their scale with their neighbours: what does a run of packed blocks hold?

A block is a record of a few bytes: one or two half-precision factors, and small whole numbers packed into bits. The
"K" kinds hold 256 numbers in 8 or 16 groups, whose own scales are whole numbers too. Every product and sum is rounded
to float32 in the order in which the reference rounds it, so that results are equal bit for bit.

Source: ggml, ggml-common.h (the layouts) and ggml-quants.c, dequantize_row_* (the arithmetic).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Records = NDArray[Any]
Numbers = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Packing:
    """How the numbers of a block are packed: its record, how many numbers it holds, and what unpacks it."""

    record: np.dtype[Any]
    n_elements: int
    unpack: Callable[[Records, Numbers], None]
    """Records (n,) into numbers (n, n_elements)."""


def unpack(kind: str, data: memoryview, out: Numbers) -> None:
    """What numbers do these whole blocks hold? Written into `out`, flat float32, as long as they are many."""
    packing = PACKINGS[kind]
    records = np.frombuffer(data, packing.record)
    # A factor that is infinite or not a number makes numbers that are not finite: rows say so themselves.
    with np.errstate(invalid="ignore", over="ignore"):
        packing.unpack(records, out.reshape(len(records), packing.n_elements))


def _factor(column: NDArray[Any]) -> Numbers:
    """A column of half-precision numbers as float32 (n, 1)."""
    return column.astype(np.float32)[:, None]


def _spread(packed: NDArray[np.uint8], bits: int, out: Numbers, groups: int = 1) -> None:
    """Parts of each byte, lowest first: all the lowest parts of a group of bytes, then all the next ones.

    `packed` (n, m) into `out` (n, m x 8 / bits); bytes are taken in `groups` equal groups, one after the other.
    """
    n = len(packed)
    parts, mask = 8 // bits, np.uint8((1 << bits) - 1)
    source = packed.reshape(n, groups, -1)
    target = out.reshape(n, groups, parts, -1)
    for part in range(parts):
        np.bitwise_and(source >> np.uint8(part * bits), mask, out=target[:, :, part], casting="unsafe")


def _spread_bits(mask: NDArray[np.uint8], value: float) -> Numbers:
    """`value` where a bit is set, else 0: (n, 32 bytes) into (n, 8 bits, 32)."""
    bits = (mask[:, None, :] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return bits * np.float32(value)


def _fifth_bits(high: NDArray[np.uint8], out: Numbers) -> None:
    """Add 16 to each of 32 numbers whose bit is set: `high` (n, 4 bytes), `out` (n, 32)."""
    out += np.unpackbits(high, axis=1, bitorder="little") * np.float32(16)


def _unpack_q4_0(blocks: Records, out: Numbers) -> None:
    _spread(blocks["q"], 4, out)
    out -= 8
    out *= _factor(blocks["d"])


def _unpack_q4_1(blocks: Records, out: Numbers) -> None:
    _spread(blocks["q"], 4, out)
    out *= _factor(blocks["d"])
    out += _factor(blocks["m"])


def _unpack_q5_0(blocks: Records, out: Numbers) -> None:
    _spread(blocks["q"], 4, out)
    _fifth_bits(blocks["h"], out)
    out -= 16
    out *= _factor(blocks["d"])


def _unpack_q5_1(blocks: Records, out: Numbers) -> None:
    _spread(blocks["q"], 4, out)
    _fifth_bits(blocks["h"], out)
    out *= _factor(blocks["d"])
    out += _factor(blocks["m"])


def _unpack_q8_0(blocks: Records, out: Numbers) -> None:
    out[...] = blocks["q"]
    out *= _factor(blocks["d"])


def _unpack_q2_k(blocks: Records, out: Numbers) -> None:
    _spread(blocks["q"], 2, out, groups=2)
    scales = blocks["scales"]
    groups = out.reshape(len(blocks), 16, 16)
    groups *= (_factor(blocks["d"]) * (scales & 15).astype(np.float32))[:, :, None]
    groups -= (_factor(blocks["m"]) * (scales >> 4).astype(np.float32))[:, :, None]


def _unpack_q3_k(blocks: Records, out: Numbers) -> None:
    # Four is taken away where the high bit is not set.
    _spread(blocks["q"], 2, out, groups=2)
    out += _spread_bits(blocks["h"], 4).reshape(out.shape)
    out -= 4
    packed = blocks["scales"]
    low, high = packed[:, :8], packed[:, 8:]
    scales = np.empty((len(blocks), 16), np.uint8)
    scales[:, :8], scales[:, 8:] = low & 15, low >> 4
    for part in range(4):
        scales[:, 4 * part : 4 * part + 4] |= ((high >> (2 * part)) & 3) << 4
    groups = out.reshape(len(blocks), 16, 16)
    groups *= (_factor(blocks["d"]) * (scales.astype(np.float32) - 32))[:, :, None]


def _scales_and_minima(packed: NDArray[np.uint8]) -> tuple[Numbers, Numbers]:
    """Eight scales and eight minima of 6 bits each, from 12 bytes: float32 (n, 8) twice."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 2) & 48)], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | ((second >> 2) & 48)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _unpack_q4_k(blocks: Records, out: Numbers) -> None:
    _spread(blocks["q"], 4, out, groups=4)
    _scale_k(blocks, out)


def _unpack_q5_k(blocks: Records, out: Numbers) -> None:
    _spread(blocks["q"], 4, out, groups=4)
    out += _spread_bits(blocks["h"], 16).reshape(out.shape)
    _scale_k(blocks, out)


def _scale_k(blocks: Records, out: Numbers) -> None:
    scales, minima = _scales_and_minima(blocks["scales"])
    groups = out.reshape(len(blocks), 8, 32)
    groups *= (_factor(blocks["d"]) * scales)[:, :, None]
    groups -= (_factor(blocks["m"]) * minima)[:, :, None]


def _unpack_q6_k(blocks: Records, out: Numbers) -> None:
    _spread(blocks["q"], 4, out, groups=2)
    high = np.empty_like(out)
    _spread(blocks["h"], 2, high, groups=2)
    high *= 16
    out += high
    out -= 32
    groups = out.reshape(len(blocks), 16, 16)
    groups *= (_factor(blocks["d"]) * blocks["scales"].astype(np.float32))[:, :, None]


_FP4 = np.array((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), np.float32)
"""Twice the values of a 4-bit float with two bits of exponent and one of fraction; minus zero is zero."""


def _half_powers_of_two() -> Numbers:
    """Half of 2^(e - 127) for each byte e; the two smallest are below the normal numbers."""
    exponents = np.arange(256, dtype=np.int64)
    return np.ldexp(np.float64(1), exponents - 128).astype(np.float32)


_HALF_POWERS = _half_powers_of_two()


def _unpack_mxfp4(blocks: Records, out: Numbers) -> None:
    """Blocks of 32 with one power of two: half of it times twice the value.

    Source: OCP Microscaling Formats (MX) Specification, version 1.0, sections 5.2 and 5.3.
    """
    halves = out.reshape(len(blocks), 2, 16)
    np.take(_FP4, blocks["q"] & np.uint8(15), out=halves[:, 0])
    np.take(_FP4, blocks["q"] >> np.uint8(4), out=halves[:, 1])
    out *= _HALF_POWERS[blocks["e"]][:, None]


def _record(*fields: tuple[str, str, int]) -> np.dtype[Any]:
    return np.dtype([(name, kind, (n,)) if n > 1 else (name, kind) for name, kind, n in fields])


_D, _M = ("d", "<f2", 1), ("m", "<f2", 1)

PACKINGS = {
    "Q4_0": Packing(_record(_D, ("q", "u1", 16)), 32, _unpack_q4_0),
    "Q4_1": Packing(_record(_D, _M, ("q", "u1", 16)), 32, _unpack_q4_1),
    "Q5_0": Packing(_record(_D, ("h", "u1", 4), ("q", "u1", 16)), 32, _unpack_q5_0),
    "Q5_1": Packing(_record(_D, _M, ("h", "u1", 4), ("q", "u1", 16)), 32, _unpack_q5_1),
    "Q8_0": Packing(_record(_D, ("q", "i1", 32)), 32, _unpack_q8_0),
    "Q2_K": Packing(_record(("scales", "u1", 16), ("q", "u1", 64), _D, _M), 256, _unpack_q2_k),
    "Q3_K": Packing(_record(("h", "u1", 32), ("q", "u1", 64), ("scales", "u1", 12), _D), 256, _unpack_q3_k),
    "Q4_K": Packing(_record(_D, _M, ("scales", "u1", 12), ("q", "u1", 128)), 256, _unpack_q4_k),
    "Q5_K": Packing(
        _record(_D, _M, ("scales", "u1", 12), ("h", "u1", 32), ("q", "u1", 128)), 256, _unpack_q5_k
    ),
    "Q6_K": Packing(_record(("q", "u1", 128), ("h", "u1", 64), ("scales", "i1", 16), _D), 256, _unpack_q6_k),
    "MXFP4": Packing(_record(("e", "u1", 1), ("q", "u1", 16)), 32, _unpack_mxfp4),
}
"""Every packing that can be read, by name."""
