"""`inspect-embed similarity`: how alike words are."""

from __future__ import annotations

import click

from inspect_embed.cli.options import (
    checkpoint_argument,
    common_options,
    figure_options,
    mean_option,
    open_ckpt,
    read_words,
    table_option,
    words_argument,
    words_file_option,
    write_answer,
)


@click.command("similarity")
@checkpoint_argument
@words_argument
@click.option(
    "--explain", is_flag=True, help="Show the working of one pair, to be followed with a calculator."
)
@click.option(
    "--columns",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    metavar="N",
    help="With --explain: how many columns to show number by number.",
)
@table_option("input", "output", "position")
@mean_option
@words_file_option
@figure_options
@common_options
def command(
    checkpoint: str,
    words: tuple[str, ...],
    explain: bool,
    columns: int,
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
    """How alike the WORDs are in the checkpoint CKPT: cosine, dot product and distance of every pair.

    \b
    Examples:
      inspect-embed similarity checkpoints/toy ·girl ·boy ·red ·blue
      inspect-embed similarity checkpoints/toy ·girl ·boy --explain
      inspect-embed similarity checkpoints/toy ·girl ·boy ·red ·blue -o grid.png --theme dark
    """
    from inspect_embed.analyses.similarity import similarity

    asked = read_words(words, words_file)
    if len(asked) < 2:
        raise click.UsageError("give two words or more, for instance ·girl ·boy")
    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    found = similarity(
        opened, asked, table=table, tensor=tensor, mean=mean, explain=columns if explain else 0
    )
    write_answer(found.report(), [opened], format_, output, ascii)
