"""How many parameters does a checkpoint hold, and which share of them is the token table?"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from inspect_embed import parts as names_of
from inspect_embed.checkpoint import Checkpoint
from inspect_embed.encodings import ENCODINGS
from inspect_embed.errors import DamagedFileError, shorten
from inspect_embed.families import judge_buffers, nested_configs
from inspect_embed.formats import TensorEntry, TensorSet
from inspect_embed.parts import EXPERTS, PARTS, TABLES
from inspect_embed.report import Report, Result
from inspect_embed.schemes import NOTHING_PACKED, Packing, find_companions, find_packing, is_suspect

WAYS = ("part", "layer", "module", "tensor", "encoding")
"""By what parameters can be grouped."""

OUTSIDE_LAYERS = "outside the layers"
_ROUTED = "experts, routed"
_FIRST_BLOCK, _BLOCK = 4096, 1 << 20

# Where the configs of different families say how many experts there are, and how many see a token.
_EXPERT_KEYS = (
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "n_experts",
)  # fmt: skip
_CHOSEN_KEYS = (
    "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts", "experts_top_k",
    "num_selected_experts", "router_top_k", "moe_router_topk", "num_experts_per_topk", "n_experts_per_token",
)  # fmt: skip
_EXPERT_CONFIGS = ("ffn_config", "moe_config", "moe")


@dataclass(frozen=True)
class BufferCount:
    """A tensor in the files that is no parameter, and why."""

    tensor: str
    elements: int
    shape: tuple[int, ...]
    bytes: int
    reason: str


@dataclass(frozen=True)
class TiedCopy:
    """A table that lies in the files twice."""

    tensor: str
    same_as: str
    elements: int
    bytes: int


@dataclass(frozen=True)
class Part:
    """A part of the model; shares are fractions, `share_without_embeddings` is None for tables that are looked up.

    `bytes` are those on disk, with the scales of quantised data.
    """

    part: str
    parameters: int
    share: float
    share_without_embeddings: float | None
    bytes: int


@dataclass(frozen=True)
class Group:
    """The parameters of one layer, module, tensor or encoding."""

    group: str
    parameters: int
    share: float
    bytes: int
    tensors: int


@dataclass(frozen=True)
class Params(Result):
    """The ledger of a checkpoint.

    parameters = stored_elements - those of buffers - those of tied_copies - packed_elements + unpacked.

    `unpacked`: what packed tensors stand for, less what they and their scales store. `packed_elements`: stored
    elements of tensors whose packing is not known, which stand for an unknown number of parameters.
    `quantisation_bytes`: those of scales and the like. `bits_per_parameter`: bits on disk of the parameters and their
    scales; None where nothing is packed, or parameters are missing from the count. `partial`:
    whether parameters are missing from the count. `active_parameters`: those that one token passes through; None
    where there are no experts, or the config does not say how many see a token.
    """

    checkpoint: str
    parameters: int
    stored_elements: int
    buffers: tuple[BufferCount, ...]
    tied_copies: tuple[TiedCopy, ...]
    unpacked: int
    parts: tuple[Part, ...]
    active_parameters: int | None
    partial: bool
    notes: tuple[str, ...] = ()
    packed_elements: int = 0
    packed_tensors: tuple[str, ...] = ()
    quantisation: str = ""
    missing_files: tuple[str, ...] = ()
    parameters_without_embeddings: int = 0
    by: str = "part"
    groups: tuple[Group, ...] = ()
    quantisation_bytes: int = 0
    bits_per_parameter: float | None = None

    def report(self) -> Report:
        """The ledger, then the parts or groups; the figure shows the shares of the parts."""
        from inspect_embed.analyses._params_shown import describe

        return describe(self)


@dataclass(frozen=True)
class ParamsSideBySide(Result):
    """The ledgers of several checkpoints."""

    checkpoints: tuple[Params, ...]

    def report(self) -> Report:
        """A column for each checkpoint: the ledgers, then the shares."""
        from inspect_embed.analyses._params_shown import describe_side_by_side

        return describe_side_by_side(self)


def params(
    checkpoint: Checkpoint, *, by: str = "part", tensor: str | None = None, headers_only: bool = False
) -> Params:
    """How many parameters does this checkpoint hold, and which share of them is each part?

    Buffers (masks, row numbers, running statistics and the like) are left out and listed; tables whose bytes are
    equal count once; packed tensors count as what they stand for, and not at all where their packing is not known
    (`partial` is then True, as it is when files are missing).

    `by`: "part", or also by "layer", "module", "tensor" or "encoding". `tensor`: take this one as the token table.
    `headers_only`: do not compare tables; tables stored apart then count apart.

    Cost: the headers, and the bytes of tables of the same shape up to their first difference.

    >>> found = params(open_checkpoint("checkpoints/toy"))
    >>> found.parameters
    1334016
    """
    if by not in WAYS:
        raise ValueError(f"by must be one of {WAYS}, not {by!r}")
    return _count(checkpoint, by, tensor, headers_only)


def params_side_by_side(
    checkpoints: Sequence[Checkpoint],
    *,
    by: str = "part",
    tensor: str | None = None,
    headers_only: bool = False,
) -> ParamsSideBySide:
    """How do the ledgers of these checkpoints compare? The options are those of `params`."""
    return ParamsSideBySide(
        tuple(params(found, by=by, tensor=tensor, headers_only=headers_only) for found in checkpoints)
    )


# --- counting ------------------------------------------------------------------------------------------------


class _Size(NamedTuple):
    """A number of parameters, and of bytes."""

    parameters: int = 0
    bytes: int = 0

    def plus(self, parameters: int, n_bytes: int) -> _Size:
        """Both with more added."""
        return _Size(self.parameters + parameters, self.bytes + n_bytes)


class _Evidence(NamedTuple):
    """What the tensors of a checkpoint are, as far as counting asks.

    `stored`: elements of every kind of name. `roles`: the parts of tables that are known by name, and of their
    scales. `dropped`: buffers and copies, which count nowhere.
    """

    tensors: TensorSet
    stored: Mapping[str, _Size]
    roles: Mapping[str, str]
    dropped: frozenset[str]
    packing: Packing
    parts: Mapping[str, str]

    def count(self, entry: TensorEntry) -> int:
        """For how many parameters this tensor stands."""
        known = self.packing.known.get(entry.name)
        return math.prod(known) if known is not None else entry.n_elements


class _Copies(NamedTuple):
    copies: tuple[TiedCopy, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def _count(checkpoint: Checkpoint, by: str, tensor: str | None, headers_only: bool) -> Params:
    tensors, config = checkpoint.tensors, checkpoint.config
    stored, suspicious = _take_census(tensors)
    judged = judge_buffers(tensors, config)
    buffers = {buffer.entry.name: (buffer.entry, buffer.reason) for buffer in judged.buffers}
    packing = find_packing(tensors, config, buffers.keys()) if suspicious else NOTHING_PACKED
    buffers |= {name: (tensors[name], "whole numbers, not learned") for name in packing.whole_numbers}
    tied = _find_copies(checkpoint, tensor, buffers.keys(), headers_only)
    roles = _find_roles(checkpoint, tensor, packing)
    dropped = frozenset((*buffers, *(copy.tensor for copy in tied.copies)))
    evidence = _Evidence(tensors, stored, roles, dropped, packing, _judge_kinds(stored))
    sizes = _sum_parts(evidence)

    parameters = sum(size.parameters for size in sizes.values())
    tables = sum(size.parameters for part, size in sizes.items() if part in TABLES)
    experts = _count_active(tensors, config, sizes, parameters)
    notes = [
        *checkpoint.notes,
        *_describe_missing(tensors),
        *_describe_tables(checkpoint, headers_only),
        *tied.notes,
        *_describe_packing(packing),
        *experts[1],
        *judged.notes,
        *_check_statements(tensors, parameters, packing),
    ]
    checkpoint.warnings += [text for text in tied.warnings if text not in checkpoint.warnings]
    packed = [
        tensors[name] for name in (*packing.unknown, *packing.unknown_companions) if name not in dropped
    ]
    gone = {*packing.unknown_companions}
    known = [tensors[name] for name in packing.known if name not in dropped]
    scales = [tensors[name] for name in packing.companions if name not in gone and name not in dropped]
    return Params(
        checkpoint=checkpoint.location,
        parameters=parameters,
        stored_elements=sum(size.parameters for size in stored.values()),
        buffers=tuple(
            BufferCount(name, entry.n_elements, entry.shape, entry.n_bytes, reason)
            for name, (entry, reason) in buffers.items()
        ),
        tied_copies=tied.copies,
        unpacked=sum(evidence.count(entry) - entry.n_elements for entry in known)
        - sum(e.n_elements for e in scales),
        parts=tuple(_list_parts(sizes, parameters, parameters - tables)),
        active_parameters=experts[0],
        partial=bool(tensors.missing_files or packing.unknown),
        notes=tuple(dict.fromkeys(notes)),
        packed_elements=sum(entry.n_elements for entry in packed),
        packed_tensors=packing.unknown,
        quantisation=_quantisation_text(packing, known, scales),
        missing_files=tensors.missing_files,
        parameters_without_embeddings=parameters - tables,
        by=by,
        groups=tuple(_group(evidence, by, parameters)) if by != "part" else (),
        quantisation_bytes=sum(entry.n_bytes for entry in scales),
        bits_per_parameter=_bits_per_parameter(sizes, parameters, packing, tensors),
    )


def _bits_per_parameter(
    sizes: Mapping[str, _Size], parameters: int, packing: Packing, tensors: TensorSet
) -> float | None:
    if not packing.schemes or not parameters or packing.unknown or tensors.missing_files:
        return None
    return 8 * sum(size.bytes for size in sizes.values()) / parameters


def _take_census(tensors: TensorSet) -> tuple[dict[str, _Size], bool]:
    """Elements and bytes of each kind of name, and whether any tensor may be packed.

    Tensors of one kind, encoding and size are counted together: hundreds of thousands of them are a few dozen.
    """
    census: Counter[tuple[str, str, int]] = Counter()
    for names, encodings, sizes in tensors.batches():
        census.update(zip(names_of.kinds_of(names), encodings, sizes, strict=True))
    stored: dict[str, _Size] = {}
    uneven: set[tuple[str, str]] = set()
    for (kind, code, n_bytes), number in census.items():
        encoding = ENCODINGS.get(code)
        if encoding is None or encoding.block_elements != 1:
            uneven.add((kind, code))
            continue
        elements = number * (n_bytes // encoding.block_bytes)
        stored[kind] = stored.get(kind, _Size()).plus(elements, number * n_bytes)
    if uneven:
        # Several elements to a byte: how many there are is told by the shapes alone.
        for names, encodings, _ in tensors.batches():
            for name, kind, code in zip(names, names_of.kinds_of(names), encodings, strict=True):
                if (kind, code) in uneven:
                    entry = tensors[name]
                    stored[kind] = stored.get(kind, _Size()).plus(entry.n_elements, entry.n_bytes)
    return stored, any(is_suspect(code) for _, code, _ in census)


def _tables(checkpoint: Checkpoint, tensor: str | None) -> dict[str, str]:
    """The tables of the checkpoint by name, and the part that each is; the token table first."""
    found = checkpoint.found
    first = (
        checkpoint.find_tensor(tensor) if tensor is not None else found.input.entry if found.input else None
    )
    listed = [(first, names_of.TOKENS)] if first is not None else []
    listed += [(choice.entry, names_of.POSITIONS) for choice in found.positions]
    listed += [(found.output.entry, names_of.HEAD)] if found.output else []
    listed += [(found.input.entry, names_of.FURTHER_TOKENS)] if found.input else []
    listed += [(entry, names_of.FURTHER_TOKENS) for entry in (*found.ambiguous, *found.candidates)]
    roles: dict[str, str] = {}
    for entry, part in listed:
        roles.setdefault(entry.name, part)
    return roles


def _find_roles(checkpoint: Checkpoint, tensor: str | None, packing: Packing) -> dict[str, str]:
    roles = _tables(checkpoint, tensor)
    modules = {name.removesuffix("weight"): part for name, part in roles.items() if name.endswith(".weight")}
    beside = {
        name: part
        for name in packing.companions
        for module, part in modules.items()
        if name.startswith(module)
    }
    return beside | roles


def _judge_kinds(kinds: Mapping[str, _Size]) -> dict[str, str]:
    """The part of each kind of name."""
    mixtures = names_of.moe_modules_of(kinds)
    roots = names_of.roots_of(kinds)
    judged = {}
    for kind in kinds:
        part = names_of.part_of(kind, roots, mixtures)
        judged[kind] = _ROUTED if part == EXPERTS and names_of.is_routed(kind) else part
    return judged


def _sum_parts(evidence: _Evidence) -> dict[str, _Size]:
    """Parameters and bytes of each part: all kinds of names, then what is known of single tensors."""
    sizes: dict[str, _Size] = {}
    for kind, size in evidence.stored.items():
        part = evidence.parts[kind]
        sizes[part] = sizes.get(part, _Size()).plus(*size)
    packing = evidence.packing
    silent = {*packing.companions, *packing.unknown}
    special = dict.fromkeys((*evidence.dropped, *evidence.roles, *packing.known, *silent))
    for name, kind in zip(special, names_of.kinds_of(special), strict=True):
        entry = evidence.tensors[name]
        part = evidence.parts[kind]
        sizes[part] = sizes[part].plus(-entry.n_elements, -entry.n_bytes)
        if name not in evidence.dropped:
            role = evidence.roles.get(name, part)
            counted = 0 if name in silent else evidence.count(entry)
            sizes[role] = sizes.get(role, _Size()).plus(counted, entry.n_bytes)
    return sizes


def _list_parts(sizes: Mapping[str, _Size], parameters: int, without: int) -> Iterator[Part]:
    """The named parts in their order, then the others by size. The tables are listed even where there are none."""
    merged = dict(sizes)
    merged[EXPERTS] = merged.pop(_ROUTED, _Size()).plus(*merged.get(EXPERTS, _Size()))
    others = sorted((part for part in merged if part not in PARTS), key=lambda part: -merged[part].parameters)
    for part in (*PARTS, *others):
        size = merged.get(part, _Size())
        if size.parameters or size.bytes or part in (names_of.TOKENS, names_of.POSITIONS):
            share = size.parameters / parameters if parameters else math.nan
            rest = None if part in TABLES else size.parameters / without if without else math.nan
            yield Part(part, size.parameters, share, rest, size.bytes)


def _group(evidence: _Evidence, by: str, parameters: int) -> Iterator[Group]:
    """Parameters by layer, module, tensor or encoding; tensor by tensor."""
    packing = evidence.packing
    silent = {*packing.companions, *packing.unknown}
    sizes: dict[str, _Size] = {}
    numbers: Counter[str] = Counter()
    for name in evidence.tensors.names():
        if name in evidence.dropped:
            continue
        entry = evidence.tensors[name]
        group = _group_of(entry, by)
        sizes[group] = sizes.get(group, _Size()).plus(
            0 if name in silent else evidence.count(entry), entry.n_bytes
        )
        numbers[group] += 1
    for group in sorted(sizes, key=_ORDERS[by](sizes)):
        size = sizes[group]
        share = size.parameters / parameters if parameters else math.nan
        yield Group(group, size.parameters, share, size.bytes, numbers[group])


def _group_of(entry: TensorEntry, by: str) -> str:
    if by == "layer":
        return names_of.layer_of(entry.name) or OUTSIDE_LAYERS
    if by == "module":
        return names_of.module_of(entry.name)
    return entry.name if by == "tensor" else entry.encoding.name


def _by_number(sizes: Mapping[str, _Size]) -> Any:
    """Layers in the order of their numbers, and what lies outside them at the end."""
    return lambda group: (
        group == OUTSIDE_LAYERS,
        [(int(word), "") if word.isdecimal() else (-1, word) for word in re.split(r"(\d+)", group)],
    )


def _by_size(sizes: Mapping[str, _Size]) -> Any:
    return lambda group: (-sizes[group].parameters, -sizes[group].bytes)


def _as_stored(sizes: Mapping[str, _Size]) -> Any:
    places = {group: place for place, group in enumerate(sizes)}
    return lambda group: places[group]


_ORDERS = {"layer": _by_number, "module": _by_size, "tensor": _as_stored, "encoding": _by_size}


# --- tables stored twice -------------------------------------------------------------------------------------


def _find_copies(
    checkpoint: Checkpoint, tensor: str | None, buffers: Iterable[str], headers_only: bool
) -> _Copies:
    """Which tables hold the same bytes as a table before them?"""
    left_out = set(buffers)
    kept: dict[tuple[tuple[int, ...], str], list[TensorEntry]] = {}
    copies: list[TiedCopy] = []
    notes: list[str] = []
    warnings: list[str] = []
    skipped: list[str] = []
    unread: set[str] = set()
    for name in _tables(checkpoint, tensor):
        entry = checkpoint.tensors[name]
        if name in left_out or not entry.n_elements:
            continue
        same_shape = kept.setdefault((entry.shape, entry.encoding.name), [])
        twin = None
        if headers_only:
            skipped += [name] if same_shape else []
        else:
            for other in same_shape:
                try:
                    equal, zeros = _compare(checkpoint.tensors, other, entry)
                    equal = equal and _scaled_alike(checkpoint.tensors, other, entry)
                except DamagedFileError as error:
                    notes.append(f"{name} could not be compared with {other.name}, and counts apart: {error}")
                    unread.add(name)
                    continue
                if equal:
                    twin = other
                    if zeros:
                        notes.append(
                            f"{name} and {other.name} are all zeros: that they are equal says little; "
                            f"--headers-only counts them apart."
                        )
                    break
        if twin is not None:
            copies.append(TiedCopy(name, twin.name, entry.n_elements, entry.n_bytes))
            notes.append(f"{name} holds the same values as {twin.name}, stored twice: counted once.")
        else:
            same_shape.append(entry)
    if skipped:
        notes.append(
            f"Values were not compared (--headers-only): {shorten(skipped)} "
            f"{'is' if len(skipped) == 1 else 'are'} assumed to differ from other tables of the same shape."
        )
    if not headers_only:
        _judge_head(checkpoint, {copy.tensor for copy in copies} | unread, notes, warnings)
    if checkpoint.found.tied:
        notes.append("The output head is the token table (tied), and is counted once.")
    return _Copies(tuple(copies), tuple(notes), tuple(warnings))


def _judge_head(checkpoint: Checkpoint, judged: set[str], notes: list[str], warnings: list[str]) -> None:
    """Say so where a head differs from the token table though the config says that it is tied."""
    found = checkpoint.found
    if found.output is None or found.input is None or not _says_tied(checkpoint.config):
        return
    head, table = found.output.entry.name, found.input.entry.name
    if judged.isdisjoint((head, table)):
        notes.append(f"{head} and {table} differ, though config.json says that they are tied: both count.")
        warnings.append(f"config.json says that the output head is tied, but {head} differs from {table}.")


def _says_tied(config: Mapping[str, Any]) -> bool:
    said = (inner.get("tie_word_embeddings") for inner in reversed(nested_configs(config)))
    return next((value for value in said if isinstance(value, bool)), False)


def _scaled_alike(tensors: TensorSet, a: TensorEntry, b: TensorEntry) -> bool:
    """Whether what lies beside two packed tensors holds the same bytes too."""
    ours, theirs = find_companions(tensors, a), find_companions(tensors, b)
    return len(ours) == len(theirs) and all(
        tensors[one].shape == tensors[other].shape
        and tensors[one].encoding == tensors[other].encoding
        and _compare(tensors, tensors[one], tensors[other])[0]
        for one, other in zip(ours, theirs, strict=True)
    )


def _compare(tensors: TensorSet, a: TensorEntry, b: TensorEntry) -> tuple[bool, bool]:
    """Whether two tensors hold the same bytes, and whether these are all zeros; stops at the first difference."""
    start, block, zeros = 0, _FIRST_BLOCK, True
    while start < a.n_bytes:
        stop = min(start + block, a.n_bytes)
        data = bytes(tensors.read(a, start, stop))
        if data != bytes(tensors.read(b, start, stop)):
            return False, False
        zeros = zeros and not data.strip(b"\0")
        start, block = stop, _BLOCK
    return True, zeros


# --- experts -------------------------------------------------------------------------------------------------


def _count_active(
    tensors: TensorSet, config: Mapping[str, Any], sizes: Mapping[str, _Size], parameters: int
) -> tuple[int | None, tuple[str, ...]]:
    """Parameters that one token passes through, and a note; None where there are no experts or nothing tells."""
    routed = sizes.get(_ROUTED, _Size()).parameters
    if not routed:
        return None, ()
    if tensors.missing_files:
        return None, ("Experts may be in the files that are missing: active parameters are not counted.",)
    number, chosen = _read_number(config, _EXPERT_KEYS), _read_number(config, _CHOSEN_KEYS)
    if number is None or chosen is None or not 0 < chosen <= number or routed * chosen % number:
        return None, (
            "How many experts see a token is not known from config.json: active parameters are not counted.",
        )
    active = parameters - routed + routed * chosen // number
    return active, (
        f"Active: {chosen} of {number} experts see a token; routers, shared experts and all other parts always do.",
    )


def _read_number(config: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    """The first of these keys that holds a whole number, or a list of equal ones; the text model's config first."""
    configs = nested_configs(config)
    below = [
        inner[key] for inner in configs for key in _EXPERT_CONFIGS if isinstance(inner.get(key), Mapping)
    ]
    for inner in (*configs, *below):
        for key in keys:
            value = inner.get(key)
            if isinstance(value, list) and value and all(item == value[0] for item in value):
                value = value[0]
            if type(value) is int:
                return value
    return None


