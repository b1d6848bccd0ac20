"""word2vec text: a line with the number of rows and their width, then a word and its numbers a line.

Words hold no space there, so a space inside a token is written as `\\x20`. Where two rows are called alike, or a row
has no token, it is called by its id (`id:477`): readers drop the second of two equal words. Ids stand in a file
beside, whose name ends in `.ids.tsv`: a word and its id a line, in the same order, nothing quoted.

Source: word2vec, word2vec.c (its text output); gensim, models/keyedvectors.py (what it reads).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from inspect_embed.outputs import Part
from inspect_embed.outputs._number_text import write_numbers
from inspect_embed.report import Report

_NAMELESS = "no token"


def parts(report: Report, path: Path) -> Mapping[Path, Part]:
    """The file of vectors, and the file of ids beside it."""
    words = _name_rows(report.arrays["tokens"], report.arrays["ids"].tolist())
    return {
        path: partial(_write_vectors, report, words),
        path.with_name(path.stem + ".ids.tsv"): partial(_write_ids, report, words),
    }


def _name_rows(tokens: list[str], ids: list[int]) -> list[str]:
    """What each row is called: no name holds a space, and no two are alike."""
    names: dict[str, None] = {}
    for token, id_ in zip(tokens, ids, strict=True):
        name = token.replace(" ", r"\x20")
        names[f"id:{id_}" if token == _NAMELESS or name in names else name] = None
    return list(names)


def _write_vectors(report: Report, words: list[str], file: BinaryIO) -> None:
    vectors = report.arrays["vectors"]
    file.write(f"{len(vectors)} {vectors.shape[1]}\n".encode())
    for word, numbers in zip(words, write_numbers(vectors, " "), strict=True):
        file.write(f"{word} {numbers}\n".encode())


def _write_ids(report: Report, words: list[str], file: BinaryIO) -> None:
    file.write(b"token\tid\n")
    for word, id_ in zip(words, report.arrays["ids"].tolist(), strict=True):
        file.write(f"{word}\t{id_}\n".encode())
