"""How the ledger of parameters is shown: lines, tables, bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from inspect_embed.errors import shorten
from inspect_embed.parts import OTHER, PARTS, pattern_of
from inspect_embed.report import Bars, Block, Column, Fact, Facts, Grid, Heatmap, Note, Report

if TYPE_CHECKING:
    from inspect_embed.analyses.params import BufferCount, Params, ParamsSideBySide

_BAR, _MOST_BARS = 32, 12
"""Marks of a bar of 100 %; bars in a figure."""

_PARTLY = ", as far as known"


def describe(found: Params) -> Report:
    """The ledger, then the parts or groups; the figure shows the shares of the parts."""
    blocks: list[Block] = [Facts(tuple(_ledger(found)))]
    listed = list(_patterns(found.buffers))
    if len(listed) > 1:
        heads = (
            Column("tensors", ",d"),
            Column("buffer"),
            Column("shape"),
            Column("elements", ",d"),
            Column("why"),
        )
        blocks.append(Grid(heads, [(n, name, str(shape), size, why) for n, name, shape, size, why in listed]))
    blocks.append(_grid(found))
    blocks += map(Note, found.notes)
    return Report(found.checkpoint, found, tuple(blocks), _sheet(found), {"share": _bars(found)})


def _bars(found: Params) -> Bars:
    """The parts as bars; the smallest of many others are drawn as one."""
    shown = [(part.part.removeprefix(OTHER), part.parameters) for part in found.parts if part.parameters]
    if len(shown) > _MOST_BARS:
        rest = sum(parameters for _, parameters in shown[_MOST_BARS - 1 :])
        shown = [*shown[: _MOST_BARS - 1], ("the rest", rest)]
    (name,) = _short_names([found.checkpoint])
    title = f"{name}: {found.parameters:,} parameters{' (partial)' if found.partial else ''}"
    buffers = sum(buffer.elements for buffer in found.buffers)
    return Bars(
        [label for label, _ in shown],
        [parameters for _, parameters in shown],
        "parameters",
        title,
        ",d",
        f"{buffers:,} elements of masks and other buffers are not counted" if buffers else "",
    )


def _sheet(found: Params) -> Grid:
    """One row for each part or group, every number at full precision."""
    if found.by == "part":
        heads = ("part", "parameters", "share", "share_without_embeddings", "bytes")
        return Grid(
            tuple(map(Column, heads)),
            [(p.part, p.parameters, p.share, p.share_without_embeddings, p.bytes) for p in found.parts],
        )
    heads = (found.by, "parameters", "share", "bytes", "tensors")
    return Grid(
        tuple(map(Column, heads)),
        [(g.group, g.parameters, g.share, g.bytes, g.tensors) for g in found.groups],
    )


def _counted(found: Params) -> Iterator[tuple[str, tuple[int, float]]]:
    """Parameters and share of each part or group, by its name."""
    if found.by == "part":
        return ((part.part, (part.parameters, part.share)) for part in found.parts)
    return ((group.group, (group.parameters, group.share)) for group in found.groups)


def _ledger(found: Params) -> Iterator[Fact]:
    """The lines of the ledger."""
    yield Fact("elements in the files", found.stored_elements, "15,d", _missing_text(found))
    listed = list(_patterns(found.buffers))
    remark = ""
    if listed:
        number, name, shape, _, _ = listed[0]
        remark = f"{number} x {name} {shape}" if number > 1 else f"{name} {shape}"
    if len(listed) > 1:
        remark = f"{len(found.buffers):,} tensors of {len(listed)} kinds, listed below"
    yield Fact("- masks and other buffers", sum(b.elements for b in found.buffers), "15,d", remark)
    copies = ", ".join(f"{c.tensor}: same values as {c.same_as}, stored twice" for c in found.tied_copies)
    yield Fact("- copies of tied tensors", sum(c.elements for c in found.tied_copies), "15,d", copies)
    if found.packed_elements:
        yield Fact(
            "- stored elements, packed",
            found.packed_elements,
            "15,d",
            f"packing not known, not counted: {shorten(found.packed_tensors, 2)}",
        )
    yield Fact("+ unpacked from quantised data", found.unpacked, "15,d", found.quantisation)
    total = "= parameters" + (_PARTLY if found.partial else "")
    yield Fact(total, found.parameters, "15,d", "partial" if found.partial else "")
    if found.bits_per_parameter is not None:
        yield Fact(
            "  bits per parameter", found.bits_per_parameter, "15.2f", "scales and the like counted in"
        )
    if found.active_parameters is not None:
        share = found.active_parameters / found.parameters if found.parameters else math.nan
        yield Fact("  active per token", found.active_parameters, "15,d", f"{100 * share:.2f} %")


def _grid(found: Params) -> Grid:
    if found.by == "part":
        heads = (
            Column("part"),
            Column("parameters", ",d"),
            Column("share", ".2 %"),
            Column("without embeddings", ".2 %"),
            Column("bytes", ",d"),
            Column(""),
        )
        return Grid(
            heads,
            [
                (p.part, p.parameters, p.share, p.share_without_embeddings, p.bytes, _bar(p.share))
                for p in found.parts
            ],
        )
    heads = (
        Column(found.by),
        Column("parameters", ",d"),
        Column("share", ".2 %"),
        Column("bytes", ",d"),
        Column("tensors", ",d"),
        Column(""),
    )
    return Grid(
        heads, [(g.group, g.parameters, g.share, g.bytes, g.tensors, _bar(g.share)) for g in found.groups]
    )


def describe_side_by_side(found: ParamsSideBySide) -> Report:
    """A column for each checkpoint: the ledgers, then the parts or groups, then their shares."""
    names = _short_names([one.checkpoint for one in found.checkpoints])
    numbers = (Column(""), *(Column(name, ",d") for name in names))
    shares = (Column("share of the parameters"), *(Column(name, ".2 %") for name in names))
    ledgers = [
        {fact.name.removesuffix(_PARTLY): fact.value for fact in _ledger(one)} for one in found.checkpoints
    ]
    counted = [dict(_counted(one)) for one in found.checkpoints]
    lines = dict.fromkeys(line for ledger in ledgers for line in ledger)
    keys = _in_order(key for table in counted for key in table)
    absent = (None, None)
    blocks: list[Block] = [
        Grid(numbers, [(line, *(ledger.get(line) for ledger in ledgers)) for line in lines]),
        Grid(numbers, [(key, *(table.get(key, absent)[0] for table in counted)) for key in keys]),
        Grid(shares, [(key, *(table.get(key, absent)[1] for table in counted)) for key in keys]),
    ]
    for name, one in zip(names, found.checkpoints, strict=True):
        blocks += [Note(f"{name}: {note}") for note in one.notes]
    sheets = [_sheet(one) for one in found.checkpoints]
    rows = [(name, *row) for name, sheet in zip(names, sheets, strict=True) for row in sheet.rows]
    sheet = Grid((Column("checkpoint"), *sheets[0].columns), rows)
    bars: dict[str, Block] = {
        name: _bars(one) for name, one in zip(names, found.checkpoints, strict=True) if name != "share"
    }
    return Report(" | ".join(names), found, tuple(blocks), sheet, {"share": _heatmap(found, names), **bars})


def _heatmap(found: ParamsSideBySide, names: Sequence[str]) -> Heatmap:
    """The shares of all of them."""
    shares = [{part.part: 100 * part.share for part in one.parts} for one in found.checkpoints]
    rows = _in_order(part.part for one in found.checkpoints for part in one.parts if part.parameters)
    totals = [f"{name}: {one.parameters:,}" for name, one in zip(names, found.checkpoints, strict=True)]
    return Heatmap(
        [[share.get(row, 0.0) for share in shares] for row in rows],
        [row.removeprefix(OTHER) for row in rows],
        names,
        "share of the parameters, %",
        " | ".join(totals),
        low=0.0,
    )


def _missing_text(found: Params) -> str:
    return f"missing: {shorten(found.missing_files)}" if found.missing_files else ""


def _bar(share: float) -> str:
    return "" if share != share else "#" * round(_BAR * share)


def _patterns(buffers: Iterable[BufferCount]) -> Iterator[tuple[int, str, tuple[int, ...], int, str]]:
    """Buffers of one pattern and shape together: how many, their pattern, shape, elements, and why."""
    grouped: dict[tuple[str, tuple[int, ...], str], list[BufferCount]] = {}
    for buffer in buffers:
        grouped.setdefault((pattern_of(buffer.tensor), buffer.shape, buffer.reason), []).append(buffer)
    for (pattern, shape, reason), group in grouped.items():
        name = pattern if len(group) > 1 else group[0].tensor
        yield len(group), name, shape, sum(buffer.elements for buffer in group), reason


def _in_order(parts: Iterable[str]) -> list[str]:
    """Each once: the parts with a name of their own in their order, then the others as they come."""
    found = dict.fromkeys(parts)
    return [part for part in PARTS if part in found] + [part for part in found if part not in PARTS]


def _short_names(locations: Sequence[str]) -> list[str]:
    """The last part of each path where that tells them apart, else the whole."""
    short = [location.rstrip("/").rpartition("/")[2] or location for location in locations]
    return short if len(set(short)) == len(short) else list(locations)
