"""The words of a plain table: in a file of word vectors, in a numpy archive, or in a list beside an array.

Words are taken as they are written, but for those in the spelling of this program (·girl), which it writes itself.
"""

from __future__ import annotations

import re

from inspect_embed.formats import npy, word_vectors
from inspect_embed.spelling import Marks, byte_level_encode, guess_marks, parse
from inspect_embed.storage import Folder
from inspect_embed.vocabularies import Vocabulary

NAME = "words of a plain table"
FILES = ()


def claims(name: str, data: bytes) -> bool:
    """Whether these first bytes begin a table of words, or an array that words may stand beside."""
    archive = name.endswith(npy.ARCHIVE) and data.startswith(b"PK")
    return archive or npy.recognizes(data) or word_vectors.recognizes(data)


def read(folder: Folder, name: str) -> Vocabulary:
    """Which words name the rows of this file's table? DamagedFileError where none do."""
    if name.endswith(npy.SUFFIXES):
        words, source = npy.read_words(folder, name)
    else:
        table = word_vectors.read_tensors(folder, name)
        words, source = table.words(), name
        table.close()
    marks = guess_marks(words)
    if any(word.startswith("·") and word != "·" for word in words):
        # Written by this program: the spelling of bytes, of which every byte string has one.
        marks = Marks(
            byte_level=True, byte_tokens=any(re.fullmatch("<0x[0-9A-F]{2}>", word) for word in words)
        )
        words = [
            word if marks.byte_of(word) is not None else byte_level_encode(parse(word)) for word in words
        ]
    elif marks == Marks():
        marks = Marks(whole_words=True)
    return Vocabulary(
        source=source,
        model="word list",
        marks=marks,
        entries=words,
        make_cutter=f"{source} lists words and does not say how text is cut.",
    )
