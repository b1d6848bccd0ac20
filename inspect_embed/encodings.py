"""How numbers lie in bytes: one record for each encoding that a checkpoint may name.

Every encoding can be counted; those with a decoder can be read, exactly: F16, BF16 and the 8-bit
floats widen to float32 without rounding, F32 and F64 are used as they lie, and numbers packed into blocks
are unpacked as the program that packs them does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Decoder = Callable[[memoryview, NDArray[np.float32]], None]


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the numbers of a tensor lie in its bytes.

    `block_elements` numbers share `block_bytes` bytes. `native` is the numpy type of numbers that can be used
    where they lie; `decoder` turns the bytes of whole blocks into float32. An encoding with neither is listed
    and counted, and its values are refused.
    """

    name: str
    block_elements: int
    block_bytes: int
    native: str | None = None
    decoder: Decoder | None = None

    @property
    def readable(self) -> bool:
        """Whether the values can be read as numbers of a vector."""
        return self.native is not None or self.decoder is not None

    @property
    def bits(self) -> float:
        """Bits to an element."""
        return 8 * self.block_bytes / self.block_elements

    def count_bytes(self, n_elements: int) -> int:
        """Bytes that so many elements take; whole blocks."""
        return -(-n_elements // self.block_elements) * self.block_bytes

    def decode(self, data: memoryview, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """What numbers do these bytes hold?

        `data` holds whole blocks. Returns a flat array: for a native encoding a read-only view of `data`
        (float32 or float64), else float32 numbers, written into `out` where one is given.
        """
        import numpy as np

        if self.native is not None:
            return np.frombuffer(data, dtype=self.native)
        if self.decoder is None:
            raise TypeError(f"values in the encoding {self.name} cannot be read")
        if out is None:
            out = np.empty(len(data) // self.block_bytes * self.block_elements, np.float32)
        self.decoder(data, out)
        return out


def _decode_f16(data: memoryview, out: NDArray[np.float32]) -> None:
    import numpy as np

    out[...] = np.frombuffer(data, "<f2")


def _decode_bf16(data: memoryview, out: NDArray[np.float32]) -> None:
    """A bfloat16 is the upper half of a float32."""
    import numpy as np

    np.left_shift(np.frombuffer(data, "<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _decode_8_bits(exponent_bits: int, bias: int, infinities: bool) -> Decoder:
    """A decoder for 8-bit floats, by a table of their 256 values.

    Without infinities only the pattern of all ones is not a number (E4M3, the "fn" kind of the OCP standard).

    Source: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, section 5.
    """
    values: NDArray[np.float32] | None = None

    def decode(data: memoryview, out: NDArray[np.float32]) -> None:
        import numpy as np

        nonlocal values
        if values is None:
            fraction_bits = 7 - exponent_bits
            patterns = np.arange(256)
            exponent = (patterns >> fraction_bits) & ((1 << exponent_bits) - 1)
            fraction = (patterns & ((1 << fraction_bits) - 1)) / 2.0**fraction_bits
            size = np.where(
                exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias)
            )
            if infinities:
                top = exponent == (1 << exponent_bits) - 1
                size[top] = np.where(fraction[top] == 0, np.inf, np.nan)
            else:
                size[(patterns & 0x7F) == 0x7F] = np.nan
            values = np.where(patterns >= 128, -size, size).astype(np.float32)
        # Every byte is in range; "wrap" is the mode that needs no check of it, and many times the fastest.
        np.take(values, np.frombuffer(data, np.uint8), out=out, mode="wrap")

    return decode


def _decode_blocks(kind: str) -> Decoder:
    """A decoder for numbers that share factors with their neighbours."""

    def decode(data: memoryview, out: NDArray[np.float32]) -> None:
        from inspect_embed.numerics.blocks import unpack

        unpack(kind, data, out)

    return decode


ENCODINGS: dict[str, Encoding] = {
    encoding.name: encoding
    for encoding in (
        Encoding("F64", 1, 8, native="<f8"),
        Encoding("F32", 1, 4, native="<f4"),
        Encoding("F16", 1, 2, decoder=_decode_f16),
        Encoding("BF16", 1, 2, decoder=_decode_bf16),
        Encoding("F8_E4M3", 1, 1, decoder=_decode_8_bits(exponent_bits=4, bias=7, infinities=False)),
        Encoding("F8_E5M2", 1, 1, decoder=_decode_8_bits(exponent_bits=5, bias=15, infinities=True)),
        Encoding("F8_E8M0", 1, 1),
        Encoding("F8_E4M3FNUZ", 1, 1),
        Encoding("F8_E5M2FNUZ", 1, 1),
        Encoding("F6_E2M3", 4, 3),
        Encoding("F6_E3M2", 4, 3),
        Encoding("F4", 2, 1),
        Encoding("I64", 1, 8),
        Encoding("U64", 1, 8),
        Encoding("I32", 1, 4),
        Encoding("U32", 1, 4),
        Encoding("I16", 1, 2),
        Encoding("U16", 1, 2),
        Encoding("I8", 1, 1),
        Encoding("U8", 1, 1),
        Encoding("BOOL", 1, 1),
        Encoding("C64", 1, 8),
        Encoding("C128", 1, 16),
        Encoding("Q4_0", 32, 18, decoder=_decode_blocks("Q4_0")),
        Encoding("Q4_1", 32, 20, decoder=_decode_blocks("Q4_1")),
        Encoding("Q5_0", 32, 22, decoder=_decode_blocks("Q5_0")),
        Encoding("Q5_1", 32, 24, decoder=_decode_blocks("Q5_1")),
        Encoding("Q8_0", 32, 34, decoder=_decode_blocks("Q8_0")),
        Encoding("Q2_K", 256, 84, decoder=_decode_blocks("Q2_K")),
        Encoding("Q3_K", 256, 110, decoder=_decode_blocks("Q3_K")),
        Encoding("Q4_K", 256, 144, decoder=_decode_blocks("Q4_K")),
        Encoding("Q5_K", 256, 176, decoder=_decode_blocks("Q5_K")),
        Encoding("Q6_K", 256, 210, decoder=_decode_blocks("Q6_K")),
        Encoding("MXFP4", 32, 17, decoder=_decode_blocks("MXFP4")),
        Encoding("Q1_0", 128, 18),
        Encoding("Q8_1", 32, 40),
        Encoding("Q8_K", 256, 292),
        Encoding("IQ1_S", 256, 50),
        Encoding("IQ1_M", 256, 56),
        Encoding("IQ2_XXS", 256, 66),
        Encoding("IQ2_XS", 256, 74),
        Encoding("IQ2_S", 256, 82),
        Encoding("IQ3_XXS", 256, 98),
        Encoding("IQ3_S", 256, 110),
        Encoding("IQ4_NL", 32, 18),
        Encoding("IQ4_XS", 256, 136),
        Encoding("TQ1_0", 256, 54),
        Encoding("TQ2_0", 256, 66),
        Encoding("NVFP4", 64, 36),
    )
}
"""Every encoding that a file may name, by name.

Source: the safetensors format; ggml, ggml-common.h, for those of blocks.
"""

READABLE = tuple(name for name, encoding in ENCODINGS.items() if encoding.readable)
