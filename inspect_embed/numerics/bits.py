"""Small whole numbers packed into bits, and the half precisions that they are scaled in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""The values of the 16 patterns of a 4-bit float.

Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.3.3.
"""


def unpack_bits(packed: NDArray[Any], bits: int, count: int) -> NDArray[np.uint8]:
    """Which numbers of `bits` bits (1 to 8) lie in each row, one after the other, lowest bits first?

    `packed` (n, m), little-endian whole numbers of any width; returns (n, count). Numbers may lie across the border of
    two words: word borders mean nothing to them.
    """
    data = np.ascontiguousarray(packed).view(np.uint8)
    if bits == 8:
        return data[:, :count]
    if 8 % bits == 0:
        parts = 8 // bits
        out = np.empty((*data.shape, parts), np.uint8)
        for part in range(parts):
            np.bitwise_and(data >> np.uint8(part * bits), np.uint8((1 << bits) - 1), out=out[:, :, part])
        return out.reshape(len(data), -1)[:, :count]
    single = np.unpackbits(data, axis=1, count=count * bits, bitorder="little")
    return np.packbits(single.reshape(len(data), count, bits), axis=2, bitorder="little")[:, :, 0]


def unpack_pairs(packed: NDArray[np.uint8], high_first: bool) -> NDArray[np.uint8]:
    """Which two 4-bit numbers lie in each byte? `packed` (..., m) into (..., 2 x m)."""
    out = np.empty((*packed.shape, 2), np.uint8)
    out[..., 0 if high_first else 1] = packed >> 4
    out[..., 1 if high_first else 0] = packed & 15
    return out.reshape(*packed.shape[:-1], -1)


def round_to(encoding: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """What do these numbers become where they are kept as F16 or BF16? To the nearest, ties to even; others stay."""
    if encoding == "F16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    if encoding == "BF16":
        words = np.ascontiguousarray(values).view(np.uint32)
        odd = (words >> np.uint32(16)) & np.uint32(1)
        rounded = ((words + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isnan(values), values, rounded)
    return values
