"""PyTorch archives (.bin, .pt, .pth), one or sharded: tensors read where they lie, without torch and without running
the pickle that describes them.

`torch.save` writes a zip archive, unpacked: a pickle of the objects, and a file for each run of numbers. Before
version 1.6 it wrote several pickles and then the numbers. Both are read.

Source: PyTorch, torch/serialization.py (`_save`, `_legacy_save`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inspect_embed.encodings import ENCODINGS
from inspect_embed.errors import CheckpointError, DamagedFileError, NotACheckpointError, shorten
from inspect_embed.formats import TensorEntry
from inspect_embed.formats._impostors import refuse_impostors
from inspect_embed.formats._listed import ListedTensors, open_file, quote
from inspect_embed.formats._unpickle import TensorView, Unpickler
from inspect_embed.formats._zip import MAGIC as ZIP_MAGIC
from inspect_embed.formats._zip import Member, find_data, read_directory
from inspect_embed.json_text import parse_json
from inspect_embed.storage import ByteSource, Folder, Ranges

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "PyTorch"
SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
INDEX_SUFFIX = ".bin.index.json"

OLD_MAGIC = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"
OLD_MAGIC_IN_DIGITS = b"L119547037146038801333356L"
"""The number by which files written before version 1.6 are known: their first pickle, in bytes or in digits."""

_AGAIN = "Fetch the file again."
_SAVE = "Save the weights with torch.save(model.state_dict(), PATH), or as a .safetensors file."
_FIRST_WINDOW = 1 << 20
_LARGEST_PICKLE = 1 << 28
_DEEPEST = 32
_LONGEST_NAME = 4096
_SHARD = re.compile(r"(?P<stem>.+?)-(?P<number>\d{2,6})-of-(?P<count>\d{2,6})\.(?:bin|pt|pth)", re.ASCII)
_PREFERRED = (
    "pytorch_model.bin",
    "model.pt",
    "model.pth",
    "model.bin",
    "consolidated.00.pth",
    "consolidated.pth",
)
_BESIDE = re.compile(
    r"(?:training_args|optimizer|optim|scheduler|lr_scheduler|scaler|rng_state|random_states|trainer_state|sampler)"
    r"[^/]*\.(?:bin|pt|pth|ckpt)|.*\.index\.(?:bin|pt)"
)
"""Files that trainings leave beside a model's."""

MODEL_KEYS = (
    "state_dict", "model_state_dict", "model_state", "model", "module", "params", "net", "network", "weights", "generator",
)  # fmt: skip
"""Where the weights lie in a file that holds more, the likeliest first."""

BESIDE_KEYS = re.compile(
    r"(?:^|[^a-z])(?:optim|sched|lr|scaler|rng|grad|loss|epoch|step|callback|loop|hparam|hyper|args|config|amp)"
)
"""Words in keys of what is no weight."""


@dataclass(slots=True)
class _Run:
    """Stored numbers in a row: the byte of their file where they begin, or, until they are read, the member that knows."""

    n_bytes: int
    place: int | Member


class TorchTensors(ListedTensors):
    """The tensors of one PyTorch file or of a set of shards; a `TensorSet`."""

    format = NAME

    def __init__(self, folder: Folder, allow_partial: bool = False) -> None:
        super().__init__(folder, allow_partial)
        self._runs: dict[str, _Run] = {}
        self._strided: dict[str, TensorView] = {}
        self._index: dict[str, str] = {}

    def read(self, entry: TensorEntry, start: int, stop: int) -> memoryview:
        """Bytes start to stop of a tensor, row by row: a view of the file, or a copy where its rows do not lie in turn.

        DamagedFileError where they are not there.
        """
        base = self._begin(entry)
        view = self._strided.get(entry.name)
        if view is None:
            return self._read_range(entry, base + entry.start + start, base + entry.start + stop)
        return _gather(
            view, self._read_range(entry, base, base + self._runs[entry.name].n_bytes), start, stop
        )

    def expect(self, entry: TensorEntry, ranges: Ranges) -> None:
        """These bytes of a tensor will be read next."""
        base = self._begin(entry)
        if entry.name in self._strided:
            wanted = [(base, base + self._runs[entry.name].n_bytes)]
        else:
            base += entry.start
            wanted = [(base + start, base + stop) for start, stop in ranges]
        self._source(entry.file).expect(wanted)

    def _begin(self, entry: TensorEntry) -> int:
        """Where in its file the run begins that a tensor is a view of; its entry counts from there."""
        run = self._runs[entry.name]
        if isinstance(run.place, Member):
            run.place = find_data(self._source(entry.file), run.place, entry.file)
        return run.place

    def missing_names(self) -> list[str]:
        """Names of the tensors that the index places in files that are missing."""
        missing = set(self.missing_files)
        return [name for name, file in self._index.items() if file in missing] if missing else []


