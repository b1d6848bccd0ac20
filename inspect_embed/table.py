"""A table of vectors with labelled rows, read by blocks, straight from the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from inspect_embed.encodings import READABLE
from inspect_embed.errors import (
    MissingTableError,
    TokenError,
    UnknownTokenError,
    UnsupportedEncodingError,
    shorten,
)
from inspect_embed.formats import TensorEntry, TensorSet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from inspect_embed.schemes import PackedRows
    from inspect_embed.vocabularies import Vocabulary

    Floats = NDArray[np.floating[Any]]

NATIVE_BLOCK_BYTES = 1 << 24
"""Bytes of a block that is used where it lies: large enough that the work on it far outweighs the call."""
DECODED_BLOCK_ELEMENTS = 1 << 17
"""Numbers in a block that is decoded into a buffer: the buffer stays in the cache."""


@dataclass(frozen=True, slots=True)
class FoundRow:
    """The row that a query names, and what is worth saying about the choice."""

    row: int
    label: str
    notes: tuple[str, ...] = ()


class RowLabels(Protocol):
    """What the rows of a table mean."""

    def text(self, row: int) -> str:
        """What people call this row."""
        ...

    def find(self, query: str) -> FoundRow:
        """The row that a query names; TokenError where it names none."""
        ...

    def named(self, n_rows: int) -> NDArray[np.bool_]:
        """Which of the first n_rows rows mean something: bool (n_rows,)."""
        ...


class TokenLabels:
    """Rows that are tokens of a vocabulary; without a vocabulary, rows that are known by id alone."""

    def __init__(self, vocabulary: Vocabulary | None, missing: str = "") -> None:
        self.vocabulary = vocabulary
        self._missing = missing or "This checkpoint has no tokenizer that can be read."
        self._named: NDArray[np.bool_] | None = None
        self._found: dict[str, FoundRow] = {}
        self._texts: dict[int, str] = {}

    def text(self, row: int) -> str:
        """The token as people read it; "no token" where there is none; the id without a vocabulary."""
        if self.vocabulary is None:
            return f"id:{row}"
        if row not in self._texts:
            self._texts[row] = self.vocabulary.label(row)
        return self._texts[row]

    def find(self, query: str) -> FoundRow:
        """The row of the token that a query names."""
        if self.vocabulary is not None:
            # Lessons and studies ask for the same words again and again.
            if query not in self._found:
                found = self.vocabulary.find(query)
                self._found[query] = FoundRow(found.id, self.text(found.id), found.notes)
            return self._found[query]
        row = _whole_number(query.removeprefix("id:"))
        if row is None:
            raise TokenError(
                f"{query!r} cannot be looked up: {self._missing}",
                "Ask by id (id:477), or name a tokenizer with --tokenizer PATH.",
            )
        return FoundRow(row, self.text(row))

    def named(self, n_rows: int) -> NDArray[np.bool_]:
        """Rows that a token names; all of them without a vocabulary."""
        import numpy as np

        if self._named is None or len(self._named) != n_rows:
            named = np.full(n_rows, self.vocabulary is None)
            if self.vocabulary is not None:
                ids = self.vocabulary.ids()
                if isinstance(ids, range):
                    named[ids.start : ids.stop] = True
                else:
                    rows = np.fromiter(ids, np.int64)
                    named[rows[rows < n_rows]] = True
            named.flags.writeable = False
            self._named = named
        return self._named


class PositionLabels:
    """Rows that are positions; places count from 1, and some families leave rows unused before the first."""

    def __init__(self, first_used_row: int, n_rows: int) -> None:
        self.first_used_row = first_used_row
        self.n_places = max(0, n_rows - first_used_row)

    def text(self, row: int) -> str:
        """The place that stands in this row."""
        place = row - self.first_used_row + 1
        return f"place {place}" if 1 <= place <= self.n_places else "no place"

    def find(self, query: str) -> FoundRow:
        """The row of a place, given as a number from 1 (`3`, `place 3`), or of a row (`id:2`)."""
        if query.startswith("id:") and (row := _whole_number(query[3:])) is not None:
            return FoundRow(row, self.text(row))
        place = _whole_number(query.removeprefix("place").strip())
        if place is None or not 1 <= place <= self.n_places:
            raise UnknownTokenError(
                f"{query!r} is no place of this table: places run from 1 to {self.n_places:,}.",
                "Give the number of a place, counted from 1.",
            )
        row = place - 1 + self.first_used_row
        return FoundRow(row, self.text(row))

    def named(self, n_rows: int) -> NDArray[np.bool_]:
        """Rows that stand for a place."""
        import numpy as np

        return np.arange(n_rows) >= self.first_used_row


def _whole_number(digits: str) -> int | None:
    """The number that these digits write; None where they write none, or one that no row could have."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


