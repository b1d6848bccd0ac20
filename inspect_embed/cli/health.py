"""`inspect-embed health`: what is wrong in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from inspect_embed.cli.options import (
    checkpoint_argument,
    common_options,
    figure_options,
    open_ckpt,
    put_first,
    show_progress,
    table_option,
    write_answer,
)
from inspect_embed.errors import AnalysisError

if TYPE_CHECKING:
    from inspect_embed.analyses.health import Health


@click.command("health")
@checkpoint_argument
@table_option("input", "output")
@click.option(
    "--candidates",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="How many tokens to list in the order of the hardly trained ones.",
)
@click.option(
    "--no-hubs",
    is_flag=True,
    help="Leave out hubs and nearly equal rows, which take all pairs of tokens.",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 where there are findings.")
@click.option(
    "--allow",
    multiple=True,
    metavar="FINDING",
    help='With --strict: a finding that is no failure, for instance "without a token".',
)
@click.option("--view", type=click.Choice(["norms", "spectrum"]), help="Which figure to draw.")
@figure_options
@common_options
def command(
    checkpoint: str,
    table: str,
    candidates: int,
    no_hubs: bool,
    strict: bool,
    allow: tuple[str, ...],
    view: str | None,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """What is wrong in a table of the checkpoint CKPT, and what shape it has.

    Rows that are zero, not finite, doubled, far too short or long, or that no token names; tokens that training
    hardly touched; the spread of the vectors; hubs. The exit status is 0 with findings, too, unless --strict.

    \b
    Examples:
      inspect-embed health checkpoints/toy
      inspect-embed health checkpoints/toy --no-hubs --candidates 50 --format json
      inspect-embed health checkpoints/toy --strict --allow "without a token"
      inspect-embed health checkpoints/toy -o norms.png
      inspect-embed health checkpoints/toy --view spectrum -o spectrum.svg
    """
    from inspect_embed.analyses.health import FINDINGS, health

    for kind in allow:
        if kind not in FINDINGS:
            raise click.UsageError(f"{kind!r} is no finding; they are {', '.join(FINDINGS)}")
    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    with show_progress("neighbours of all tokens") as progress:
        found = health(
            opened,
            table=table,
            tensor=tensor,
            candidates=candidates,
            hubs=not no_hubs,
            progress=progress,
        )
    write_answer(put_first(found.report(), view), [opened], format_, output, ascii)
    if strict:
        _judge(found, allow)


def _judge(found: Health, allow: tuple[str, ...]) -> None:
    """The answer has been written: findings that are not allowed end in status 1."""
    kinds = [finding for finding in found.findings if finding.kind not in allow]
    if kinds:
        listed = ", ".join(f"{finding.n:,} {finding.kind}" for finding in kinds)
        raise AnalysisError(
            f"There are findings: {listed}.",
            "--allow FINDING takes one of them for no failure.",
        )