def claims(names: Iterable[str], chosen: str | None) -> bool:
    """Is this folder, or the file chosen in it, a PyTorch checkpoint?"""
    if chosen is not None:
        return chosen.endswith((*SUFFIXES, INDEX_SUFFIX))
    return any(name.endswith(INDEX_SUFFIX) or _may_hold_weights(name) for name in names)


def recognizes(start: bytes) -> bool:
    """Do these first bytes begin a file that torch.save may have written?"""
    return start.startswith(ZIP_MAGIC) or _is_old(start)


def _is_old(start: bytes) -> bool:
    return start.startswith(OLD_MAGIC_IN_DIGITS) or (start.startswith(b"\x80") and OLD_MAGIC in start[:32])


def read_tensors(folder: Folder, chosen: str | None = None, allow_partial: bool = False) -> TorchTensors:
    """Which tensors does this checkpoint hold?

    `chosen` is a file of the folder or an index; without it an index decides, else the names of the files do. Shards
    that are missing or unreadable beside others that are not become warnings. A tensor that is stored under several
    names is listed once. Cost: directories and pickles, no numbers. Errors: DamagedFileError, NotACheckpointError.
    """
    names = folder.names()
    tensors = TorchTensors(folder, allow_partial)
    index = chosen if chosen is not None and chosen.endswith(INDEX_SUFFIX) else None
    if chosen is None:
        index = next((name for name in names if name.endswith(INDEX_SUFFIX)), None)
    if index is not None:
        tensors._index, tensors.stated = _read_index(folder, index)
        listed = sorted(set(tensors._index.values()))
        missing = [file for file in listed if file not in names]
        if len(missing) == len(listed):
            raise NotACheckpointError(
                f"None of the {len(listed)} files that {index} names is there: {shorten(missing)}.",
                "Fetch at least the file that holds the table.",
            )
        files = [file for file in listed if file in names]
    elif chosen is not None:
        files, missing = [chosen], []
    else:
        files, missing = _choose_files(names, folder.location)
    tensors.missing_files = tuple(missing)
    if missing:
        tensors.warnings += (f"{len(missing)} shards are not there: {shorten(missing)}.",)
    _add_files(tensors, files)
    return tensors


def _add_files(tensors: TorchTensors, files: list[str]) -> None:
    read: list[str] = []
    for file in files:
        try:
            _add_file(tensors, file)
            read.append(file)
        except CheckpointError as error:
            if len(files) == 1:
                raise
            tensors.missing_files += (file,)
            tensors.warnings += (f"{error} Its tensors are missing.",)
    if not read:
        raise DamagedFileError(f"None of the {len(files)} files can be read: {tensors.warnings[0]}", _AGAIN)
    tensors.files = tuple(read)