# --- words ---------------------------------------------------------------------------------------------------


def _describe_missing(tensors: TensorSet) -> Iterator[str]:
    if not tensors.missing_files:
        return
    n_files, names = len(tensors.missing_files), tensors.missing_names()
    text = f"Partial: {n_files} file{'s are' if n_files > 1 else ' is'} missing ({shorten(tensors.missing_files)})"
    if names:
        kinds = dict.fromkeys(names_of.pattern_of(name) for name in names)
        text += f", and with {'them' if n_files > 1 else 'it'} {_number(names)}: {shorten(kinds)}"
    yield text + "."


def _describe_tables(checkpoint: Checkpoint, headers_only: bool) -> Iterator[str]:
    """What was said when the tables were found, less what comparing them answers."""
    found = checkpoint.found
    head = found.output.entry.name if found.output and found.input and not headers_only else None
    yield from (note for note in found.notes if head is None or head not in note)
    kinds = [kind for kind in found.position_kinds if kind != "none"]
    if kinds and not found.positions and found.input:
        yield f"No position table: positions are {' and '.join(kinds)}."


def _describe_packing(packing: Packing) -> Iterator[str]:
    if packing.unknown:
        yield (
            f"Stored elements, packed: the packing of {_number(packing.unknown)} is not known "
            f"({shorten(packing.unknown)}); they are not counted, and the total is partial."
        )


