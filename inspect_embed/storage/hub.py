"""Models that the hub's own library has fetched to this machine: found by their ids, `org/name` or `org/name@revision`.

Source: huggingface_hub, constants.py (where the cache is) and file_download.py (`models--org--name`, with refs/ that hold
commits, and snapshots/ whose files are links into blobs/).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from inspect_embed.errors import NotACheckpointError, shorten
from inspect_embed.storage import Place
from inspect_embed.storage.local import LocalFolder

_ID = re.compile(
    r"(?P<model>[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@(?P<revision>[\w.-]+(?:/[\w.-]+)*))?", re.ASCII
)
_COMMIT = re.compile(r"[0-9a-f]{7,40}", re.ASCII)


def cache_folder() -> Path:
    """Where the hub's own library keeps what it fetched."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(cache).expanduser()
    return home_folder() / "hub"


def home_folder() -> Path:
    """Where the hub's own library keeps all that is its."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser()


def locate(name: str) -> Place | None:
    """The snapshot of a model in the cache; None where the name is no id, or the model is not there.

    NotACheckpointError where the model is there and the revision is not.
    """
    match = _ID.fullmatch(name)
    if match is None or not (folder := _model_folder(match["model"])).is_dir():
        return None
    return open_snapshot(folder, match["revision"])


def explain_absence(name: str) -> str:
    """What to do about a name that is no path, and is not in the cache; empty where it is no id."""
    match = _ID.fullmatch(name)
    if match is None or "/" not in name:
        return ""
    return (
        f"A model of that name would lie in the hub cache as {_model_folder(match['model'])}, once it is fetched; "
        f"hf://{name} reads it where it is."
    )


def open_snapshot(folder: Path, revision: str | None = None) -> Place:
    """The snapshot of this revision (a branch, a tag, a commit); without one, of refs/main, else the newest.

    NotACheckpointError where there is none.
    """
    snapshots = {entry.name: entry for entry in (folder / "snapshots").glob("*") if entry.is_dir()}
    if not snapshots:
        raise NotACheckpointError(
            f"{folder} is a hub cache folder without a snapshot.", "Fetch the model again."
        )
    chosen = snapshots.get(_commit_of(folder, revision or "main"))
    if chosen is None and revision is not None:
        begun = [name for name in snapshots if _COMMIT.fullmatch(revision) and name.startswith(revision)]
        if len(begun) != 1:
            raise NotACheckpointError(
                f"The hub cache has no snapshot of {revision} in {folder}.",
                f"It has {shorten(sorted(snapshots))}.",
            )
        chosen = snapshots[begun[0]]
    if chosen is None:
        chosen = max(snapshots.values(), key=lambda entry: (entry.stat().st_mtime, entry.name))
    return Place(LocalFolder(chosen), None, (f"Snapshot {chosen.name} of the hub cache.",))


def _model_folder(model: str) -> Path:
    return cache_folder() / f"models--{model.replace('/', '--')}"


def _commit_of(folder: Path, revision: str) -> str:
    """The commit that a branch or tag stands for; itself where it is none."""
    reference = folder / "refs" / revision
    # A revision is a name inside refs/, whatever dots it has.
    if ".." in revision.split("/") or not reference.is_file():
        return revision
    return reference.read_text(encoding="utf-8-sig", errors="replace").strip()