def _choose_files(names: list[str], location: str) -> tuple[list[str], list[str]]:
    """Without an index: the files that make one model, and those missing among them."""
    here = [name for name in names if _may_hold_weights(name)]
    groups = dict.fromkeys(map(_group, here))
    chosen = next((name for name in _PREFERRED if name in groups), None)
    if chosen is None and len(groups) > 1:
        raise NotACheckpointError(
            f"{location} holds {len(groups)} PyTorch models: {shorten(groups)}.",
            "Name the file that is meant.",
        )
    chosen = chosen or next(iter(groups))
    files = [name for name in here if _group(name) == chosen]
    match = _SHARD.fullmatch(files[0])
    if match is None:
        return files, []
    present = {int(found["number"]) for found in map(_SHARD.fullmatch, files) if found}
    # The count is a claim of the name alone: no more are listed than could matter to a reader.
    absent = [n for n in range(1, min(int(match["count"]), 10_000) + 1) if n not in present]
    head, tail = files[0][: match.start("number")], files[0][match.end("number") :]
    return files, [f"{head}{n:0{len(match['number'])}d}{tail}" for n in absent]


def _may_hold_weights(name: str) -> bool:
    return name.endswith(SUFFIXES) and not _BESIDE.fullmatch(name)


def _group(name: str) -> str:
    """The name that the shards of one model share."""
    match = _SHARD.fullmatch(name)
    return f"{match['stem']}-of-{match['count']}" if match else name


def _read_index(folder: Folder, index: str) -> tuple[dict[str, str], Mapping[str, Any]]:
    """Which file holds which tensor, and what the index states about the whole."""
    source = open_file(folder, index)
    try:
        content = parse_json(source.read(0, source.size), index, source.size)
    finally:
        source.close()
    weight_map, stated = content.get("weight_map"), content.get("metadata")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(file, str) for file in weight_map.values())
    ):
        raise DamagedFileError(
            f'{index} has no "weight_map" from tensor names to file names.',
            "Name one of the .bin files instead.",
        )
    for file in sorted(set(weight_map.values())):
        if not file or file in (".", "..") or any(mark in file for mark in "/\\:\0"):
            raise DamagedFileError(
                f"{index} names the file {file!r}, which is not a plain name inside the checkpoint's folder.",
                "Do not trust this index; name one of the .bin files instead.",
            )
    return weight_map, stated if isinstance(stated, dict) else {}


# --- one file --------------------------------------------------------------------------------------------------


def _add_file(tensors: TorchTensors, file: str) -> None:
    source = tensors._source(file)
    start = bytes(source.read(0, 1024))
    if start.startswith(ZIP_MAGIC):
        content, runs = _read_archive(source, file)
    elif _is_old(start):
        content, runs = _read_old(source, file)
    elif start.startswith(b"\x80"):
        raise NotACheckpointError(
            f"{file} is a Python pickle that torch.save did not write; such files are never opened.", _SAVE
        )
    else:
        refuse_impostors(start, source.size, file, "a PyTorch file")
        raise NotACheckpointError(
            f"{file} is not a PyTorch file: it begins with {start[:4]!r}.", "Check where the file came from."
        )
    ends = [run.place + run.n_bytes for run in runs.values() if isinstance(run.place, int)]
    needed = max(ends, default=0)
    if needed > source.size:
        problem = f"{file} is cut short: it needs {needed:,} bytes and has {source.size:,}."
        tensors._short[file] = problem
        tensors.warnings += (problem,)
    found, left_out = _find_weights(content)
    if not found:
        raise NotACheckpointError(f"{file} holds no tensors under names.", _SAVE)
    if left_out:
        tensors.notes += (f"Not counted, since they are no weights of the model: {shorten(left_out)}.",)
    known: dict[tuple[object, ...], str] = {}
    aliases = dict(tensors.aliases)
    for name, view in found.items():
        place = (view.stored.key, view.dtype, view.offset, view.shape, view.strides)
        if place in known and view.shape and 0 not in view.shape:
            aliases[name] = known[place]
            continue
        known[place] = name
        _add_view(tensors, file, name, view, runs[view.stored.key], max(source.size, needed))
    tensors.aliases = aliases


