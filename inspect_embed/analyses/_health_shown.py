"""How the health of a table is shown: in blocks, as a sheet, as figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from inspect_embed.analyses.health import (
    FINDINGS,
    SHOWN,
    Cloud,
    Finding,
    Health,
    Hubness,
    Lengths,
    Row,
    Undertrained,
)
from inspect_embed.checkpoint import TableFacts
from inspect_embed.errors import shorten
from inspect_embed.report import Block, Column, Fact, Facts, Grid, Lines, Note, Report, Series
from inspect_embed.vocabularies import NO_TOKEN


def describe(found: Health) -> Report:
    """Findings, candidates, the cloud and its hubs; the sheet holds every row found."""
    title = f"{found.checkpoint}: health of the {found.table}"
    blocks: list[Block] = [_findings_grid(found) if found.findings else Note("Nothing odd was found.")]
    for name, groups in (
        ("Equal rows", found.equal),
        ("Nearly equal rows", found.nearly_equal),
    ):
        if groups:
            rows = [(len(group), _names(group)) for group in groups[:SHOWN]]
            more = f"; {len(groups) - SHOWN:,} groups more" if len(groups) > SHOWN else ""
            blocks.append(Grid((Column("rows", ",d"), Column("which")), rows, f"{name}{more}"))
    blocks.append(_lengths_facts(found.lengths))
    if found.reach is not None:
        blocks.append(_reach_facts(found.reach))
    blocks += _undertrained_blocks(found.undertrained)
    blocks.append(_cloud_facts(found.cloud, found.table))
    if found.hubness is not None:
        blocks += _hub_blocks(found.hubness)
    return Report(
        title,
        found,
        (*blocks, *map(Note, found.notes)),
        _sheet(found),
        _draw(found, found.checkpoint),
    )


def _names(rows: Sequence[Row]) -> str:
    return shorten(f"{row.token} (id {row.id})" for row in rows)


def _which(finding: Finding) -> str:
    """Tokens by name; rows without a token as ranges."""
    if any(row.token != NO_TOKEN for row in finding.rows):
        return _names(finding.rows)
    ids = [row.id for row in finding.rows]
    runs: list[list[int]] = []
    for id_ in ids:
        if runs and id_ == runs[-1][1] + 1:
            runs[-1][1] = id_
        else:
            runs.append([id_, id_])
    return "ids " + shorten(f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in runs)


def _findings_grid(found: Health) -> Grid:
    columns = (
        Column("finding"),
        Column("rows", ",d"),
        Column("threshold", ".4g"),
        Column("meaning"),
        Column("which"),
    )
    rows = [(f.kind, f.n, f.threshold, FINDINGS[f.kind], _which(f)) for f in found.findings]
    return Grid(columns, rows, "Findings")


def _lengths_facts(lengths: Lengths) -> Facts:
    return Facts(
        (
            Fact("least", lengths.least, ".4g"),
            Fact("first quartile", lengths.first_quartile, ".4g"),
            Fact("median", lengths.median, ".4g"),
            Fact("third quartile", lengths.third_quartile, ".4g"),
            Fact("largest", lengths.largest, ".4g"),
            Fact(
                "far shorter",
                lengths.shorter_than,
                ".4g",
                f"{len(lengths.short):,} rows are shorter",
            ),
            Fact(
                "far longer",
                lengths.longer_than,
                ".4g",
                f"{len(lengths.long):,} rows are longer",
            ),
        ),
        "Lengths of the tokens' rows (fences: 3 x the distance of the quartiles of the logarithms)",
    )


def _reach_facts(reach: dict[str, int]) -> Facts:
    meaning = {
        "text": "a text is cut to the token",
        "unreachable": "its own text is cut to other tokens",
        "partial UTF-8": "bytes that are no text by themselves",
        "special": "a control token",
    }
    return Facts(
        tuple(Fact(way, n, ",d", meaning[way]) for way, n in reach.items()),
        "Can text reach the tokens?",
    )


def _undertrained_blocks(found: Undertrained) -> list[Block]:
    first = found.indicator
    facts = [Fact("indicator", f"{first.name} ({first.table})", remark=first.meaning)]
    facts += [Fact("unused", sort.n, ",d", f"{sort.sort}: {_names(sort.first)}") for sort in found.unused]
    if first.separation is not None:
        facts.append(
            Fact(
                "tells unused rows",
                first.separation,
                ".1%",
                "pairs of an unused and another row in order",
            )
        )
    if found.threshold is not None:
        among = f"{found.n_below:,} tokens are as near or nearer, the known ones included"
        facts.append(Fact("threshold", found.threshold, ".4f", among))
    if found.other is not None and found.agreement is not None:
        facts.append(
            Fact(
                f"agreement with the {found.other.name}",
                found.agreement,
                ".3f",
                f"Spearman; of the first 2 % by one, {found.in_common or 0:.0%} are so by the other",
            )
        )
    second = found.other
    columns = (
        Column("place", ",d"),
        Column("id", "d"),
        Column("token"),
        Column(first.name, ".4f"),
        Column("percentile", ".3f"),
        *([] if second is None else [Column(second.name, ".4f")]),
        Column("reach"),
    )
    listed = [candidate for candidate in found.candidates if not candidate.reference][: found.n_listed]
    rows = [
        (c.place, c.id, c.token, c.value, c.percentile, *([] if second is None else [c.other]), c.reach)
        for c in listed
    ]
    title = "First tokens in its order, those known to be unused left out"
    return [
        Facts(tuple(facts), "Hardly trained tokens (Land & Bartolo 2024)"),
        Note(found.reason),
        Grid(columns, rows, title),
    ]


def _cloud_facts(cloud: Cloud, table: TableFacts) -> Facts:
    width = table.shape[-1]
    total = sum(cloud.variances)
    shares = [variance / total for variance in cloud.variances[:3]] if total > 0 else []
    return Facts(
        (
            Fact(
                "mean cosine",
                cloud.mean_cosine,
                ".4f",
                f"of all pairs of {cloud.n:,} tokens",
            ),
            Fact(
                "participation ratio",
                cloud.participation_ratio,
                ".1f",
                f"of {width:,} directions",
            ),
            Fact("effective rank", cloud.effective_rank, ".1f", "Roy & Vetterli 2007"),
            Fact(
                "IsoScore",
                cloud.isoscore,
                ".4f",
                "Rudman et al. 2022: how evenly variance is spread, (participation ratio - 1) / (width - 1). It does "
                "not see where the mean lies (the mean cosine does), nor clusters",
            ),
            *(
                Fact(f"variance of component {number}", share, ".1%")
                for number, share in enumerate(shares, 1)
            ),
        ),
        "The shape of the cloud",
    )


def _hub_blocks(hubness: Hubness) -> list[Block]:
    facts = Facts(
        (
            Fact(
                "skewness",
                hubness.skewness,
                ".2f",
                "of how often a token is among the nearest of others",
            ),
            Fact("never a neighbour", hubness.n_never, ",d", f"of {hubness.n:,} tokens"),
        ),
        f"Hubs: tokens among the {hubness.k} nearest of many others (the mean is {hubness.k})",
    )
    rows = [(hub.id, hub.token, hub.occurrences) for hub in hubness.hubs[:SHOWN]]
    return [
        facts,
        Grid((Column("id", "d"), Column("token"), Column("neighbour of", ",d")), rows),
    ]


def _sheet(found: Health) -> Grid:
    """One line for each row found, with the number that it was found by."""
    values: dict[tuple[str, int], float] = {}
    values |= {("short", row.id): row.length for row in found.lengths.short}
    values |= {("long", row.id): row.length for row in found.lengths.long}
    values |= {("hardly trained", row.id): row.value for row in found.undertrained.candidates}
    if found.hubness is not None:
        values |= {("hub", hub.id): hub.occurrences for hub in found.hubness.hubs}
    rows = [
        (
            finding.kind,
            row.id,
            row.token,
            values.get((finding.kind, row.id)),
            finding.threshold,
        )
        for finding in found.findings
        for row in finding.rows
    ]
    return Grid(tuple(map(Column, ("finding", "id", "token", "value", "threshold"))), rows)


def _draw(found: Health, caption: str) -> dict[str, Block]:
    edges, counts = found.lengths.bin_edges, found.lengths.bin_counts
    # From the ground to the ground: a bar at the edge is no line that breaks off.
    middles = [edges[0], *((low + high) / 2 for low, high in pairwise(edges)), edges[-1]]
    total = sum(found.cloud.variances) or 1.0
    components = list(range(1, len(found.cloud.variances) + 1))
    shares = [100.0 * variance / total for variance in found.cloud.variances]
    return {
        "norms": Lines(
            (Series("tokens", middles, (0, *counts, 0)),),
            "length of the row",
            "tokens",
            "How long the tokens' vectors are",
            caption=caption,
        ),
        "spectrum": Lines(
            (Series("variance", components, shares),),
            "principal component",
            "share of the variance (%)",
            "How the variance is spread over the directions",
            y_log=True,
            caption=caption,
        ),
    }
