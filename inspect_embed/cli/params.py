"""`inspect-embed params`: the ledger of parameters, and each part's share."""

from __future__ import annotations

import click

from inspect_embed.cli.options import common_options, figure_options, open_ckpt, write_answer


@click.command("params")
@click.argument("checkpoints", nargs=-1, required=True, metavar="CKPT...")
@click.option(
    "--by",
    type=click.Choice(["part", "layer", "module", "tensor", "encoding"]),
    default="part",
    show_default=True,
    help="What to list parameters by.",
)
@click.option(
    "--headers-only", is_flag=True, help="Do not compare tables of the same shape: count each of them."
)
@figure_options
@common_options
def command(
    checkpoints: tuple[str, ...],
    by: str,
    headers_only: bool,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """How many parameters each CKPT holds, and which share of them each part is.

    Only headers and config are read, and the bytes of tables of the same shape, up to their first difference, to see
    whether a tied table is stored twice. Masks and other buffers are listed, not counted.

    \b
    Examples:
      inspect-embed params checkpoints/toy
      inspect-embed params checkpoints/toy --by layer
      inspect-embed params checkpoints/toy checkpoints/bigram
      inspect-embed params checkpoints/toy -o share.png
    """
    from inspect_embed.analyses.params import params, params_side_by_side

    opened = [open_ckpt(path, tokenizer, allow_partial) for path in checkpoints]
    if len(opened) == 1:
        report = params(opened[0], by=by, tensor=tensor, headers_only=headers_only).report()
    else:
        report = params_side_by_side(opened, by=by, tensor=tensor, headers_only=headers_only).report()
    write_answer(report, opened, format_, output, ascii)
