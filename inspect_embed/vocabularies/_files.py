"""What does a vocabulary's file say, whatever is wrong with it? Shared by the readers."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping, Sequence
from typing import TypeGuard, cast

from inspect_embed.errors import DamagedFileError, shorten
from inspect_embed.json_text import refuse_dense, usual_memory
from inspect_embed.spelling import encode, show
from inspect_embed.storage import Folder

MAX_ID = 2**32 - 1
"""Ids beyond this fit in no tokenizer; entries that have one are left out, and a note says so."""


def read_text(folder: Folder, name: str) -> str:
    """What does this file say? UTF-8, with or without a byte order mark; DamagedFileError where it is not."""
    source = folder.open(name)
    try:
        text = str(source.read(0, source.size), "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedFileError(
            f"{name} is not UTF-8 text: byte {error.start:,} is not.", "Fetch the file again."
        ) from None
    finally:
        source.close()
    if text.startswith("version https://git-lfs"):
        raise DamagedFileError(
            f"{name} is a git-lfs pointer, not the file itself.", "Run `git lfs pull` in its folder."
        )
    return text


def read_json(folder: Folder, name: str) -> object:
    """Which values does this JSON file hold? DamagedFileError where it is none."""
    text = read_text(folder, name)
    refuse_dense(text, name, len(text), len(text), usual_memory)
    collecting = gc.isenabled()
    gc.disable()  # parsing makes many objects and no cycles
    try:
        return json.loads(text)
    except RecursionError:
        raise DamagedFileError(f"{name} is nested too deeply.", "Fetch the file again.") from None
    except ValueError as error:
        raise DamagedFileError(f"{name} is not JSON: {error}.", "Fetch the file again.") from None
    finally:
        if collecting:
            gc.enable()


def keep_sound_ids(vocab: Mapping[str, object], source: str) -> tuple[Mapping[str, int], list[str]]:
    """Which entries have an id that a row can have? The entries, and a note on those that were left out."""
    ids = vocab.values()
    if set(map(type, ids)) == {int}:
        whole = cast(Mapping[str, int], vocab)
        if min(whole.values()) >= 0 and max(whole.values()) <= MAX_ID:
            return whole, []
    sound = {raw: id_ for raw, id_ in vocab.items() if is_id(id_)}
    left_out = [show(encode(raw)) for raw in vocab if raw not in sound]
    return cast(Mapping[str, int], sound), note_left_out(left_out, source)


def is_id(value: object) -> TypeGuard[int]:
    """Whether this is a whole number that a row can have."""
    return type(value) is int and 0 <= value <= MAX_ID


def note_left_out(entries: Sequence[str], source: str) -> list[str]:
    """A note on entries that cannot be tokens; none where there are none."""
    if not entries:
        return []
    return [
        f"{len(entries):,} entries of {source} are no tokens with an id and were left out: {shorten(entries)}."
    ]
