"""How comparisons are shown: in blocks, as a sheet, as figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from inspect_embed.analyses.compare import Comparison, Row, SeriesComparison
from inspect_embed.errors import shorten
from inspect_embed.report import Bars, Block, Column, Fact, Facts, Grid, Lines, Note, Report, Series


def describe(found: Comparison) -> Report:
    """What is shared and what changed, then the tokens that changed most."""
    title = f"{found.a} and {found.b}: {found.table_a.role} tables, {found.n_shared:,} tokens in both"
    same = found.coordinates.same
    facts = [
        Fact("first", str(found.table_a)),
        Fact("second", str(found.table_b)),
        Fact("tokens in both", found.n_shared, ",d", "matched by their bytes"),
        Fact("added", len(found.added), ",d", _names(found.added)),
        Fact("removed", len(found.removed), ",d", _names(found.removed)),
    ]
    if found.n_unchanged is not None:
        facts.append(Fact("unchanged rows", found.n_unchanged, ",d", "hold the same numbers"))
    if found.cosines:
        least, first, median, third, largest = found.cosines[::25]
        spread = f"quartiles {first:.4f} and {third:.4f}; from {least:.4f} to {largest:.4f}"
        facts.append(Fact("cosine of a token's two rows", median, ".4f", f"median; {spread}"))
    facts.append(Fact("linear CKA", found.linear_cka, ".4f", "1: the same similarities among the rows"))
    facts.append(
        Fact(
            "after the best rotation",
            found.procrustes_residual,
            ".4f",
            "left over; 0: one is the other turned",
        )
    )
    if (hoods := found.neighborhoods) is not None:
        facts += [
            Fact(
                "neighbourhoods in common",
                hoods.mean,
                ".1%",
                f"of {hoods.k} neighbours on average; {hoods.by_chance:.1%} by chance",
            ),
            Fact("kept whole", hoods.n_whole, ",d", f"tokens of {hoods.n:,} keep all their neighbours"),
            Fact("lost", hoods.n_lost, ",d", "tokens keep none"),
        ]
    columns = [Column("id", "d"), Column("id in the second", "d"), Column("token")]
    if same:
        columns += [Column("cosine", ".4f"), Column("distance", ".4f"), Column("relative", ".3f")]
    columns += [Column("length", ".4f"), Column("length in the second", ".4f")]
    if hoods is not None:
        columns += [Column("overlap", ".0%"), Column("nearest"), Column("nearest in the second")]
    rows = []
    for c in found.changes:
        row: list[str | float | None] = [c.id_a, c.id_b, c.token]
        row += [c.cosine, c.distance, c.relative_distance] if same else []
        row += [c.length_a, c.length_b]
        row += [c.overlap, " ".join(c.neighbors_a), " ".join(c.neighbors_b)] if hoods is not None else []
        rows.append(row)
    what = "The most changed tokens" if same else "The tokens whose neighbourhoods differ most"
    blocks: list[Block] = [Note(found.coordinates.reason), Facts(tuple(facts))]
    if same or hoods is not None:
        blocks.append(Grid(tuple(columns), rows, what))
    return Report(title, found, (*blocks, *map(Note, found.notes)), _sheet(found), _draw(found))


def _names(rows: Sequence[Row]) -> str:
    return shorten(f"{row.token} (id {row.id})" for row in rows)


def _sheet(found: Comparison) -> Grid:
    names = (
        "id_a",
        "id_b",
        "token",
        "cosine",
        "distance",
        "relative_distance",
        "length_a",
        "length_b",
        "overlap",
    )
    return Grid(
        tuple(map(Column, names)),
        [
            (
                c.id_a,
                c.id_b,
                c.token,
                c.cosine,
                c.distance,
                c.relative_distance,
                c.length_a,
                c.length_b,
                c.overlap,
            )
            for c in found.changes
        ],
    )


def _draw(found: Comparison) -> dict[str, Block]:
    caption = f"{found.a} and {found.b}, {found.table_a.role} tables"
    figures: dict[str, Block] = {}
    if (hoods := found.neighborhoods) is not None:
        figures["overlap"] = Bars(
            [f"{n} of {hoods.k}" for n in range(hoods.k + 1)],
            hoods.kept,
            "tokens",
            "How many of its nearest neighbours a token keeps",
            ",d",
            caption,
        )
    if found.cosines:
        figures["cosines"] = Lines(
            (Series("tokens", range(101), found.cosines),),
            "share of the tokens (%)",
            "cosine of a token's two rows, at most",
            "How far the rows have turned",
            caption=caption,
        )
    return figures


def describe_series(found: SeriesComparison) -> Report:
    """A line for each step; figures of the pairs, the likeness to the last step and the lengths along the steps."""
    steps = [stage.step for stage in found.stages]
    with_overlap = found.overlap_by_chance is not None
    columns = [
        Column("checkpoint"),
        Column("step", ",d"),
        Column("length", ".4f"),
        Column("cosine with the last", ".3f"),
        Column("CKA with the last", ".3f"),
        *([Column("overlap with the last", ".1%")] if with_overlap else []),
        *(Column(f"{pair.a} {pair.b}", ".3f") for pair in found.pairs),
    ]
    rows = [
        (
            PurePath(stage.checkpoint).name or stage.checkpoint,
            stage.step,
            stage.length_median,
            stage.matched,
            stage.linear_cka,
            *([stage.overlap] if with_overlap else []),
            *(pair.cosines[place] for pair in found.pairs),
        )
        for place, stage in enumerate(found.stages)
    ]
    title = (
        f"{len(found.stages)} checkpoints, {found.stages[0].checkpoint} to {found.stages[-1].checkpoint}: {found.table} table, "
        f"each held against the last"
    )
    notes = [Note(text) for text in found.notes]
    if with_overlap:
        notes.insert(
            0,
            Note(
                f"Overlap: share of the {found.k} nearest tokens in common; {found.overlap_by_chance:.1%} by chance."
            ),
        )
    if not found.pairs:
        notes.append(Note("--pair WORD WORD follows the cosine of two tokens along the steps."))
    sheet = Grid(tuple(Column(column.name) for column in columns), rows)
    return Report(title, found, (Grid(tuple(columns), rows), *notes), sheet, _draw_series(found, steps))


def _draw_series(found: SeriesComparison, steps: Sequence[int]) -> dict[str, Block]:
    # A logarithmic axis has no zero: the start is drawn where the first step would be.
    logarithmic = steps[-1] > 50 and steps[0] >= 0
    x = [max(step, 1) if logarithmic else step for step in steps]
    label = "training step" + (" (the start is drawn at 1)" if logarithmic and steps[0] == 0 else "")
    caption = f"{found.stages[0].checkpoint} to {found.stages[-1].checkpoint}, {found.table} table"
    figures: dict[str, Block] = {}
    if found.pairs:
        figures["pairs"] = Lines(
            tuple(Series(f"{pair.a} {pair.b}", x, pair.cosines) for pair in found.pairs),
            label,
            "cosine",
            "When do embeddings form?",
            x_log=logarithmic,
            caption=caption,
        )
    with_last = [Series("linear CKA", x, [stage.linear_cka for stage in found.stages])]
    if all(stage.overlap is not None for stage in found.stages):
        with_last.append(Series("neighbours in common", x, [stage.overlap or 0.0 for stage in found.stages]))
    if all(stage.matched is not None for stage in found.stages):
        with_last.append(Series("cosine of rows", x, [stage.matched or 0.0 for stage in found.stages]))
    figures["overlap"] = Lines(
        tuple(with_last),
        label,
        "likeness to the last step",
        "How soon is each step like the last?",
        x_log=logarithmic,
        caption=caption,
    )
    figures["norms"] = Lines(
        (
            Series(
                "median and quartiles",
                x,
                [stage.length_median for stage in found.stages],
                [stage.length_first_quartile for stage in found.stages],
                [stage.length_third_quartile for stage in found.stages],
            ),
        ),
        label,
        "length of the tokens' rows",
        "How the vectors grow",
        x_log=logarithmic,
        caption=caption,
    )
    return figures