class EmbeddingTable:
    """A table of vectors with labelled rows.

    `role` is "input", "output" or "position"; `tied` says that the output head is the input table itself.
    Values are float32, or float64 where the file holds float64. `block_scale` is how many rows and columns
    share one factor where 8-bit floats are scaled by blocks. `packed`: the rows of a quantised table, as its scheme
    unpacks them.
    """

    def __init__(
        self,
        role: str,
        tensor: TensorEntry,
        tensors: TensorSet,
        labels: RowLabels,
        tied: bool | None = None,
        block_scale: tuple[int, int] = (128, 128),
        packed: PackedRows | None = None,
    ) -> None:
        if len(tensor.shape) < 2 or tensor.n_elements == 0:
            raise MissingTableError(
                f"{tensor.name} has the shape ({shorten(tensor.shape)}), which is no table of rows.",
                "Name another tensor with --tensor NAME.",
            )
        self.role = role
        self.tensor = tensor
        self.labels = labels
        self.tied = tied
        self.width: int = packed.width if packed else tensor.shape[-1]
        self.n_rows: int = packed.n_rows if packed else tensor.n_elements // self.width
        self.notes: tuple[str, ...] = ()
        self._tensors = tensors
        self._packed = packed
        self._block_scale = block_scale
        self._norms: NDArray[np.float64] | None = None
        self._scale_entry: TensorEntry | None = None
        self._scale: Floats | None = None
        self._shared = (1, 1)
        if packed is not None:
            self.notes += (f"{tensor.name} {tensor.shape} was unpacked ({packed.scheme}).",)
        elif tensor.encoding.name.startswith("F8"):
            self._find_scale()

    def __repr__(self) -> str:
        """Role, tensor, shape and encoding."""
        return f"<{self.role} table {self.tensor.name} {self.tensor.shape} {self.tensor.encoding.name}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape; of a packed one, the shape that it stands for."""
        return (self.n_rows, self.width) if self._packed else self.tensor.shape

    @property
    def readable(self) -> bool:
        """Whether its values can be read as numbers of a vector."""
        return self._packed is not None or self.tensor.encoding.readable

    @property
    def row_bytes(self) -> int:
        """Bytes that one row takes in the file; where rows are packed, on average."""
        if self._packed is not None:
            return self.tensor.n_bytes // self.n_rows
        return self.tensor.encoding.count_bytes(self.width)

    def rows(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> Floats:
        """Which vectors stand in these rows?

        Returns a copy, float32 or float64 (len(ids), width), in the order asked for. UnknownTokenError where
        the table has no such row.
        """
        import numpy as np

        self._require_readable()
        for row in ids:
            if not 0 <= row < self.n_rows:
                raise UnknownTokenError(
                    f"{self.tensor.name} has no row {row:,}: its {self.n_rows:,} rows are 0 to {self.n_rows - 1:,}.",
                    "Ask for a row that the table has.",
                )
        if self._packed is not None:
            vectors = [self._packed.read(int(row), int(row) + 1) for row in ids]
            return np.concatenate(vectors) if vectors else np.empty((0, self.width), np.float32)
        encoding, size = self.tensor.encoding, self.row_bytes
        dtype = np.dtype(encoding.native or np.float32).newbyteorder("=")
        out = np.empty((len(ids), self.width), dtype)
        self._tensors.expect(self.tensor, ((int(row) * size, (int(row) + 1) * size) for row in ids))
        read, tensor, scaled = self._tensors.read, self.tensor, self._scale is not None
        for place, row in enumerate(map(int, ids)):
            out[place] = encoding.decode(read(tensor, row * size, (row + 1) * size))
            if scaled:
                self._apply_scale(out[place : place + 1], row)
        # Some NaN raise an alarm in the processor whenever they are widened; these do not.
        out[np.isnan(out)] = np.nan
        return out

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """Every row once, in order: (first row, read-only block (n, width)).

        A block of a native encoding is a view of the file; any other is a buffer that the next block
        overwrites: copy what must be kept.
        """
        import numpy as np

        self._require_readable()
        if self._packed is not None:
            yield from self._unpacked_blocks(self._packed)
            return
        encoding, size = self.tensor.encoding, self.row_bytes
        native = encoding.native is not None
        rows = (NATIVE_BLOCK_BYTES // size) if native else (DECODED_BLOCK_ELEMENTS // self.width)
        rows = max(1, min(rows, self.n_rows))
        self._tensors.expect(self.tensor, ((0, self.tensor.n_bytes),))
        buffer = None if native else np.empty(rows * self.width, np.float32)
        for start in range(0, self.n_rows, rows):
            stop = min(start + rows, self.n_rows)
            data = self._tensors.read(self.tensor, start * size, stop * size)
            out = None if buffer is None else buffer[: (stop - start) * self.width]
            block = encoding.decode(data, out).reshape(stop - start, self.width)
            self._apply_scale(block, start)
            if block.flags.writeable:
                block = block.view()
                block.flags.writeable = False
            yield start, block

    def _unpacked_blocks(self, packed: PackedRows) -> Iterator[tuple[int, Floats]]:
        rows = max(1, DECODED_BLOCK_ELEMENTS // self.width)
        for entry in (self.tensor, *packed.companions):
            self._tensors.expect(entry, ((0, entry.n_bytes),))
        for start in range(0, self.n_rows, rows):
            block = packed.read(start, min(start + rows, self.n_rows))
            block.flags.writeable = False
            yield start, block

    @property
    def norms(self) -> NDArray[np.float64]:
        """Euclidean length of every row: float64 (n_rows,), read once; NaN or infinite where a row is."""
        if self._norms is None:
            import numpy as np

            from inspect_embed.numerics.vectors import row_norms

            self._require_readable()

            norms = np.empty(self.n_rows, np.float64)
            for start, block in self.blocks():
                norms[start : start + len(block)] = row_norms(block)
            self._norms = norms
        return self._norms

    @property
    def norms_known(self) -> bool:
        """Whether the norms have been computed already."""
        return self._norms is not None

    def keep_norms(self, norms: NDArray[np.float64]) -> None:
        """Remember the norms that a pass over the blocks has computed."""
        self._norms = norms

    def has_same_values(self, other: EmbeddingTable) -> bool:
        """Whether the other table holds the same bytes; compared by blocks, up to the first difference."""
        pairs = [(self.tensor, other.tensor)]
        if self._scale_entry is not None or other._scale_entry is not None:
            if self._scale_entry is None or other._scale_entry is None:
                return False
            pairs.append((self._scale_entry, other._scale_entry))
        ours, theirs = (table._packed.companions if table._packed else () for table in (self, other))
        if len(ours) != len(theirs):
            return False
        pairs += zip(ours, theirs, strict=True)
        return all(_same_bytes(self._tensors, one, other._tensors, twin) for one, twin in pairs)

    def _require_readable(self) -> None:
        if not self.readable:
            from inspect_embed.schemes import find_companions

            companions = find_companions(self._tensors, self.tensor)
            beside = f" Beside it lie {shorten(companions)}: it is quantised." if companions else ""
            raise UnsupportedEncodingError(
                f"{self.tensor.name} holds {self.tensor.encoding.name} numbers, which are no vectors as "
                f"they lie.{beside}",
                f"Values can be read from {', '.join(READABLE)}; `info` and `params` still work.",
            )
        # Before anything as long as a row, or as the table has rows, is made, the file must have as many bytes.
        size = min(max(self.row_bytes, self.n_rows), self.tensor.n_bytes)
        self._tensors.read(self.tensor, size - 1, size)
        if self._scale is None and self._scale_entry is not None:
            self._read_scale(self._scale_entry)

    def _find_scale(self) -> None:
        """The scale tensor beside 8-bit floats, and how many rows and columns share one of its values.

        Told from headers alone, so that the notes are there before any value is read.
        """
        stem = self.tensor.name.removesuffix(".weight")
        for name in (
            f"{stem}.weight_scale",
            f"{stem}.weight_scale_inv",
            f"{stem}.scale",
            f"{stem}.scale_weight",
        ):
            if name not in self._tensors:
                continue
            entry = self._tensors[name]
            shared = self._shared_by(entry)
            if entry.encoding.readable and shared is not None:
                self._scale_entry, self._shared = entry, shared
                self.notes += (f"{self.tensor.name} was multiplied by {name} {entry.shape}.",)
            else:
                self.notes += (
                    f"{self.tensor.name} is shown as stored, NOT multiplied by {name} "
                    f"({entry.encoding.name} {entry.shape}), whose layout is not known.",
                )
            return

    def _read_scale(self, entry: TensorEntry) -> None:
        import numpy as np

        data = self._tensors.read(entry, 0, entry.n_bytes)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.array(entry.encoding.decode(data), np.float32)
        self._scale = values.reshape(-1, -(-self.width // self._shared[1]))

    def _shared_by(self, scale: TensorEntry) -> tuple[int, int] | None:
        """How many rows and columns share one value of a scale of this shape; None where that is not known."""
        if scale.n_elements == 1:
            return self.n_rows, self.width
        if scale.shape in ((self.n_rows,), (self.n_rows, 1)):
            return 1, self.width
        height, width = self._block_scale
        if scale.shape == (-(-self.n_rows // height), -(-self.width // width)):
            return height, width
        return None

    def _apply_scale(self, block: Floats, first_row: int) -> None:
        if self._scale is None:
            return
        import numpy as np

        height, width = self._shared
        rows = np.arange(first_row, first_row + len(block)) // height
        with np.errstate(over="ignore", invalid="ignore"):
            block *= self._scale[rows][:, np.arange(self.width) // width]


def _same_bytes(ours: TensorSet, a: TensorEntry, theirs: TensorSet, b: TensorEntry) -> bool:
    """Whether two tensors hold the same bytes under the same shape."""
    import numpy as np

    if a.shape != b.shape or a.encoding.name != b.encoding.name:
        return False
    step = 1 << 22
    for start in range(0, a.n_bytes, step):
        stop = min(start + step, a.n_bytes)
        words = (stop - start) // 8 * 8
        x, y = ours.read(a, start, stop), theirs.read(b, start, stop)
        if x[words:] != y[words:] or not np.array_equal(
            np.frombuffer(x[:words], np.uint64), np.frombuffer(y[:words], np.uint64)
        ):
            return False
    return True