def _add_view(
    tensors: TorchTensors, file: str, name: str, view: TensorView, run: _Run, file_size: int
) -> None:
    item = view.dtype.item_bytes
    n_bytes = math.prod(view.shape) * item
    last = view.offset + sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
    if n_bytes and (last + 1) * item > run.n_bytes:
        raise DamagedFileError(
            f"{file} is damaged at {quote(name)}: its numbers run past the {run.n_bytes:,} bytes that they lie in.",
            _AGAIN,
        )
    if n_bytes > file_size:
        raise DamagedFileError(
            f"{file} is damaged at {quote(name)}: a shape of {n_bytes:,} bytes in a file of {file_size:,}.",
            _AGAIN,
        )
    start = view.offset * item
    entry = TensorEntry(name, view.shape, ENCODINGS[view.dtype.encoding], file, start, start + n_bytes)
    tensors._add(entry)
    tensors._runs[name] = run
    if n_bytes and not _lies_in_turn(view):
        tensors._strided[name] = view


def _lies_in_turn(view: TensorView) -> bool:
    """Whether the numbers lie one after the other, the last dimension first."""
    step = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _gather(view: TensorView, data: memoryview, start: int, stop: int) -> memoryview:
    """Bytes start to stop of a tensor whose numbers do not lie in turn, put in turn."""
    import numpy as np

    item = view.dtype.item_bytes
    first, last = start // item, -(-stop // item)
    numbers: NDArray[np.void] = np.ndarray(
        view.shape, f"V{item}", data, view.offset * item, tuple(step * item for step in view.strides)
    )
    taken = numbers.flat[first:last].tobytes()
    return memoryview(taken)[start - first * item : stop - first * item]


def _read_archive(source: ByteSource, file: str) -> tuple[object, dict[str, _Run]]:
    """What the archive's pickle describes, and where its numbers lie."""
    members = read_directory(source, file)
    pickles = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
    if not pickles:
        raise NotACheckpointError(
            f"{file} is a zip archive that torch.save did not write: it holds {shorten(members) or 'nothing'}.",
            "Check where the file came from.",
        )
    pickle = min(pickles, key=len)
    root = pickle.removesuffix("data.pkl")
    if f"{root}constants.pkl" in members or any(name.startswith(f"{root}code/") for name in members):
        raise NotACheckpointError(
            f"{file} is a TorchScript program (torch.jit.save), not a table of weights.", _SAVE
        )
    order = members.get(f"{root}byteorder")
    if order is not None and bytes(_read_member(source, order, file, 64)).strip() not in (b"little", b""):
        raise NotACheckpointError(
            f"{file} was written big-endian, for other processors; only little-endian files are read.", _SAVE
        )
    unpickler = Unpickler(_read_member(source, members[pickle], file, _LARGEST_PICKLE), file, source.size)
    content = unpickler.load()
    runs: dict[str, _Run] = {}
    for key, stored in unpickler.stored.items():
        member = members.get(f"{root}data/{key}")
        if member is None:
            raise DamagedFileError(f"{file} is damaged: the numbers {quote(key)} are not in it.", _AGAIN)
        n_bytes = stored.n_items * stored.dtype.item_bytes
        if not member.plain:
            raise NotACheckpointError(
                f"{file} is a packed zip archive; torch.save packs nothing, so that numbers can be read in place.",
                "Save it again with torch.save, or unpack the archive and zip it without packing.",
            )
        if n_bytes > member.size:
            raise DamagedFileError(
                f"{file} is damaged: the numbers {quote(key)} take {n_bytes:,} bytes and have "
                f"{member.size:,}.",
                _AGAIN,
            )
        runs[key] = _Run(n_bytes, member)
    return content, runs


def _read_member(source: ByteSource, member: Member, file: str, most: int) -> memoryview:
    if not member.plain:
        raise NotACheckpointError(f"{file} is a packed zip archive; torch.save packs nothing.", _SAVE)
    if member.size > most:
        raise DamagedFileError(
            f"{file} is not what torch.save writes: its {member.name} has {member.size:,} bytes.", _AGAIN
        )
    start = find_data(source, member, file)
    return source.read(start, start + member.size)


