"""What stands in the place of a checkpoint's file? Told by its first bytes."""

from __future__ import annotations

import re

from inspect_embed.errors import DamagedFileError, NotACheckpointError

_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"GGUF", "a GGUF file", "Give it a name that ends in .gguf."),
    (b"PK\x03\x04", "a zip archive, as torch.save writes it", "Give it a name that ends in .bin or .pt."),
    (b"\x89HDF", "an HDF5 file", "Look for a .safetensors file of the same model."),
    (b"\x93NUMPY", "an array saved by numpy", "Look for a .safetensors file of the same model."),
    (b"\x80", "a Python pickle, as torch.save wrote it", "Give it a name that ends in .bin or .pt."),
    *(
        (magic, "a model file of the time before GGUF", "Convert it with a llama.cpp of that time.")
        for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")
    ),
)


def refuse_impostors(start: bytes, size: int, name: str, wanted: str) -> None:
    """Say what a file is that is not `wanted` ("a GGUF file"); silent where nothing tells."""
    if size == 0:
        raise DamagedFileError(f"{name} is empty (0 bytes).", "Fetch the file again.")
    if start.startswith(b"version https://git-lfs"):
        promised = re.search(rb"^size (\d{1,20})\s*$", start, re.MULTILINE)
        of = f" for a file of {int(promised[1]):,} bytes" if promised else ""
        raise NotACheckpointError(
            f"{name} is a git-lfs pointer{of}, not the file itself.", "Run `git lfs pull` in its folder."
        )
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:20].lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<error")):
        raise NotACheckpointError(
            f"{name} is a web page (an error page, perhaps), not the file itself.",
            "Fetch the file again, and look at the address it came from.",
        )
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size - 8:
        raise NotACheckpointError(
            f"{name} is a safetensors file, not {wanted}.", "Give it a name that ends in .safetensors."
        )
    for magic, what, hint in _KINDS:
        if start.startswith(magic):
            raise NotACheckpointError(f"{name} is {what}, not {wanted}.", hint)
