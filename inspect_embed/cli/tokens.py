"""`inspect-embed tokens`: words to ids, ids to words, and the vocabulary."""

from __future__ import annotations

import click

from inspect_embed.cli.options import (
    checkpoint_argument,
    common_options,
    open_ckpt,
    read_words,
    words_argument,
    words_file_option,
    write_answer,
)


@click.command("tokens")
@checkpoint_argument
@words_argument
@click.option(
    "--id", "ids", type=click.IntRange(min=0), multiple=True, help="Look up this id; may be repeated."
)
@click.option("--text", help="Show how this whole text is cut.")
@click.option("--grep", metavar="REGEX", help="List the tokens whose spelling matches.")
@click.option("-n", "--first", type=click.IntRange(min=0), metavar="N", help="List at most N tokens.")
@words_file_option
@common_options
def command(
    checkpoint: str,
    words: tuple[str, ...],
    ids: tuple[int, ...],
    text: str | None,
    grep: str | None,
    first: int | None,
    words_file: str | None,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """Words to ids in the checkpoint CKPT, and back; without a WORD, the whole vocabulary.

    \b
    Examples:
      inspect-embed tokens checkpoints/toy ·girl girl
      inspect-embed tokens checkpoints/toy --id 300
      inspect-embed tokens checkpoints/toy --text "Lily saw a little girl."
      inspect-embed tokens checkpoints/toy --grep "^·gir"
    """
    from inspect_embed.analyses.tokens import tokens

    if tensor is not None:
        raise click.UsageError("tokens reads no table, so --tensor has nothing to choose")
    asked = read_words(words, words_file)
    if grep is not None and (asked or ids or text is not None):
        raise click.UsageError("--grep lists the vocabulary: give it alone, without words, --id or --text")
    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    found = tokens(opened, asked, ids=ids, text=text, grep=grep, first=first)
    write_answer(found.report(), [opened], format_, output, ascii)
