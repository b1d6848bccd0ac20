"""bitsandbytes in 4 bits, NF4 and FP4: two numbers to a byte, with the largest absolute value of each run of numbers.

A weight is flattened, cut into runs (of 64, mostly), and stored as bytes (n / 2, 1), the first number in the upper half; it
may also be stored under the encoding of a float, as the same bytes. Below its name lie absmax (one for each run), quant_map
(16 values), and quant_state, bytes of JSON with its shape, encoding and size of run. With double quantisation absmax is
bytes itself, each a place in nested_quant_map (256 values), times nested_absmax of its run, plus nested_offset.

Source: bitsandbytes, functional.py (QuantState.as_dict, quantize_4bit, dequantize_4bit), nn/modules.py (Params4bit).
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from inspect_embed.errors import DamagedFileError
from inspect_embed.schemes import Module, PackedRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "bitsandbytes 4 bits"
KINDS = ("nf4", "fp4")
_LONGEST_STATE = 1 << 16
_ENCODINGS = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}


def logical_shape(module: Module) -> tuple[int, ...] | None:
    """The shape that the state beside the weight tells, or that of a flat tensor; None where there is no state.

    Where the state cannot be read, the bytes tell: two numbers each.
    """
    if "weight.absmax" not in module.beside or _state_entry(module) is None:
        return None
    held = 2 * module.weight.n_bytes
    shape = module.ask_once("state", lambda: _read_state(module)).get("shape")
    if isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape):
        stated = tuple(shape)
        if held - math.prod(stated) in (0, 1):
            return stated
    return (held,)


def open_rows(module: Module) -> PackedRows | None:
    """The value that four bits choose, times the largest one of the run, rounded to the encoding that the model had."""
    shape, state = logical_shape(module), _read_state(module)
    size, target = state.get("blocksize"), _ENCODINGS.get(str(state.get("dtype")))
    needed = [module.beside.get(f"weight.{name}") for name in ("quant_map", "absmax")]
    if (
        shape is None
        or len(shape) != 2
        or type(size) is not int
        or size < 1
        or target is None
        or None in needed
    ):
        return None
    n_rows, width = shape
    kept: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []

    def read(start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        from inspect_embed.numerics.bits import round_to, unpack_pairs

        if not kept:
            kept.append((_read_values(module, "weight.quant_map", 16), _read_largest(module, state)))
        values, largest = kept[0]
        first, last = start * width, stop * width
        if -(-n_rows * width // size) > len(largest):
            raise DamagedFileError(f"{module.weight.name} has fewer scales than runs of {size} numbers.")
        data = np.frombuffer(module.tensors.read(module.weight, first // 2, -(-last // 2)), np.uint8)
        places = unpack_pairs(data, high_first=True)[first % 2 : first % 2 + last - first]
        with np.errstate(over="ignore", invalid="ignore"):
            product = values[places] * largest[np.arange(first, last) // size]
        return round_to(target, product).reshape(stop - start, width)

    return PackedRows(
        f"bitsandbytes {str(state.get('quant_type', '4 bits')).upper()}",
        n_rows,
        width,
        tuple(entry for leaf, entry in module.beside.items() if leaf.startswith("weight.")),
        read,
    )


def _state_entry(module: Module) -> Any:
    found = (module.beside.get(f"weight.quant_state.bitsandbytes__{kind}") for kind in KINDS)
    return next((entry for entry in found if entry is not None), None)


def _read_state(module: Module) -> dict[str, Any]:
    """What the writer noted beside the weight; {} where it cannot be read."""
    entry = _state_entry(module)
    if entry is None or entry.n_bytes > _LONGEST_STATE:
        return {}
    try:
        state = json.loads(bytes(module.tensors.read(entry, 0, entry.n_bytes)))
    except (ValueError, RecursionError, DamagedFileError):
        return {}
    return state if isinstance(state, dict) else {}


def _read_values(module: Module, leaf: str, number: int) -> NDArray[np.float32]:
    import numpy as np

    entry = module.beside.get(leaf)
    if entry is None or entry.encoding.name != "F32" or entry.n_elements < number:
        raise DamagedFileError(
            f"{module.weight.name} cannot be unpacked: it has no {leaf.removeprefix('weight.')} of {number} "
            "numbers in F32.",
            "Fetch the file again.",
        )
    return np.asarray(module.array(entry), np.float32).ravel()


def _read_largest(module: Module, state: dict[str, Any]) -> NDArray[np.float32]:
    """The largest absolute value of each run."""
    import numpy as np

    entry = module.beside["weight.absmax"]
    if entry.encoding.name != "U8":
        return _read_values(module, "weight.absmax", 1)
    size, offset = state.get("nested_blocksize"), state.get("nested_offset")
    if type(size) is not int or size < 1 or not isinstance(offset, int | float):
        raise DamagedFileError(f"{module.weight.name} cannot be unpacked: its state tells nothing of absmax.")
    places = module.array(entry).ravel()
    values = _read_values(module, "weight.nested_quant_map", 256)
    nested = _read_values(module, "weight.nested_absmax", -(-len(places) // size))
    largest: NDArray[np.float32] = values[places] * nested[np.arange(len(places)) // size] + np.float32(
        offset
    )
    return largest