def _read_old(source: ByteSource, file: str) -> tuple[object, dict[str, _Run]]:
    """As `_read_archive`, for a file of five pickles, the last of which lists the numbers that follow it."""
    unpickler, (_, _, system, content, keys) = _read_pickles(source, file)
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise NotACheckpointError(
            f"{file} was written big-endian, for other processors; only little-endian files are read.", _SAVE
        )
    if not isinstance(keys, list) or set(map(type, keys)) > {str} or len(set(keys)) < len(unpickler.stored):
        raise DamagedFileError(f"{file} is damaged: it does not list the numbers that it holds.", _AGAIN)
    runs: dict[str, _Run] = {}
    place = unpickler.place
    for key in keys:
        stored = unpickler.stored.get(key)
        if stored is None:
            raise DamagedFileError(
                f"{file} is damaged: it lists numbers, {quote(key)}, that nothing in it names.",
                _AGAIN,
            )
        start = place + 8
        place = start + stored.n_items * stored.dtype.item_bytes
        count = bytes(source.read(start - 8, start))
        if len(count) == 8 and int.from_bytes(count, "little") != stored.n_items:
            raise DamagedFileError(
                f"{file} is damaged: the numbers {quote(key)} are {stored.n_items:,} by one count and "
                f"{int.from_bytes(count, 'little'):,} by another.",
                _AGAIN,
            )
        runs[key] = _Run(place - start, start)
    return content, runs


def _read_pickles(source: ByteSource, file: str) -> tuple[Unpickler, list[Any]]:
    """What the five pickles describe; where they end is not known, so that more is read until they are whole."""
    window = _FIRST_WINDOW
    while True:
        unpickler = Unpickler(source.read(0, min(source.size, window)), file, source.size)
        try:
            return unpickler, [unpickler.load() for _ in range(5)]
        except DamagedFileError:
            if window >= min(source.size, _LARGEST_PICKLE):
                raise
        window *= 16


# --- which of the tensors are the model's ----------------------------------------------------------------------


def _find_weights(content: object) -> tuple[dict[str, TensorView], list[str]]:
    """The tensors of the model by their names, and the keys under which other tensors lie.

    A file that holds more than the weights has them under a key of its own. Names of nested dictionaries are joined
    with dots.
    """
    left_out: list[str] = []
    for _ in range(_DEEPEST):
        if not isinstance(content, dict):
            break
        inner = next((key for key in MODEL_KEYS if isinstance(content.get(key), dict) and _holds_tensors(content[key])), None)  # fmt: skip
        if inner is None:
            break
        left_out += [str(key) for key, value in content.items() if key != inner and _holds_tensors(value)]
        content = content[inner]
    found: dict[str, TensorView] = {}
    if isinstance(content, dict):
        for key, value in content.items():
            if isinstance(value, (dict, list)) and isinstance(key, str) and BESIDE_KEYS.search(key.lower()):
                if _holds_tensors(value):
                    left_out.append(key)
                continue
            found.update(_named_tensors({key: value}))
    return found, left_out


def _named_tensors(content: object) -> Iterator[tuple[str, TensorView]]:
    """Every tensor below, with its name. A container that several names lead to is looked through once."""
    seen: set[int] = set()
    waiting: list[tuple[str, object, int]] = [("", content, 0)]
    while waiting:
        name, value, depth = waiting.pop()
        if isinstance(value, TensorView):
            yield name, value
        elif isinstance(value, (dict, list, tuple)) and depth < _DEEPEST and id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            below = [
                (f"{name}.{key}" if name else str(key), item, depth + 1)
                for key, item in items
                if isinstance(key, (str, int)) and len(name) < _LONGEST_NAME
            ]
            waiting += reversed(below)


def _holds_tensors(content: object) -> bool:
    return next(_named_tensors(content), None) is not None
