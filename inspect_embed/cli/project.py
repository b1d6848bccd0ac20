"""`inspect-embed project`: maps of tokens that can go on a slide."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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
from inspect_embed.errors import OptionError


@click.command("project")
@checkpoint_argument
@words_argument
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME=WORD,...",
    help="Words that share a colour and a legend entry; a comma that is part of a word is \\x2c.",
)
@click.option("--around", metavar="WORD", help="This word and its -k nearest.")
@click.option(
    "-k",
    type=click.IntRange(min=2),
    default=40,
    show_default=True,
    help="With --around: how many neighbours.",
)
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="The first N tokens.")
@click.option("--grep", metavar="REGEX", help="The tokens that match.")
@click.option(
    "--method",
    type=click.Choice(["pca", "tsne", "umap"]),
    default="pca",
    show_default=True,
    help="How the map is drawn.",
)
@click.option(
    "--dims",
    type=click.IntRange(2, 3),
    default=2,
    show_default=True,
    help="How many dimensions it has.",
)
@click.option(
    "--fit",
    type=click.Choice(["shown", "table"]),
    default="shown",
    show_default=True,
    help="Which rows PCA is fitted on.",
)
@click.option("--center", is_flag=True, help="Take away the mean of the table's rows first.")
@click.option(
    "--normalize",
    is_flag=True,
    help="Scale rows to length 1, so that distances go by the cosine.",
)
@click.option(
    "--perplexity",
    type=float,
    metavar="P",
    help="For t-SNE (default: 30, or a third of fewer points).",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="For t-SNE and UMAP: same seed, same machine, same map.",
)
@table_option("input", "output", "position")
@click.option("--title", metavar="TEXT", help="What stands above the map.")
@mean_option
@words_file_option
@figure_options
@common_options
def command(
    checkpoint: str,
    words: tuple[str, ...],
    words_file: str | None,
    groups: tuple[str, ...],
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
    **choices: Any,
) -> None:
    """A map of the WORDs in the checkpoint CKPT, in two or three dimensions; without any, of every token.

    -o with a name that ends in .png, .svg or .pdf draws the map; .html makes a page to pan, zoom and search, which
    needs no network; .csv, .json and .safetensors hold the coordinates. With the map comes how faithful it is: the share
    of each point's nearest in the full space that are also its nearest on the map.

    \b
    Examples:
      inspect-embed project checkpoints/toy --around ·girl -o girl.png
      inspect-embed project checkpoints/toy --group colours=·red,·blue,·green --group people=·girl,·boy,·mom -o map.svg
      inspect-embed project checkpoints/toy --method tsne -o all.html
    """
    from inspect_embed.analyses.project import project

    asked = read_words(words, words_file)
    if words_file is not None and not asked:
        raise click.UsageError(f"{words_file} holds no words")
    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    page = output is not None and format_ is None and Path(output).suffix.lower() in (".html", ".htm")
    try:
        found = project(
            opened,
            asked,
            groups=_read_groups(groups),
            all_neighbors=page,
            progress=_tell,
            **choices,
        )
    except OptionError as error:
        raise click.UsageError(f"{error} {error.hint}") from None
    write_answer(found.report(), [opened], format_, output, ascii)


def _read_groups(groups: tuple[str, ...]) -> dict[str, list[str]]:
    """`colours=·red,·blue` as a name and its words; a name given twice goes on."""
    found: dict[str, list[str]] = {}
    for group in groups:
        name, equals, listed = group.partition("=")
        words = [word for word in listed.split(",") if word]
        if not equals or not name or not words:
            raise click.UsageError(
                f"--group {group!r} is not NAME=WORD,WORD; give --group colours=·red,·blue"
            )
        found.setdefault(name, []).extend(words)
    return found


def _tell(message: str) -> None:
    sys.stderr.write(message + "\n")
