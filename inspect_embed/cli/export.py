"""`inspect-embed export`: rows of a table as files that other programs read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from inspect_embed.cli.options import (
    checkpoint_argument,
    common_options,
    open_ckpt,
    read_words,
    table_option,
    words_argument,
    words_file_option,
    write_answer,
    write_files,
)
from inspect_embed.errors import OutputError

if TYPE_CHECKING:
    from inspect_embed.report import Report

_TO = ("projector", "word2vec", "npz", "safetensors", "parquet")
_WITH_MAP = ("projector", "npz", "safetensors", "parquet")
_WITH_NEIGHBORS = ("npz", "safetensors", "parquet")
_FOLDERS = ("projector",)


@click.command("export")
@checkpoint_argument
@words_argument
@click.option("--to", type=click.Choice(_TO), required=True, help="Which program, or format, it is for.")
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="The first N tokens.")
@click.option("--grep", metavar="REGEX", help="The tokens that match.")
@table_option("input", "output", "position")
@click.option("--with-map", type=click.Choice(["pca", "tsne"]), help="Write coordinates of a map too.")
@click.option(
    "--neighbors",
    type=click.IntRange(min=0),
    metavar="K",
    help="Write the K nearest of each row among those written too (default: 10 for parquet, else none).",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="For the map.")
@words_file_option
@common_options
def command(
    checkpoint: str,
    words: tuple[str, ...],
    words_file: str | None,
    to: str,
    first: int | None,
    grep: str | None,
    table: str,
    with_map: str | None,
    neighbors: int | None,
    seed: int,
    tensor: str | None,
    tokenizer: str | None,
    allow_partial: bool,
    format_: str | None,
    output: str | None,
    ascii: bool,
) -> None:
    """The rows of the WORDs in the checkpoint CKPT for another program; without any, of every token. -o says where to.

    projector: a folder for TensorBoard's Embedding Projector. word2vec: text that gensim reads. npz: numpy's archive.
    safetensors: vectors, with the tokens in its metadata. parquet: a table, with the neighbours that Embedding Atlas
    shows. Ids stand beside tokens everywhere; --format tells how the list of files is printed.

    \b
    Examples:
      inspect-embed export checkpoints/toy --to projector -o toy-projector
      inspect-embed export checkpoints/toy --grep "^·" --to word2vec -o toy.txt
      inspect-embed export checkpoints/toy --first 2000 --with-map pca --to parquet -o toy.parquet
    """
    from inspect_embed.analyses.export import export

    if output is None or output == "-":
        raise click.UsageError(f"say where to write: give -o {'FOLDER' if to in _FOLDERS else 'FILE'}")
    if with_map is not None and to not in _WITH_MAP:
        raise click.UsageError(f"--to {to} has no place for a map; those have: {', '.join(_WITH_MAP)}")
    if neighbors and to not in _WITH_NEIGHBORS:
        raise click.UsageError(
            f"--to {to} has no place for neighbours; those have: {', '.join(_WITH_NEIGHBORS)}"
        )
    if neighbors is None:
        neighbors = 10 if to == "parquet" else 0
    if to == "parquet":
        import_module("inspect_embed.outputs.parquet").check()  # before the work, not after it
    asked = read_words(words, words_file)
    if words_file is not None and not asked:
        raise click.UsageError(f"{words_file} holds no words")
    opened = open_ckpt(checkpoint, tokenizer, allow_partial)
    found = export(
        opened,
        asked,
        first=first,
        grep=grep,
        table=table,
        tensor=tensor,
        with_map=with_map,
        neighbors=neighbors,
        seed=seed,
        progress=_tell,
    )
    path = Path(output)
    if to in _FOLDERS:
        _make_folder(path)
    parts = _parts(to, found.report(), path)
    write_files(parts)
    write_answer(found.written(to, [*map(str, parts)]).report(), [opened], format_, None, ascii)


def _parts(to: str, report: Report, path: Path) -> Mapping[Path, Callable[[BinaryIO], None]]:
    if to != "safetensors":
        parts: Mapping[Path, Callable[[BinaryIO], None]] = import_module(f"inspect_embed.outputs.{to}").parts(
            report, path
        )
        return parts
    from inspect_embed.outputs.arrays import render

    def write(file: BinaryIO) -> None:
        file.write(render(report))

    return {path: write}


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be made a folder: {error.strerror}.", "Give another path with -o."
        ) from None


def _tell(message: str) -> None:
    sys.stderr.write(message + "\n")
