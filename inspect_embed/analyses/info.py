"""What is in this checkpoint?"""

from __future__ import annotations

from dataclasses import dataclass

from inspect_embed.checkpoint import Checkpoint, shape_text
from inspect_embed.errors import shorten
from inspect_embed.families import find_buffers
from inspect_embed.formats import TensorEntry
from inspect_embed.report import Block, Column, Fact, Facts, Grid, Note, Report, Result
from inspect_embed.schemes import NOTHING_PACKED, Packing, find_packing, is_suspect


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as its header describes it."""

    tensor: str
    shape: tuple[int, ...]
    encoding: str

    @classmethod
    def of(cls, entry: TensorEntry) -> Tensor:
        """The facts of a header entry."""
        return cls(entry.name, entry.shape, entry.encoding.name)


@dataclass(frozen=True, slots=True)
class PositionTable:
    """A table of positions; the first position stands in row `first_used_row`."""

    tensor: str
    shape: tuple[int, ...]
    encoding: str
    kind: str
    first_used_row: int


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a checkpoint; `output` is None where the head is tied or absent.

    `candidates` are further tensors that could be meant by an input table.
    """

    input: Tensor | None
    output: Tensor | None
    position: tuple[PositionTable, ...]
    candidates: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class VocabularyFacts:
    """What the tokenizer's file says, held against the rows of the token table."""

    source: str
    model: str
    tokens: int
    max_id: int
    rows_without_token: int | None
    tokens_without_row: int | None


@dataclass(frozen=True, slots=True)
class EncodingFacts:
    """How many bytes of data lie in one encoding."""

    encoding: str
    bytes: int


@dataclass(frozen=True)
class Info(Result):
    """What is in a checkpoint.

    `tied`: None where this kind of file has no output head. `quantisation`: the schemes by which numbers are packed.
    """

    checkpoint: str
    family: str
    format: str
    files: int
    missing_files: tuple[str, ...]
    tensors: int
    encodings: tuple[EncodingFacts, ...]
    tables: Tables
    tied: bool | None
    position_kinds: tuple[str, ...]
    vocabulary: VocabularyFacts | None
    notes: tuple[str, ...] = ()
    quantisation: str = ""

    def report(self) -> Report:
        """Facts first, then the tables."""
        tied = {
            True: "yes: the input table is the output table",
            False: "no",
            None: "no output head in this file",
        }
        size = sum(part.bytes for part in self.encodings)
        facts = [
            Fact("family", self.family),
            Fact("format", self.format, remark=f"{self.files:,} file{'s' * (self.files != 1)}"),
            Fact("tensors", self.tensors, ",d", f"{size:,} bytes of data"),
            Fact("encodings", ", ".join(part.encoding for part in self.encodings) or "none"),
            Fact("positions", ", ".join(self.position_kinds) or "not known"),
            Fact("tied", tied[self.tied]),
        ]
        if self.quantisation:
            facts.append(Fact("quantised", self.quantisation))
        if self.missing_files:
            facts.append(Fact("missing", shorten(self.missing_files)))
        words = self.vocabulary
        if words is None:
            facts.append(Fact("vocabulary", "none that can be read"))
        else:
            facts.append(
                Fact("vocabulary", words.tokens, ",d", f"tokens, {words.model}, from {words.source}")
            )
            if words.rows_without_token is not None:
                facts.append(Fact("rows without a token", words.rows_without_token, ",d"))
                facts.append(Fact("tokens without a row", words.tokens_without_row, ",d"))
        rows = list(self._rows())
        heads = (Column("table"), Column("tensor"), Column("shape"), Column("encoding"), Column(""))
        blocks: list[Block] = [Facts(tuple(facts))]
        if rows:
            blocks.append(Grid(heads, rows))
        sheet = Grid(tuple(map(Column, ("role", "tensor", "shape", "encoding", "remark"))), rows)
        return Report(self.checkpoint, self, (*blocks, *map(Note, self.notes)), sheet)

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        tables = self.tables
        rows = [("input", tables.input, "")] if tables.input else []
        rows += [("output", tables.output, "")] if tables.output else []
        lines = [(role, t.tensor, shape_text(t.shape), t.encoding, remark) for role, t, remark in rows]
        for table in tables.position:
            offset = f", position 0 is row {table.first_used_row}" if table.first_used_row else ""
            lines.append(
                ("position", table.tensor, shape_text(table.shape), table.encoding, f"{table.kind}{offset}")
            )
        lines += [("candidate", t.tensor, shape_text(t.shape), t.encoding, "") for t in tables.candidates]
        return lines


