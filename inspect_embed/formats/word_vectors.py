"""Tables of words with their vectors: word2vec text and binary, fastText's .vec, GloVe text. Every row is a word.

word2vec's files begin with a line that says how many rows there are and how wide they are; GloVe's do not. A line of
text is a word and its numbers, between single spaces; a row of a binary file is a word, a space, and its numbers as
float32. Words may hold spaces in text: the numbers are counted from the end of the line.

Source: word2vec, word2vec.c and distance.c; GloVe, src/glove.c; gensim, models/keyedvectors.py.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from inspect_embed.encodings import ENCODINGS
from inspect_embed.errors import DamagedFileError, NotACheckpointError, shorten
from inspect_embed.formats import TensorEntry
from inspect_embed.formats._impostors import refuse_impostors
from inspect_embed.formats._listed import ListedTensors
from inspect_embed.storage import Folder, Ranges

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "word vectors"
SUFFIXES = (".vec", ".w2v", ".txt", ".bin")
ALONE = (".vec", ".w2v")
"""Names that such files alone have; the others are theirs where a file was chosen."""
TABLE = "embeddings"

_AGAIN = "Fetch the file again."
_FASTTEXT_MAGIC = b"\xba\x16\x4f\x2f"
_SIZES = re.compile(rb"[ \t]*(\d{1,12})[ \t]+(\d{1,7})[ \t]*\r?\n")
_NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LINE_OF_NUMBERS = re.compile(rb"[^\s][^\n]{0,200}?(?: " + _NUMBER + rb"){2}(?: |$|\n|\r)")
_LONGEST_LINE = 1 << 22
_LONGEST_WORD = 4096
_FEW_ROWS = 64
_CHUNK = 1 << 24


class WordVectors(ListedTensors):
    """One table of words; a `TensorSet`. Lines and rows are found when they are first asked for."""

    format = NAME

    def __init__(self, folder: Folder, file: str, allow_partial: bool = False) -> None:
        super().__init__(folder, allow_partial)
        self.files = (file,)
        self.vocabulary_file = file
        self._file = file
        source = self._source(file)
        self._data = source.read(0, 0)
        self._table: memoryview | None = None
        self._starts: NDArray[np.int64] | None = None
        start = bytes(source.read(0, _LONGEST_LINE))
        self.n_rows, self.width, self._first, self.binary = _read_sizes(start, source.size, file)
        if self.n_rows < 0:
            self._data = source.read(0, source.size)
            self.n_rows = len(self._line_starts()) - 1
        encoding = ENCODINGS["F32"]
        n_bytes = self.n_rows * self.width * encoding.block_bytes
        if self.n_rows * (self.width * (4 if self.binary else 2) + 1) - 1 > source.size - self._first:
            raise _cut_short(file, self.n_rows, source.size)
        self._add(TensorEntry(TABLE, (self.n_rows, self.width), encoding, file, 0, n_bytes))

    def read(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        """Bytes start to stop of the table as float32 numbers, row by row; DamagedFileError where a row is none."""
        row_bytes = 4 * self.width
        first, last = start // row_bytes, -(-stop // row_bytes)
        if self._table is None and last - first > _FEW_ROWS and not self.binary:
            # Numbers are slow to read: they are kept.
            self._table = self._rows(0, self.n_rows)
        table = self._table
        if table is not None:
            return table[start:stop]
        return self._rows(first, last)[start - first * row_bytes : stop - first * row_bytes]

    def expect(self, entry: TensorEntry, ranges: Ranges) -> None:
        """Where rows begin is known only when the whole file is: it is read as a whole."""

    def words(self) -> list[str]:
        """The word of every row, in order."""
        if self.binary:
            return [word for word, _ in self._walk()]
        starts = self._line_starts()
        return [
            word.decode("utf-8", "backslashreplace")
            for word, _ in (self._split(line) for line in self._lines(starts, 0, self.n_rows))
        ]

    def _whole(self) -> memoryview:
        if not len(self._data):
            source = self._source(self._file)
            self._data = source.read(0, source.size)
        return self._data

    def _line_starts(self) -> NDArray[np.int64]:
        """Where each line begins, and where the last one ends."""
        if self._starts is None:
            import numpy as np

            data = self._whole()
            flat = np.frombuffer(data, np.uint8)
            ends = [
                np.flatnonzero(flat[at : at + _CHUNK] == 10) + (at + 1)
                for at in range(self._first, len(flat), _CHUNK)
            ]
            starts = np.concatenate([np.array([self._first], np.int64), *ends])
            if starts[-1] != len(flat):  # the last line needs no line feed
                starts = np.append(starts, len(flat))
            while len(starts) > 1 and not bytes(data[starts[-2] : starts[-1]]).strip():
                starts = starts[:-1]
            if self.n_rows >= 0 and len(starts) - 1 != self.n_rows:
                if len(starts) - 1 < self.n_rows:
                    raise _cut_short(self._file, self.n_rows, len(flat), len(starts) - 1)
                starts = starts[: self.n_rows + 1]
            self._starts = starts
        return self._starts

    def _lines(self, starts: NDArray[np.int64], first: int, last: int) -> Iterator[bytes]:
        edges = starts[first : last + 1].tolist()
        base = edges[0]
        block = bytes(self._whole()[base : edges[-1]])
        for start, stop in pairwise(edges):
            yield block[start - base : stop - base].rstrip(b" \r\n")

    def _split(self, line: bytes) -> tuple[bytes, bytes]:
        """The word of a line, and its numbers."""
        if line.count(b" ") == self.width:
            word, _, numbers = line.partition(b" ")
            return word, numbers
        parts = line.rsplit(b" ", self.width)
        return parts[0], b" ".join(parts[1:])

    def _rows(self, first: int, last: int) -> memoryview:
        return memoryview(self._binary_rows(first, last) if self.binary else self._text_rows(first, last))

    def _text_rows(self, first: int, last: int) -> bytes:
        import numpy as np

        starts = self._line_starts()
        out = np.empty((last - first, self.width), np.float32)
        for start in range(first, last, 4096):
            stop = min(start + 4096, last)
            numbers = [self._split(line)[1] for line in self._lines(starts, start, stop)]
            values = _parse(b" ".join(numbers))
            if values is None or len(values) != (stop - start) * self.width:
                raise self._find_fault(starts, start, stop)
            with np.errstate(over="ignore", invalid="ignore"):
                out[start - first : stop - first] = values.reshape(-1, self.width)
        return out.tobytes()

    def _find_fault(self, starts: NDArray[np.int64], first: int, last: int) -> DamagedFileError:
        offset = 2 if self._first else 1
        for row, line in enumerate(self._lines(starts, first, last), first):
            values = _parse(self._split(line)[1])
            if values is None or len(values) != self.width or line.count(b" ") < self.width:
                return DamagedFileError(
                    f"Line {row + offset:,} of {self._file} is no word with {self.width:,} numbers.", _AGAIN
                )
        return DamagedFileError(f"{self._file} holds what are no numbers.", _AGAIN)

    def _walk(self) -> Iterator[tuple[str, int]]:
        """The word of each row of a binary file, and where its numbers begin."""
        data, at, size = self._whole(), self._first, 4 * self.width
        for _ in range(self.n_rows):
            head = bytes(data[at : at + 128])
            end = head.find(b" ", 1)
            if end < 0:
                head = bytes(data[at : at + _LONGEST_WORD])
                end = head.find(b" ", 1)
            if end < 0 or at + end + 1 + size > len(data):
                raise _cut_short(self._file, self.n_rows, len(data))
            # Some programs end a row with a line feed, some do not.
            yield head[:end].lstrip(b"\n").decode("utf-8", "backslashreplace"), at + end + 1
            at += end + 1 + size

    def _binary_rows(self, first: int, last: int) -> bytes:
        import numpy as np

        if self._starts is None:
            self._starts = np.fromiter((start for _, start in self._walk()), np.int64, self.n_rows)
        data, size = self._whole(), 4 * self.width
        return b"".join([data[start : start + size] for start in self._starts[first:last].tolist()])


def claims(names: Iterable[str], chosen: str | None) -> bool:
    """Is this folder, or the file chosen in it, one of word vectors?"""
    if chosen is not None:
        return chosen.endswith(SUFFIXES)
    return any(name.endswith(ALONE) for name in names)


def recognizes(start: bytes) -> bool:
    """Do these first bytes begin a table of words?"""
    return bool(
        start.startswith(_FASTTEXT_MAGIC)
        or (_SIZES.match(start) and len(start) > len(_SIZES.match(start)[0]))  # type: ignore[index]
        or _LINE_OF_NUMBERS.match(start)
    )


def read_tensors(folder: Folder, chosen: str | None = None, allow_partial: bool = False) -> WordVectors:
    """Which table is in this file? Cost: its first line, or, without one that tells its size, all its lines.

    Errors: DamagedFileError, NotACheckpointError.
    """
    if chosen is None:
        here = [name for name in folder.names() if name.endswith(ALONE)]
        if len(here) > 1:
            raise NotACheckpointError(
                f"{folder.location} holds {len(here)} tables of words: {shorten(here)}.",
                "Name the file that is meant.",
            )
        (chosen,) = here
    return WordVectors(folder, chosen, allow_partial)


def _read_sizes(start: bytes, size: int, file: str) -> tuple[int, int, int, bool]:
    """Number of rows (-1 where no line tells), width, where the first row begins, and whether rows are binary."""
    if start.startswith(_FASTTEXT_MAGIC):
        raise NotACheckpointError(
            f"{file} is a fastText model, whose words are put together from pieces.",
            "Its vectors are in the .vec file that fastText writes beside it.",
        )
    refuse_impostors(start, size, file, "a table of words")
    if start.startswith(b"\x1f\x8b"):
        raise NotACheckpointError(f"{file} is compressed with gzip.", f"Unpack it first: gunzip {file}")
    begin = 3 if start.startswith(b"\xef\xbb\xbf") else 0
    told = _SIZES.match(start, begin)
    if told:
        n_rows, width, first = int(told[1]), int(told[2]), told.end()
        if n_rows == 0 or width == 0 or n_rows > size or width > size:
            raise DamagedFileError(
                f"{file} promises {n_rows:,} rows of {width:,} numbers, and has {size:,} bytes.", _AGAIN
            )
        line = start[first:].partition(b"\n")[0].rstrip()
        values = _parse(line.partition(b" ")[2]) if line.count(b" ") == width else None
        binary = values is None or len(values) != width
        # A line of text has no byte that is no letter, sign or number; rows of float32 soon have one.
        if binary and not re.search(rb"[\x00-\x08\x0e-\x1f]", start[first : first + 4 * width + 64]):
            raise DamagedFileError(f"Line 2 of {file} is no word with {width:,} numbers.", _AGAIN)
        return n_rows, width, first, binary
    line = start[begin:].partition(b"\n")[0].rstrip()
    fields = line.split(b" ")
    values = _parse(b" ".join(fields[1:])) if len(fields) > 2 else None
    if values is None or len(values) != len(fields) - 1:
        raise NotACheckpointError(
            f"{file} is no table of words: its first line is neither two sizes nor a word with its numbers.",
            "A line holds a word and its numbers, between single spaces.",
        )
    return -1, len(values), begin, False


def _parse(text: bytes) -> NDArray[np.float64] | None:
    """The numbers that a text of numbers between spaces writes; None where it writes something else."""
    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            values: NDArray[np.float64] = np.fromstring(text.decode("ascii"), np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
    return values


def _cut_short(file: str, n_rows: int, size: int, n_found: int | None = None) -> DamagedFileError:
    held = f"{size:,} bytes" if n_found is None else f"{n_found:,} rows"
    return DamagedFileError(f"{file} is cut short: it promises {n_rows:,} rows and has {held}.", _AGAIN)
