"""A saved model, opened: its files, its config, its tables and its vocabulary. Only headers are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from inspect_embed.errors import (
    AmbiguousTableError,
    DamagedFileError,
    MissingTableError,
    NotACheckpointError,
    TableError,
    UnknownFamilyError,
    shorten,
)
from inspect_embed.families import OUTPUT_LEAVES, FoundTables, TableChoice, find_tables
from inspect_embed.formats import TensorEntry, TensorSet, list_suffixes, read_tensors
from inspect_embed.json_text import parse_json
from inspect_embed.storage import HINT, Folder, Tell, locate
from inspect_embed.storage.local import LocalFolder

if TYPE_CHECKING:
    from inspect_embed.table import EmbeddingTable, RowLabels, TokenLabels
    from inspect_embed.vocabularies import Vocabulary

ROLES = ("input", "output", "position")
_OTHER_MODEL_FILES = (".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Which tensor a table is: the part of a result that says what was looked at."""

    role: str
    tensor: str
    shape: tuple[int, ...]
    encoding: str

    @classmethod
    def of(cls, table: EmbeddingTable) -> TableFacts:
        """The facts of an opened table."""
        return cls(table.role, table.tensor.name, table.shape, table.tensor.encoding.name)

    def __str__(self) -> str:
        """One line: role, tensor, shape, encoding."""
        return f"{self.role} table {self.tensor} {shape_text(self.shape)} {self.encoding}"


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as people write it: 50,257 x 768."""
    return " x ".join(f"{n:,}" for n in shape) or "scalar"


class Checkpoint:
    """A saved model, opened.

    `location` is the path as given, `family` the architecture's name, `config` what the files say of the model, in
    the words of config.json ({} where nothing does), `tensors` every tensor's entry by name. `warnings` say what is wrong with the
    files, `notes` what is worth knowing.
    """

    def __init__(
        self,
        location: str,
        folder: Folder,
        tensors: TensorSet,
        tokenizer: str | os.PathLike[str] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.location = location
        self.folder = folder
        self.tensors = tensors
        self.format = tensors.format
        self.warnings = list(tensors.warnings)
        self.notes = [*notes, *tensors.notes]
        self._tokenizer = tokenizer
        self._tables: dict[tuple[str, str | None], EmbeddingTable] = {}
        self._damage = ""
        # What a file says of itself goes before a config that lies beside it.
        self.config: Mapping[str, Any] = tensors.config or self._read_json("config.json")

    def __repr__(self) -> str:
        """Location, family and number of tensors."""
        return f"<Checkpoint {self.location}: {self.family}, {len(self.tensors):,} tensors>"

    def __enter__(self) -> Checkpoint:
        """The checkpoint itself: its files are given back at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the files back, so that they can be moved or written; a later question opens them again."""
        self.tensors.close()

    @cached_property
    def found(self) -> FoundTables:
        """Which tensors are its tables."""
        found = find_tables(self.tensors, self.config)
        if found.tied and self._may_lack_head():
            note = "Whether the output head is tied cannot be told: it may be in a file that is missing."
            return found._replace(tied=None, notes=(*found.notes, note))
        return found

    def _may_lack_head(self) -> bool:
        """Whether an output head may lie in a file that is missing."""
        if not self.tensors.missing_files:
            return False
        leaves = {leaf for rank in OUTPUT_LEAVES for leaf in rank}
        missing = [name.removesuffix(".weight").split(".") for name in self.tensors.missing_names()]
        return not missing or any(name[-1] in leaves or ".".join(name[-2:]) in leaves for name in missing)

    @property
    def family(self) -> str:
        """The architecture's name."""
        return self.found.family

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        """What the rows of the token table mean; None where no tokenizer can be read."""
        from inspect_embed.vocabularies import open_vocabulary

        try:
            return open_vocabulary(self.folder, self._tokenizer, self.tensors.vocabulary_file)
        except DamagedFileError as error:
            if self._tokenizer is not None:
                raise
            # Rows can still be asked for by their ids.
            self._damage = str(error)
            self.warnings.append(f"{error} Rows are known by their ids alone.")
            return None

    @property
    def vocabulary_absence(self) -> str:
        """Why there is no vocabulary, in a sentence; empty where there is one."""
        from inspect_embed.vocabularies import explain_absence

        return "" if self.vocabulary is not None else self._damage or explain_absence(self.folder)

    @property
    def token_labels(self) -> TokenLabels:
        """Rows of token tables, by name."""
        from inspect_embed.table import TokenLabels

        return TokenLabels(self.vocabulary, self.vocabulary_absence)

    def table(self, role: str = "input", tensor: str | None = None) -> EmbeddingTable:
        """The table of this role, or the tensor of this name in its place.

        `role` is "input", "output" (the input table where the head is tied to it) or "position" (the first of
        the text model's). TableError where there is none, or where several input tables of different
        values could be meant.
        """
        if role not in ROLES:
            raise ValueError(f"role must be one of {ROLES}, not {role!r}")
        # Kept, so that a second question finds the lengths of the rows that the first one measured.
        if (role, tensor) not in self._tables:
            self._tables[role, tensor] = self._choose_table(role, tensor)
        return self._tables[role, tensor]

    def _choose_table(self, role: str, tensor: str | None) -> EmbeddingTable:
        if tensor is not None:
            return self._open_table(role, self.find_tensor(tensor))
        if role == "position":
            if not self.found.positions:
                kinds = " and ".join(self.found.position_kinds) or "of an unknown kind"
                raise MissingTableError(
                    f"{self.location} has no position table: its positions are {kinds}.",
                    "`inspect-embed info` shows the tables that it has.",
                )
            return self._open_position_table(self.found.positions[0])
        if role == "output":
            return self._output_table()
        return self._input_table()

    def _input_table(self) -> EmbeddingTable:
        choice = self.found.input
        if choice is None:
            raise self._no_input_table()
        table = self._open_table("input", choice.entry)
        rivals = [self._open_table("input", entry) for entry in self.found.ambiguous if entry != choice.entry]
        if any(not table.has_same_values(rival) for rival in rivals):
            listed = [f"{t.tensor.name} {shape_text(t.shape)}" for t in (table, *rivals)]
            raise AmbiguousTableError(
                f"{self.location} holds several input tables of different values: {shorten(listed)}.",
                f"Choose one, for instance --tensor {table.tensor.name}",
            )
        return table

    def _no_input_table(self) -> TableError:
        if self.found.adapter:
            base = self._read_json("adapter_config.json").get("base_model_name_or_path")
            of = f" for {base}" if isinstance(base, str) else ""
            held = [entry.name for entry in self.found.candidates]
            return MissingTableError(
                f"{self.location} is an adapter{of}: low-rank changes, and no token table of its own.",
                f"It holds a full copy, which --tensor {held[0]} shows."
                if held
                else "Open the base model, or the model with the adapter merged into it.",
            )
        tables = [name for name in self.tensors.names()[:10_000] if len(self.tensors[name].shape) == 2]
        hint = f"Name one with --tensor NAME; it holds {shorten(tables)}." if tables else ""
        if missing := self.tensors.missing_files:
            return UnknownFamilyError(
                f"No tensor of {self.location} looks like a token table; it may be in a file that is missing: "
                f"{shorten(missing)}.",
                f"Fetch the missing files. {hint}".rstrip(),
            )
        return UnknownFamilyError(
            f"No tensor of {self.location} looks like a token table.", hint or "It holds no tables at all."
        )

    def _output_table(self) -> EmbeddingTable:
        found = self.found
        if found.output is not None:
            return self._open_table("output", found.output.entry)
        if found.tied:
            table = self._open_table("output", self._input_table().tensor)
            table.notes += (f"The output head is tied: it is the input table, {table.tensor.name}.",)
            return table
        missing = self.tensors.missing_files
        raise MissingTableError(
            f"{self.location} holds no output table{'' if found.tied is None else ', and is not tied'}"
            + (f"; it may be in a file that is missing: {shorten(missing)}." if missing else "."),
            "`inspect-embed info` shows the tables that it has.",
        )

    def _open_table(self, role: str, entry: TensorEntry) -> EmbeddingTable:
        from inspect_embed.schemes import open_rows
        from inspect_embed.table import EmbeddingTable, PositionLabels

        packed = open_rows(self.tensors, entry, self.config)
        labels: RowLabels = self.token_labels
        if role == "position":
            first = next((c.first_used_row for c in self.found.positions if c.entry == entry), 0)
            labels = PositionLabels(first, entry.n_elements // max(entry.shape[-1:] or (1,)))
        return EmbeddingTable(role, entry, self.tensors, labels, self.found.tied, self._block_scale(), packed)

    def _open_position_table(self, choice: TableChoice) -> EmbeddingTable:
        return self._open_table("position", choice.entry)

    def _block_scale(self) -> tuple[int, int]:
        quantisation = self.config.get("quantization_config")
        size = quantisation.get("weight_block_size") if isinstance(quantisation, dict) else None
        if isinstance(size, list) and len(size) == 2 and all(type(n) is int and n > 0 for n in size):
            return size[0], size[1]
        return 128, 128

    def find_tensor(self, name: str) -> TensorEntry:
        """The tensor of this name, or the only one whose name ends so."""
        if name in self.tensors:
            return self.tensors[name]
        names = self.tensors.names()
        tails = [stored for stored in names if stored.endswith(f".{name}")]
        if len(tails) == 1:
            return self.tensors[tails[0]]
        if tails:
            raise AmbiguousTableError(
                f"Several tensors end in {name!r}: {shorten(tails)}.", "Give the whole name."
            )
        import difflib

        close = difflib.get_close_matches(name, names[:50_000], cutoff=0.3)
        raise MissingTableError(
            f"{self.location} has no tensor called {name!r}.",
            f"It has {shorten(close or names)}." if names else "It has no tensors at all.",
        )

    def _read_json(self, name: str) -> dict[str, Any]:
        """A JSON file beside the tensors; {} where it is absent, and with a warning where it is broken."""
        if name not in self.folder.names():
            return {}
        source = self.folder.open(name)
        try:
            return parse_json(source.read(0, source.size), name, source.size)
        except DamagedFileError as error:
            self.warnings.append(f"{error} Names and shapes alone were used.")
            return {}
        finally:
            source.close()


def open_checkpoint(
    path: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | None = None,
    allow_partial: bool = False,
    progress: Tell | None = None,
) -> Checkpoint:
    """What is in this checkpoint?

    `path`: a folder, a file with tensors in it, an index of such files, a hub cache folder (models--org--name), the id of
    a model in the hub cache (org/name, org/name@revision), or an address (hf://org/name, https://, s3://), of which only
    what is asked for is fetched. `tokenizer`: a tokenizer file, or a folder that holds one, in place of the checkpoint's
    own. With `allow_partial`, tensors that lie wholly inside a file that is cut short can be read. `progress` hears how
    many bytes of how many have been fetched.

    Cost: the headers. Errors: NotACheckpointError, PlaceError, DamagedFileError.

    >>> checkpoint = open_checkpoint("checkpoints/toy")
    >>> checkpoint.table().width
    128
    """
    location = os.fspath(path)
    folder, chosen, notes = locate(location, progress)
    if "://" in location:  # an address as it may be shown
        location = folder.location + (f"/{chosen}" if chosen is not None else "")
    tensors = read_tensors(folder, chosen, allow_partial)
    if tensors is None:
        raise _not_readable(location, folder, chosen)
    return Checkpoint(location, folder, tensors, tokenizer, notes)


def _not_readable(location: str, folder: Folder, chosen: str | None) -> NotACheckpointError:
    suffixes = list_suffixes()
    known = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
    if chosen is not None:
        return NotACheckpointError(f"{location} is no {known} file, and no index of one.", HINT)
    names = folder.names()
    others = [name for name in names if name.endswith(_OTHER_MODEL_FILES)]
    below, broken = folder.look_below(suffixes) if isinstance(folder, LocalFolder) else ([], [])
    if broken:
        hint = f"It holds links to files that are not there: {shorten(broken)}. Fetch them again."
    elif below:
        hint = f"There are some below it: {shorten(f'{location}/{name}' for name in below)}."
    elif others:
        hint = f"It holds {shorten(others)}, which cannot be read."
    else:
        hint = f"It holds {shorten(names)}." if names else "It is empty."
    return NotACheckpointError(f"{location} holds no {known} file.", hint)
