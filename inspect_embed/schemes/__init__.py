"""How quantised numbers are packed: one file a scheme.

A scheme offers `NAME` and `logical_shape`, which tells from shapes and config alone how many numbers a packed
tensor stands for. A packed tensor that no scheme knows is listed as such: it is never counted as it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from inspect_embed.formats import TensorEntry, TensorSet

SCHEMES = ("mlx", "int8")
"""The modules of this package, one a scheme, in the order in which they are asked."""

COMPANIONS = (
    "scales", "biases", "qzeros", "g_idx", "SCB", "weight_format", "absmax", "zeros", "zero_point", "scale", "scale_inv",
    "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_zero_point", "weight_shape", "weight_g_idx",
    "weight_global_scale", "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
    "weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4", "weight.SCB", "weight_scb",
    "input_scale", "input_zero_point", "input_global_scale", "output_scale", "scale_weight", "scale_input", "k_scale",
    "v_scale", "activation_scale",
)  # fmt: skip
"""What lies beside a packed or scaled weight in its module: quantisation data, no parameters."""

WEIGHTS = ("weight", "qweight", "weight_packed", "W_q")
"""Names of packed weights in their module."""

STEM_SUFFIXES = ("_blocks", "_packed")
"""Ends of names of packed weights that are no module: `down_proj_blocks` beside `down_proj_scales`."""


INTEGERS = ("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64")
"""Encodings of whole numbers."""


class Packing(NamedTuple):
    """What is packed in a checkpoint.

    `known`: the logical shape of each packed tensor whose scheme is known. `companions`: quantisation data.
    `unknown`: packed tensors whose scheme is not known. `whole_numbers`: other tensors of integers, which no
    gradient moves. `unknown_companions` are those of the `companions` that lie beside unknown ones.
    """

    known: Mapping[str, tuple[int, ...]]
    companions: tuple[str, ...]
    unknown: tuple[str, ...]
    unknown_companions: tuple[str, ...]
    whole_numbers: tuple[str, ...]
    schemes: tuple[str, ...]


NOTHING_PACKED = Packing({}, (), (), (), (), ())


def is_suspect(encoding: str) -> bool:
    """May a tensor in this encoding be packed, or have scales beside it?"""
    return not encoding.startswith(("F16", "F32", "F64", "BF", "C", "BOOL"))


def read_packing(tensors: TensorSet, config: Mapping[str, Any], names: Iterable[str]) -> Packing:
    """Which tensors are packed, and how many numbers does each stand for?

    `names`: the tensors in encodings that `is_suspect`, those left out that are known to be buffers.
    """
    suspects = [tensors[name] for name in names]
    companions: dict[str, str] = {}
    weights = [entry for entry in suspects if _is_weight(entry)]
    for entry in weights:
        companions.update(dict.fromkeys(_companions(tensors, entry.name), entry.name))
    known: dict[str, tuple[int, ...]] = {}
    unknown: list[str] = []
    schemes: dict[str, None] = {}
    for entry in weights:
        if entry.name in companions or not _is_integer(entry):
            continue
        for scheme, shape in _unpack(tensors, entry, config):
            known[entry.name] = shape
            schemes[scheme] = None
            break
        else:
            unknown.append(entry.name)
    packed = {*known, *unknown}
    spread = set(unknown)
    return Packing(
        known,
        tuple(name for name in companions if name not in packed),
        tuple(unknown),
        tuple(name for name, weight in companions.items() if weight in spread and name not in packed),
        tuple(
            e.name for e in suspects if _is_integer(e) and e.name not in packed and e.name not in companions
        ),
        tuple(schemes),
    )


def module_path(name: str) -> str:
    """The module that a weight lies in, with its dot; for `down_proj_blocks`, what is before its suffix."""
    for suffix in STEM_SUFFIXES:
        if name.endswith(suffix) and not name.endswith(".weight_packed"):
            return name.removesuffix(suffix) + "_"
    return name[: name.rfind(".") + 1]


def _is_integer(entry: TensorEntry) -> bool:
    return entry.encoding.name in INTEGERS


def _is_weight(entry: TensorEntry) -> bool:
    """A tensor of integers is packed when it is called a weight or is a matrix; 8-bit floats have scales beside them."""
    last = entry.name.rpartition(".")[2]
    if last in COMPANIONS:
        return False
    return last in WEIGHTS or last.endswith(STEM_SUFFIXES) or len(entry.shape) >= 2


def _companions(tensors: TensorSet, weight: str) -> Iterator[str]:
    path = module_path(weight)
    candidates = [path + leaf for leaf in COMPANIONS]
    candidates += [f"{weight}_{leaf}" for leaf in ("scale", "scale_inv", "scales", "zero_point")]
    return (name for name in candidates if name != weight and name in tensors)


def _unpack(
    tensors: TensorSet, weight: TensorEntry, config: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    path = module_path(weight.name)
    beside = {leaf: tensors[path + leaf] for leaf in COMPANIONS if path + leaf in tensors}
    for name in SCHEMES:
        scheme = import_module(f"{__name__}.{name}")
        shape = scheme.logical_shape(weight, beside, config)
        if shape is not None:
            yield scheme.NAME, shape
