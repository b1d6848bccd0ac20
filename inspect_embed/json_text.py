"""JSON that a stranger wrote: parsed within bounds of memory, and refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from inspect_embed.errors import DamagedFileError

MOST_TIMES = 20
"""How many times its own length a JSON text may take in memory, beyond the size of its file."""
_WORST_TIMES = 50
"""What no JSON text exceeds: the worst are lists in lists, at 48 times."""
_ALWAYS_PARSED = 1 << 14
"""Bytes of a text that is too small to do harm."""


def parse_json(data: memoryview, name: str, file_size: int) -> dict[str, Any]:
    """Which object do these bytes of a file describe?

    UTF-8, with or without a byte order mark. DamagedFileError where they describe none, or one that takes more memory
    than the file's size and 20 times the text.
    """
    try:
        text = str(data, "utf-8-sig")
    except UnicodeDecodeError:
        raise DamagedFileError(f"The JSON in {name} is not UTF-8 text.", "Fetch the file again.") from None
    refuse_dense(text, name, len(data), file_size, most_memory)
    try:
        content = json.loads(text)
    except RecursionError:
        raise DamagedFileError(f"The JSON in {name} is nested too deeply.", "Fetch the file again.") from None
    except ValueError as error:
        raise DamagedFileError(
            f"The JSON in {name} cannot be read: {error}.", "Fetch the file again."
        ) from None
    if not isinstance(content, dict):
        raise DamagedFileError(f"The JSON in {name} is not an object.", "Fetch the file again.")
    return content


def refuse_dense(text: str, name: str, n_bytes: int, file_size: int, estimate: Callable[[str], int]) -> None:
    """Refuse a text that would take more memory than the file's size and 20 times its own, before it is parsed."""
    allowed = file_size + MOST_TIMES * n_bytes
    if n_bytes > _ALWAYS_PARSED and _WORST_TIMES * n_bytes > allowed and estimate(text) > allowed:
        raise DamagedFileError(
            f"The JSON in {name} is nested too deeply, or packed too densely, for what such a file holds: its "
            f"{n_bytes:,} bytes would take more than {MOST_TIMES} times that in memory.",
            "Check where the file came from.",
        )


def usual_memory(text: str) -> int:
    """Bytes that the objects, lists and keys of this text take once it is parsed, when no hash table has just grown.

    For vocabularies, whose entries are so short that the worst case would refuse sound ones.
    """
    return 192 * text.count("{") + 96 * text.count("[") + 110 * text.count(":")


def most_memory(text: str) -> int:
    """Bytes that this text takes at most once it is parsed, the text itself included; told from its punctuation.

    A dictionary takes 184 bytes with its first five entries, a list 88, a string at least 49, a place in a list or
    dictionary 8 or more; a new key besides its places in two hash tables, which may just have grown. The keys of a
    record of a safetensors header are not new.
    """
    colons, strings = text.count(":"), text.count('"') // 2
    new_keys = max(0, colons - 3 * text.count('"data_offsets"'))
    return (
        len(text) * (1 if text.isascii() else 4)
        + 192 * text.count("{")
        + 96 * text.count("[")
        + 190 * new_keys
        + 64 * max(0, strings - colons)
        + 40 * text.count(",")
    )
