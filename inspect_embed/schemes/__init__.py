"""How quantised numbers are packed: one file a scheme.

A scheme offers `NAME`; `logical_shape`, which tells how many numbers a packed tensor stands for, and in which shape; and
`open_rows`, which unpacks the rows of a table as the scheme's own code does, or says None where it cannot. A packed
tensor that no scheme knows is listed as such: it is never counted as it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from inspect_embed.errors import DamagedFileError
from inspect_embed.formats import TensorEntry, TensorSet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMES = (
    "mlx", "gptq", "awq", "bitsandbytes", "int8", "compressed_tensors", "modelopt", "mxfp4", "eetq", "hqq", "torchao",
    "bitnet", "fp8",
)  # fmt: skip
"""The modules of this package, one a scheme, in the order in which they are asked."""

COMPANIONS = (
    "scales", "biases", "qzeros", "g_idx", "SCB", "weight_format", "absmax", "zeros", "zero_point", "scale", "scale_inv",
    "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_scales", "weight_zero_point", "weight_shape",
    "weight_g_idx", "weight_global_scale", "weight.SCB", "weight_scb", "input_scale", "input_zero_point",
    "input_global_scale", "output_scale", "scale_weight", "scale_input", "k_scale", "v_scale", "activation_scale",
    "pre_quant_scale", "_weight_scale", "_weight_zero_point",
)  # fmt: skip
"""What lies beside a packed or scaled weight in its module: quantisation data, no parameters."""

STATES = (
    "absmax", "quant_map", "nested_absmax", "nested_quant_map", "quant_state.bitsandbytes__nf4",
    "quant_state.bitsandbytes__fp4",
)  # fmt: skip
"""What lies below the name of a weight itself: `down_proj.weight.absmax`."""

COMPANIONS_OF = {
    "W_q": (
        "scale", "zero", "shape", "nbits", "group_size", "axis", "packing", "unpack_view_dtype", "view_as_float",
        "quant_scale", "quant_zero", "compute_dtype", "offload_meta", "encoded_state_dict", "stores_quant_config",
        "channel_wise", "optimize", "round_zero",
    ),
}  # fmt: skip
"""Further companions of weights of one name, called by words that mean other things elsewhere."""

WEIGHTS = ("weight", "qweight", "weight_packed", "W_q")
"""Names of packed weights in their module."""

STEM_SUFFIXES = ("_blocks", "_packed")
"""Ends of names of packed weights that are no module: `down_proj_blocks` beside `down_proj_scales`."""


_DIGITS = str.maketrans("", "", "0123456789")

INTEGERS = ("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64")
"""Encodings of whole numbers."""


class PackedRows(NamedTuple):
    """The rows of a packed table.

    `read` unpacks rows start to stop into new float32 numbers (stop - start, width). `companions` are the tensors that
    were needed for it.
    """

    scheme: str
    n_rows: int
    width: int
    companions: tuple[TensorEntry, ...]
    read: Callable[[int, int], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Module:
    """A packed weight, and what lies beside it: what a scheme may look at."""

    weight: TensorEntry
    beside: Mapping[str, TensorEntry]
    config: Mapping[str, Any]
    tensors: TensorSet
    remembered: dict[object, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The name of the module, without its last dot."""
        return self.weight.name.rpartition(".")[0]

    @property
    def quantisation(self) -> Mapping[str, Any]:
        """What the config says of the quantisation; {} where it says nothing."""
        text = self.config.get("text_config")
        for config in (self.config, text if isinstance(text, Mapping) else {}):
            for key in ("quantization_config", "quantization", "compression_config"):
                said = config.get(key)
                if isinstance(said, Mapping):
                    return said
        return {}

    def ask_once(self, question: str, read: Callable[[], Any]) -> Any:
        """What reading answers, asked once for modules of one kind and shape.

        Layers that differ in their numbers alone are alike, and reading a few bytes in each of ten thousands is slow.
        """
        key = (question, self.weight.name.translate(_DIGITS), self.weight.shape)
        if key not in self.remembered:
            self.remembered[key] = read()
        return self.remembered[key]

    def whole_numbers(self, leaf: str) -> tuple[int, ...] | None:
        """The few whole numbers that a writer noted beside the weight; None where they are not there."""
        entry = self.beside.get(leaf)
        if entry is None or entry.encoding.name not in INTEGERS or entry.n_elements > 8:
            return None
        size = entry.encoding.block_bytes
        signed = entry.encoding.name.startswith("I")
        try:
            data = self.tensors.read(entry, 0, entry.n_bytes)
        except DamagedFileError:
            return None
        return tuple(
            int.from_bytes(data[at : at + size], "little", signed=signed) for at in range(0, len(data), size)
        )

    def array(self, entry: TensorEntry, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """The numbers in rows start to stop of a tensor, as they lie; floats as float32. Shape (rows, ...)."""
        import numpy as np

        n_rows = entry.shape[0] if entry.shape else 1
        row = entry.n_bytes // n_rows if n_rows else 0
        stop = n_rows if stop is None else stop
        data = self.tensors.read(entry, start * row, stop * row)
        name = entry.encoding.name
        if name in INTEGERS:
            kind = "i" if name.startswith("I") else "u"
            flat: NDArray[Any] = np.frombuffer(data, f"<{kind}{entry.encoding.block_bytes}")
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                flat = np.asarray(entry.encoding.decode(data), np.float32)
        return flat.reshape(stop - start, *entry.shape[1:])


class _Scheme(Protocol):
    """What a module of this package offers."""

    NAME: str

    def logical_shape(self, module: Module) -> tuple[int, ...] | None:
        """The shape that this weight stands for; None where it is not packed so."""
        ...

    def open_rows(self, module: Module) -> PackedRows | None:
        """The rows of this weight as a table (rows, columns); None where they cannot be unpacked."""
        ...


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


def find_packing(tensors: TensorSet, config: Mapping[str, Any], left_out: Iterable[str] = ()) -> Packing:
    """Which tensors are packed, and how many numbers does each stand for? `left_out`: names of buffers."""
    buffers = set(left_out)
    return read_packing(
        tensors,
        config,
        (
            name
            for names, encodings, _ in tensors.batches()
            for name, code in zip(names, encodings, strict=True)
            if is_suspect(code) and name not in buffers
        ),
    )


def read_packing(tensors: TensorSet, config: Mapping[str, Any], names: Iterable[str]) -> Packing:
    """Which tensors are packed, and how many numbers does each stand for?

    `names`: the tensors in encodings that `is_suspect`, those left out that are known to be buffers.
    """
    suspects = [tensors[name] for name in names]
    weights = {entry.name: entry for entry in suspects if _is_weight(entry)}
    hidden = {entry.name: entry for entry in _hidden_weights(tensors, suspects)}
    weights |= hidden
    beside = {name: dict(_beside(tensors, name)) for name in weights}
    companions = {full: name for name, found in beside.items() for full in found.values()}
    remembered: dict[object, Any] = {}
    known: dict[str, tuple[int, ...]] = {}
    unknown: list[str] = []
    schemes: dict[str, None] = {}
    ready = _load_schemes()
    for name, entry in weights.items():
        if name in companions or not (_is_integer(entry) or name in hidden):
            continue
        found = {leaf: tensors[full] for leaf, full in beside[name].items()}
        module = Module(entry, found, config, tensors, remembered)
        for scheme in ready:
            shape = scheme.logical_shape(module)
            if shape is not None:
                known[name] = shape
                schemes[scheme.NAME] = None
                break
        else:
            unknown.append(name)
    # 8-bit floats count as they lie, however they are scaled: one of them tells the scheme.
    scaled = next((w for w in companions.values() if tensors[w].encoding.name.startswith("F8")), None)
    if scaled is not None:
        module = _module(tensors, tensors[scaled], config)
        schemes.update((scheme.NAME, None) for scheme in ready if scheme.logical_shape(module) is not None)
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


def open_rows(tensors: TensorSet, weight: TensorEntry, config: Mapping[str, Any]) -> PackedRows | None:
    """The rows of a packed table, unpacked when they are read; None where it is not packed, or cannot be unpacked."""
    if not _is_integer(weight) and f"{weight.name}.absmax" not in tensors:
        return None
    module = _module(tensors, weight, config)
    for scheme in _load_schemes():
        if scheme.logical_shape(module) is not None:
            return scheme.open_rows(module)
    return None


def find_companions(tensors: TensorSet, weight: TensorEntry) -> list[str]:
    """Names of the quantisation data that lie beside a weight."""
    return list(dict(_beside(tensors, weight.name)).values())


def module_path(name: str) -> str:
    """The module that a weight lies in, with its dot; for `down_proj_blocks`, what is before its suffix."""
    for suffix in STEM_SUFFIXES:
        if name.endswith(suffix) and not name.endswith(".weight_packed"):
            return name.removesuffix(suffix) + "_"
    return name[: name.rfind(".") + 1]


def _load_schemes() -> list[_Scheme]:
    return [cast(_Scheme, import_module(f"{__name__}.{name}")) for name in SCHEMES]


def _is_integer(entry: TensorEntry) -> bool:
    return entry.encoding.name in INTEGERS


def _is_weight(entry: TensorEntry) -> bool:
    """A tensor of integers is packed when it is called a weight or is a matrix; 8-bit floats have scales beside them."""
    last = entry.name.rpartition(".")[2]
    if last in COMPANIONS:
        return False
    return last in WEIGHTS or last.endswith(STEM_SUFFIXES) or len(entry.shape) >= 2


def _hidden_weights(tensors: TensorSet, suspects: Iterable[TensorEntry]) -> list[TensorEntry]:
    """Packed weights whose bytes are stored under the encoding of a float; what lies below their names tells."""
    names = (entry.name.partition(".quant_state.bitsandbytes__") for entry in suspects)
    found = (tensors[weight] for weight, mark, _ in names if mark and weight in tensors)
    return [entry for entry in found if not is_suspect(entry.encoding.name)]


def _beside(tensors: TensorSet, weight: str) -> Iterator[tuple[str, str]]:
    """What lies beside a weight: the name in its module, and the whole name."""
    path = module_path(weight)
    leaf = weight.rpartition(".")[2]
    for name in (*COMPANIONS, *COMPANIONS_OF.get(leaf, ())):
        if path + name in tensors and path + name != weight:
            yield name, path + name
    for name in STATES:
        if f"{weight}.{name}" in tensors:
            yield f"weight.{name}", f"{weight}.{name}"
    if leaf != "weight":
        for name in ("scale", "scale_inv", "scales", "zero_point"):
            if f"{weight}_{name}" in tensors:
                yield f"weight_{name}", f"{weight}_{name}"


def _module(tensors: TensorSet, weight: TensorEntry, config: Mapping[str, Any]) -> Module:
    beside = {leaf: tensors[full] for leaf, full in _beside(tensors, weight.name)}
    return Module(weight, beside, config, tensors)
