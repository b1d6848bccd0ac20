"""Where do the files in a zip archive lie? Only its directory is read, and nothing is unpacked.

Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from inspect_embed.errors import DamagedFileError
from inspect_embed.storage import ByteSource

MAGIC = b"PK\x03\x04"

_END = struct.Struct("<4s4H2IH")
_END_64_PLACE = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_RECORD = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_LONGEST_COMMENT = 0xFFFF
_AGAIN = "Fetch the file again."


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive; `place` is where its own header begins."""

    name: str
    place: int
    size: int
    plain: bool
    """Whether its bytes lie in the archive as they are."""


def read_directory(source: ByteSource, archive: str) -> dict[str, Member]:
    """Which files does the archive hold? DamagedFileError where its directory is cut off or contradicts itself."""
    size = source.size
    tail_start = max(0, size - _END.size - _LONGEST_COMMENT)
    tail = bytes(source.read(tail_start, size))
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise DamagedFileError(
            f"{archive} is cut short: it is a zip archive of which {size:,} bytes are there, without its directory, "
            "which stands at the end.",
            _AGAIN,
        )
    end = tail_start + at
    _, _, _, _, count, length, start, _ = _END.unpack_from(tail, at)
    if 0xFFFFFFFF in (start, length) or count == 0xFFFF:
        count, length, start, end = _read_end_64(source, end, archive)
    if start + length > end or count * _RECORD.size > length:
        raise _contradiction(archive)
    directory = bytes(source.read(start, start + length))
    members: dict[str, Member] = {}
    place, total = 0, 0
    for _ in range(count):
        if place + _RECORD.size > length:
            raise _contradiction(archive)
        fields = _RECORD.unpack_from(directory, place)
        magic, flags, method = fields[0], fields[3], fields[4]
        packed, full, name_length, extra_length, comment_length, offset = *fields[8:13], fields[16]
        name_start = place + _RECORD.size
        extra_start = name_start + name_length
        place = extra_start + extra_length + comment_length
        if magic != b"PK\x01\x02" or place > length:
            raise _contradiction(archive)
        extra = directory[extra_start : extra_start + extra_length]
        full, packed, offset = _widen(extra, full, packed, offset)
        name = directory[name_start:extra_start].decode("utf-8", "replace")
        if name in members or offset + _LOCAL.size + packed > start:
            raise _contradiction(archive)
        total += packed
        plain = method == 0 and full == packed and not flags & 1
        members[name] = Member(name, offset, full, plain)
    if total > start:
        raise _contradiction(archive)
    return members


def find_data(source: ByteSource, member: Member, archive: str) -> int:
    """At which byte of the archive do the bytes of this file begin?"""
    head = bytes(source.read(member.place, member.place + _LOCAL.size))
    if len(head) < _LOCAL.size or head[:4] != MAGIC:
        raise _contradiction(archive)
    name_length, extra_length = _LOCAL.unpack(head)[-2:]
    start = member.place + _LOCAL.size + int(name_length) + int(extra_length)
    if start + member.size > source.size:
        raise _contradiction(archive)
    return start


def _read_end_64(source: ByteSource, end: int, archive: str) -> tuple[int, int, int, int]:
    """Number of files, length and place of the directory, and where it must end at the latest, for large archives."""
    place = end - _END_64_PLACE.size
    head = bytes(source.read(max(place, 0), end))
    if len(head) < _END_64_PLACE.size or head[:4] != b"PK\x06\x07":
        raise _contradiction(archive)
    start = _END_64_PLACE.unpack(head)[2]
    record = bytes(source.read(start, min(start + _END_64.size, place))) if start < place else b""
    if len(record) < _END_64.size or record[:4] != b"PK\x06\x06":
        raise _contradiction(archive)
    count, length, directory = _END_64.unpack(record)[-3:]
    return count, length, directory, start


def _widen(extra: bytes, *numbers: int) -> list[int]:
    """Numbers that did not fit into 32 bits stand in the extra field, in this order."""
    at = 0
    wide = b""
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            wide = extra[at + 4 : at + 4 + length]
            break
        at += 4 + length
    widened = []
    for number in numbers:
        if number == 0xFFFFFFFF and len(wide) >= 8:
            number, wide = int.from_bytes(wide[:8], "little"), wide[8:]
        widened.append(number)
    return widened


def _contradiction(archive: str) -> DamagedFileError:
    return DamagedFileError(f"The directory of the zip archive {archive} contradicts itself.", _AGAIN)
