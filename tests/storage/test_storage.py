"""Every location keeps the same promises: names, ranges of bytes, read-only views, views that outlive the file."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from loopback import Loopback

from inspect_embed.storage import LOCATIONS, Folder, locate
from inspect_embed.storage.local import LocalFile, LocalFolder
from inspect_embed.storage.memory import MemoryFile, MemoryFolder

FILES = {"b.bin": b"0123456789", "a.bin": bytes(range(256)), "empty": b"", "Ġgirl ·.json": b"{}"}

Maker = Callable[[Path, Mapping[str, bytes]], Folder]


def make_local(path: Path, files: Mapping[str, bytes]) -> Folder:
    for name, data in files.items():
        (path / name).write_bytes(data)
    return LocalFolder(path)


def make_memory(path: Path, files: Mapping[str, bytes]) -> Folder:
    return MemoryFolder(files, str(path))


def make_hub(path: Path, files: Mapping[str, bytes]) -> Folder:
    """A model in the hub's cache, whose files are links out of the snapshot."""
    model = Path(os.environ["HF_HUB_CACHE"]) / "models--org--name"
    (model / "blobs").mkdir(parents=True)
    snapshot = model / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for n, (name, data) in enumerate(files.items()):
        (model / "blobs" / str(n)).write_bytes(data)
        (snapshot / name).symlink_to(f"../../blobs/{n}")
    path.joinpath("location").write_text(str(snapshot), encoding="utf-8")
    return locate("org/name").folder


MAKERS: dict[str, Maker] = {"local": make_local, "memory": make_memory, "hub": make_hub}


@pytest.fixture(params=LOCATIONS)
def folder(request: pytest.FixtureRequest, tmp_path: Path, server: Loopback) -> Folder:
    def make_remote(path: Path, files: Mapping[str, bytes]) -> Folder:
        address = server.put("some folder", files)
        path.joinpath("location").write_text(address, encoding="utf-8")
        return locate(address).folder

    MAKERS["remote"] = make_remote
    importlib.import_module(f"inspect_embed.storage.{request.param}")
    assert request.param in MAKERS, (
        f"say how a folder of the location {request.param} is made: add it to MAKERS"
    )
    return MAKERS[request.param](tmp_path, FILES)


def test_names_are_plain_and_sorted(folder: Folder) -> None:
    assert folder.names() == sorted(FILES)


def test_a_location_is_what_a_person_would_call_it(folder: Folder, tmp_path: Path) -> None:
    told = tmp_path / "location"
    assert folder.location == (told.read_text(encoding="utf-8") if told.exists() else str(tmp_path))


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_gives_its_size_and_all_its_bytes(folder: Folder, name: str) -> None:
    source = folder.open(name)
    assert source.size == len(FILES[name])
    assert bytes(source.read(0, source.size)) == FILES[name]
    source.close()


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 0), (0, 4), (3, 7), (9, 10), (10, 10), (8, 99), (10, 99), (50, 99), (2**62, 2**63 - 1)],
)
def test_a_range_that_leaves_the_file_is_cut_to_what_is_there(folder: Folder, start: int, stop: int) -> None:
    source = folder.open("b.bin")
    assert bytes(source.read(start, stop)) == FILES["b.bin"][start:stop]
    source.close()


def test_views_are_bytes_and_cannot_be_written_to(folder: Folder) -> None:
    source = folder.open("b.bin")
    view = source.read(2, 5)
    assert isinstance(view, memoryview)
    assert (view.readonly, view.itemsize, view.contiguous) == (True, 1, True)
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1
    assert not np.frombuffer(view, np.uint8).flags.writeable


def test_a_view_outlives_the_file_it_came_from(folder: Folder) -> None:
    source = folder.open("b.bin")
    view = source.read(2, 5)
    array = np.frombuffer(source.read(0, 10), np.uint8)
    source.close()
    del source
    assert bytes(view) == b"234"
    assert array.tobytes() == b"0123456789"


def test_a_file_can_be_closed_twice_and_opened_again(folder: Folder) -> None:
    source = folder.open("b.bin")
    source.expect([(0, 2), (4, 99)])
    source.close()
    source.close()
    assert bytes(folder.open("b.bin").read(0, 2)) == b"01"


def test_an_absent_file_is_not_found(folder: Folder) -> None:
    with pytest.raises(FileNotFoundError):
        folder.open("absent.bin")


@pytest.mark.parametrize("name", ["../outside.bin", "below/inside.bin", "", ".", ".."])
def test_no_name_leads_out_of_the_folder_or_below_it(folder: Folder, tmp_path: Path, name: str) -> None:
    (tmp_path.parent / "outside.bin").write_bytes(b"secret")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "inside.bin").write_bytes(b"secret")
    with pytest.raises(FileNotFoundError):
        folder.open(name)


def test_an_absolute_name_is_not_opened(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path.parent / "absolute.bin"
    outside.write_bytes(b"secret")
    with pytest.raises(FileNotFoundError):
        folder.open(str(outside))


def test_a_folder_on_disk_lists_files_and_links_to_files_alone(tmp_path: Path) -> None:
    make_local(tmp_path, {"file.bin": b"x"})
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.bin").symlink_to("file.bin")
    (tmp_path / "broken.bin").symlink_to("nowhere")
    (tmp_path / "link_to_folder").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    assert LocalFolder(tmp_path).names() == ["file.bin", "link.bin"]


def test_a_local_file_is_mapped_and_not_copied(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(8192))
    source = LocalFile(tmp_path / "x")
    whole = np.frombuffer(source.read(0, 8192), np.uint8)
    part = np.frombuffer(source.read(4096, 5000), np.uint8)
    assert np.shares_memory(whole, part)


def test_bytes_held_in_memory_cannot_be_changed_through_a_view() -> None:
    view = MemoryFile(memoryview(bytearray(b"abc"))).read(0, 3)
    assert view.readonly
