"""`inspect-embed positions`: how a model knows where a token stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from inspect_embed.cli.options import common_options, figure_options, open_ckpt, write_answer
from inspect_embed.errors import MissingTableError, OutputError

if TYPE_CHECKING:
    from inspect_embed.checkpoint import Checkpoint
    from inspect_embed.report import Report

_VIEWS = ("curve", "map", "path", "columns", "norms", "wavelengths")
_OF_A_TABLE = ("map", "path", "columns", "norms")


def _check_size(
    ctx: click.Context, param: click.Parameter, value: tuple[int, int] | None
) -> tuple[int, int] | None:
    if value is not None and value[1] % 2:
        raise click.BadParameter(
            f"WIDTH is even, not {value[1]}: columns come in pairs of a sine and a cosine"
        )
    return value


@click.command("positions")
@click.argument("checkpoint", metavar="[CKPT]", required=False)
@click.option(
    "--place",
    "places",
    type=int,
    multiple=True,
    metavar="P",
    help="Compare this place (counted from 1): one with all others, several with each other.",
)
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="The row of place 1, in place of what config and family say.",
)
@click.option(
    "--sinusoidal",
    type=(click.IntRange(1, 1 << 24), click.IntRange(2, 1 << 16)),
    callback=_check_size,
    metavar="LENGTH WIDTH",
    help="Show the sinusoidal formula's table of this size; needs no CKPT.",
)
@click.option(
    "--layout",
    type=click.Choice(["interleaved", "halves"]),
    default="interleaved",
    show_default=True,
    help="With --sinusoidal: sine and cosine in turn, or all sines first.",
)
@click.option(
    "--base",
    type=click.FloatRange(min=1, min_open=True, max=1e12),
    default=10_000.0,
    metavar="NUMBER",
    help="With --sinusoidal: the number in the place of the formula's 10,000.",
)
@click.option(
    "--column",
    "columns",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Draw this column (counted from 0) in the figure of columns.",
)
@click.option("--view", type=click.Choice(_VIEWS), help="What the figure that -o draws shows.")
@figure_options
@common_options
def command(
    checkpoint: str | None,
    places: tuple[int, ...],
    offset: int | None,
    sinusoidal: tuple[int, int] | None,
    layout: Literal["interleaved", "halves"],
    base: float,
    columns: tuple[int, ...],
    view: str | None,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """How the checkpoint CKPT knows where a token stands.

    A table of positions: how alike places are by distance, how long their rows are, where they lead. Rotary
    positions: the wavelengths that follow from the config. ALiBi: the slopes. Relative positions: the learned bias.

    \b
    Examples:
      inspect-embed positions checkpoints/toy
      inspect-embed positions checkpoints/toy --place 2 --place 3 --place 51
      inspect-embed positions checkpoints/toy --view map -o map.png
      inspect-embed positions --sinusoidal 64 16
    """
    from inspect_embed.analyses.positions import positions, sinusoidal_positions

    opened: list[Checkpoint] = []
    if sinusoidal is not None:
        if checkpoint is not None or tensor is not None or offset is not None:
            raise click.UsageError(
                "--sinusoidal shows a formula: it takes no CKPT, no --tensor and no --offset"
            )
        found = sinusoidal_positions(*sinusoidal, layout=layout, base=base, places=places, columns=columns)
    elif checkpoint is None:
        raise click.UsageError("give a checkpoint CKPT, or --sinusoidal LENGTH WIDTH")
    else:
        opened = [open_ckpt(checkpoint, tokenizer, allow_partial)]
        found = positions(opened[0], places=places, tensor=tensor, offset=offset, columns=columns)
    report = found.report()
    if view is not None:
        report = _with_view(report, view, checkpoint, output)
    write_answer(report, opened, format_, output, ascii)


def _with_view(report: Report, view: str, checkpoint: str | None, output: str | None) -> Report:
    """The report with one figure, that of the view."""
    if view not in report.figures:
        there = (
            f"There is a figure of: {', '.join(report.figures)}."
            if report.figures
            else "There is nothing to draw."
        )
        if view in _OF_A_TABLE and report.result.rows is None:
            from inspect_embed.analyses.positions import say_no_table

            raise MissingTableError(f"{checkpoint}: {say_no_table(report.result.kinds)}", there)
        raise OutputError(f"This answer has no figure {view!r}.", there)
    if output is None or Path(output).suffix.lower() in ("", ".txt", ".json", ".csv", ".md", ".markdown"):
        raise click.UsageError("--view chooses what a figure shows: give it a file with -o FILE.png")
    return replace(report, figures={view: report.figures[view]})