def info(checkpoint: Checkpoint, *, tensor: str | None = None) -> Info:
    """What is in this checkpoint? Reads headers, config and vocabulary; no tensor data.

    `tensor` is taken for the input table in place of the one that was found.

    >>> info(open_checkpoint("checkpoints/toy")).tables.input.shape
    (4096, 128)
    """
    found = checkpoint.found
    notes = [*checkpoint.notes, *found.notes]
    entry = checkpoint.find_tensor(tensor) if tensor else found.input.entry if found.input else None
    tables = Tables(
        Tensor.of(entry) if entry else None,
        Tensor.of(found.output.entry) if found.output else None,
        tuple(
            PositionTable(
                choice.entry.name,
                choice.entry.shape,
                choice.entry.encoding.name,
                choice.kind,
                choice.first_used_row,
            )
            for choice in found.positions
        ),
        tuple(map(Tensor.of, found.candidates)),
    )
    packing = _find_packing(checkpoint)
    schemes = [*packing.schemes, *(["a packing that is not known"] if packing.unknown else [])]
    if entry is None:
        notes.append("No tensor looks like a token table.")
    if found.ambiguous and tensor is None:
        notes.append(
            f"Several tables could be meant: {shorten(entry.name for entry in found.ambiguous)}; "
            f"--tensor NAME chooses."
        )
    shape = packing.known.get(entry.name, entry.shape) if entry else ()
    words = _describe_vocabulary(checkpoint, shape[0] if shape else None)
    if words is not None and words.tokens_without_row:
        notes.append(f"{words.tokens_without_row:,} tokens have no row in the token table.")
    if checkpoint.vocabulary is not None:
        notes += checkpoint.vocabulary.notes
    sizes = checkpoint.tensors.count_bytes()
    return Info(
        checkpoint.location,
        found.family,
        checkpoint.format,
        len(checkpoint.tensors.files),
        checkpoint.tensors.missing_files,
        len(checkpoint.tensors),
        tuple(EncodingFacts(name, sizes[name]) for name in sorted(sizes, key=lambda name: -sizes[name])),
        tables,
        found.tied,
        found.position_kinds,
        words,
        tuple(dict.fromkeys(notes)),
        ", ".join(schemes),
    )


def _find_packing(checkpoint: Checkpoint) -> Packing:
    tensors, config = checkpoint.tensors, checkpoint.config
    if not any(map(is_suspect, tensors.count_bytes())):
        return NOTHING_PACKED
    return find_packing(tensors, config, (buffer.entry.name for buffer in find_buffers(tensors, config)))


def _describe_vocabulary(checkpoint: Checkpoint, n_rows: int | None) -> VocabularyFacts | None:
    vocabulary = checkpoint.vocabulary
    if vocabulary is None:
        return None
    rows_without = tokens_without = None
    if n_rows is not None:
        tokens_without = len(vocabulary.beyond(n_rows))
        rows_without = n_rows - (vocabulary.n_tokens - tokens_without)
    return VocabularyFacts(
        vocabulary.source,
        vocabulary.model,
        vocabulary.n_tokens,
        vocabulary.max_id,
        rows_without,
        tokens_without,
    )
