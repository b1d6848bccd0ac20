"""`inspect-embed embed`: what the first layer reads for a text."""

from __future__ import annotations

import click

from inspect_embed.cli.options import (
    checkpoint_argument,
    common_options,
    open_ckpt,
    write_answer,
)


@click.command("embed")
@checkpoint_argument
@click.argument("text")
@common_options
def command(
    checkpoint: str,
    text: str,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """Token rows, position rows and their sum for TEXT: what the first layer of CKPT reads.

    \b
    Examples:
      inspect-embed embed checkpoints/toy "Lily saw Max"
      inspect-embed embed checkpoints/toy "Lily saw Max" -o embedded.json
    """
    from inspect_embed.analyses.embed import embed

    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    found = embed(opened, text, tensor=tensor)
    write_answer(found.report(), [opened], format_, output, ascii)