def _quantisation_text(packing: Packing, known: Sequence[TensorEntry], scales: Sequence[TensorEntry]) -> str:
    if not known and not scales:
        return ""
    stored, beside = sum(entry.n_elements for entry in known), sum(entry.n_elements for entry in scales)
    size = sum(entry.n_bytes for entry in scales)
    texts = [", ".join(packing.schemes) + (f": {stored:,} packed elements" if known else "")]
    texts += [f"{beside:,} elements of scales and the like ({size:,} bytes) are no parameters"] * bool(scales)
    return "; ".join(filter(None, texts))


def _number(tensors: Sequence[str]) -> str:
    return "1 tensor" if len(tensors) == 1 else f"{len(tensors):,} tensors"


def _check_statements(tensors: TensorSet, parameters: int, packing: Packing) -> Iterator[str]:
    """What an index states about the whole, where it is not so."""
    if tensors.missing_files:
        return
    size = sum(tensors.count_bytes().values())
    said = tensors.stated.get("total_size")
    if said is not None and said != size:
        yield f"The index states a total_size of {_say(said)}; the tensors take {size:,} bytes."
    said = tensors.stated.get("total_parameters")
    if said is not None and said != parameters and not packing.unknown:
        yield f"The index states {_say(said)} parameters (total_parameters); the files hold {parameters:,}."


def _say(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else repr(value)[:40]
