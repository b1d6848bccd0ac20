"""`inspect-embed neighbors`: the tokens nearest to a word."""

from __future__ import annotations

from typing import Any

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


@click.command("neighbors")
@checkpoint_argument
@words_argument
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, help="How many neighbours.")
@click.option(
    "--metric",
    type=click.Choice(["cosine", "dot", "euclidean"]),
    default="cosine",
    show_default=True,
    help="How nearness is measured.",
)
@table_option("input", "output", "position")
@click.option(
    "--query-table",
    type=click.Choice(["input", "output"]),
    help="Take the word's row from this table instead.",
)
@click.option("--center", is_flag=True, help="Take away the mean of the rows first.")
@click.option(
    "--remove-top",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Take away the N leading directions too (Mu & Viswanath 2018).",
)
@click.option("--plus", multiple=True, metavar="WORD", help="Add this word's row to the query.")
@click.option("--minus", multiple=True, metavar="WORD", help="Take this word's row from the query.")
@mean_option
@click.option("--all-rows", is_flag=True, help="Compare rows that no token names, too.")
@words_file_option
@common_options
def command(
    checkpoint: str,
    words: tuple[str, ...],
    words_file: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
    **choices: Any,
) -> None:
    """The tokens nearest to each WORD in the checkpoint CKPT.

    Beside each score stand its percentile (the share of all rows that are farther) and its z (how many standard
    deviations nearer than the mean score it lies), which tell a high cosine from an ordinary one.

    \b
    Examples:
      inspect-embed neighbors checkpoints/toy ·girl
      inspect-embed neighbors checkpoints/toy ·girl ·red -k 5 --format json
      inspect-embed neighbors checkpoints/toy ·king --minus ·man --plus ·woman
    """
    from inspect_embed.analyses.neighbors import neighbors

    asked = read_words(words, words_file)
    if not asked and not choices["plus"] and not choices["minus"]:
        raise click.UsageError("give a word, for instance ·girl")
    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    found = neighbors(opened, asked, **choices)
    write_answer(found.report(), [opened], format_, output, ascii)
