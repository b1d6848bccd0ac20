"""`inspect-embed info`: what is in a checkpoint."""

from __future__ import annotations

import click

from inspect_embed.cli.options import (
    checkpoint_argument,
    common_options,
    open_ckpt,
    write_answer,
)


@click.command("info")
@checkpoint_argument
@common_options
def command(
    checkpoint: str,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """What is in the checkpoint CKPT: family, tables, widths, types, tokenizer, positions.

    Reads headers, config and vocabulary, and no tensor data.

    \b
    Examples:
      inspect-embed info checkpoints/toy
      inspect-embed info checkpoints/bigram --format json
    """
    from inspect_embed.analyses.info import info

    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    write_answer(info(opened, tensor=tensor).report(), [opened], format_, output, ascii)
