"""`inspect-embed compare`: two checkpoints, or a series of them, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from inspect_embed.cli.options import (
    common_options,
    figure_options,
    open_ckpt,
    put_first,
    show_progress,
    table_option,
    write_answer,
)

if TYPE_CHECKING:
    from inspect_embed.report import Result


@click.command("compare")
@click.argument("checkpoints", nargs=-1, metavar="CKPT CKPT [CKPT]...")
@table_option("input", "output")
@click.option(
    "-k", type=click.IntRange(min=1), default=10, show_default=True, help="Size of a neighbourhood."
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="How many of the most changed tokens to list.",
)
@click.option("--all-tokens", is_flag=True, help="List every token that both have.")
@click.option("--same-space", is_flag=True, help="The two share their coordinates, whatever is measured.")
@click.option("--different-space", is_flag=True, help="The two do not share coordinates.")
@click.option(
    "--pair",
    "pairs",
    nargs=2,
    multiple=True,
    metavar="WORD WORD",
    help="In a series: follow the cosine of these two tokens.",
)
@click.option("--series", is_flag=True, help="Take two checkpoints for a series, too.")
@click.option(
    "--no-neighbors", is_flag=True, help="Leave out neighbourhoods, which take all pairs of tokens."
)
@click.option(
    "--view", type=click.Choice(["pairs", "overlap", "cosines", "norms"]), help="Which figure to draw."
)
@figure_options
@common_options
def command(
    checkpoints: tuple[str, ...],
    table: str,
    k: int,
    top: int,
    all_tokens: bool,
    same_space: bool,
    different_space: bool,
    pairs: tuple[tuple[str, str], ...],
    series: bool,
    no_neighbors: bool,
    view: str | None,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """What changed from one checkpoint to another, token by token; or along a series of three or more.

    Tokens are matched by their bytes. Two models of different coordinates are told apart by measurement: then
    neighbourhoods are compared, and never raw numbers.

    \b
    Examples:
      inspect-embed compare checkpoints/toy/steps/step-00977 checkpoints/toy
      inspect-embed compare checkpoints/toy checkpoints/bigram
      inspect-embed compare checkpoints/bigram/steps/* --pair cat dog --pair cat ball -o forming.png
    """
    from inspect_embed.analyses.compare import compare, compare_series

    if len(checkpoints) < 2:
        raise click.UsageError("give two checkpoints or more")
    in_series = series or len(checkpoints) > 2
    if same_space and different_space:
        raise click.UsageError("--same-space and --different-space contradict each other: give one")
    if (same_space or different_space) and in_series:
        raise click.UsageError("--same-space and --different-space are for two checkpoints")
    if pairs and not in_series:
        raise click.UsageError("--pair follows a series: give three checkpoints, or --series")
    opened = [open_ckpt(path, tokenizer, allow_partial) for path in checkpoints]
    with show_progress("neighbours of all tokens") as progress:
        found: Result
        if in_series:
            found = compare_series(
                opened, pairs, table=table, tensor=tensor, k=k, neighbors=not no_neighbors, progress=progress
            )
        else:
            found = compare(
                *opened,
                table=table,
                tensor=tensor,
                space="same" if same_space else "different" if different_space else "measure",
                k=k,
                neighbors=not no_neighbors,
                top=None if all_tokens else top,
                progress=progress,
            )
    write_answer(put_first(found.report(), view), opened, format_, output, ascii)
