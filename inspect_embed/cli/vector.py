"""`inspect-embed vector`: the numbers of a token's row."""

from __future__ import annotations

import click

from inspect_embed.cli.options import (
    checkpoint_argument,
    common_options,
    mean_option,
    open_ckpt,
    read_words,
    table_option,
    words_argument,
    words_file_option,
    write_answer,
)


@click.command("vector")
@checkpoint_argument
@words_argument
@click.option(
    "-n", "--first", type=click.IntRange(min=0), metavar="N", help="Show the first N numbers (default: all)."
)
@table_option("input", "output", "position")
@mean_option
@words_file_option
@common_options
def command(
    checkpoint: str,
    words: tuple[str, ...],
    first: int | None,
    table: str,
    mean: bool,
    words_file: str | None,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """The numbers of each WORD's row in the checkpoint CKPT, its length and its largest entries.

    \b
    Examples:
      inspect-embed vector checkpoints/toy ·Lily -n 16
      inspect-embed vector checkpoints/toy ·Lily ·Max -o vectors.csv
    """
    from inspect_embed.analyses.vector import vector

    asked = read_words(words, words_file)
    if not asked:
        raise click.UsageError("give a word, for instance ·Lily")
    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    found = vector(opened, asked, table=table, tensor=tensor, mean=mean, first=first)
    write_answer(found.report(), [opened], format_, output, ascii)
