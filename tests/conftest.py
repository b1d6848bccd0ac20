"""What all tests share: where real models and the shared folder are, and how hypothesis searches."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from loopback import Loopback

ROOT = Path(__file__).parents[1]

# The same examples in every run, and no clock: a slow machine is no failure.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# For a search by hand: `pytest --hypothesis-profile=search`.
settings.register_profile("search", settings.get_profile("steady"), derandomize=False, max_examples=3000)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data beside the repository."""
    folder = Path(os.environ.get("INSPECT_EMBED_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"the shared folder is not here: {folder} (INSPECT_EMBED_SHARED names another)")
    return folder


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of real models that scripts/fetch_real_models fills."""
    folder = Path(os.environ.get("INSPECT_EMBED_REAL") or ROOT / ".real")
    if not folder.is_dir():
        pytest.skip(
            f"the real models are not here: {folder} (run scripts/fetch_real_models, or set INSPECT_EMBED_REAL)"
        )
    return folder


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No network but this machine's own, no token, no proxy, no pauses, and caches of its own; returns the hub's."""
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_TOKEN_PATH",
        "HF_ENDPOINT",
        "HUGGINGFACE_HUB_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub_home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub_home" / "hub"))
    monkeypatch.setenv("INSPECT_EMBED_CACHE", str(tmp_path / "fetched"))
    monkeypatch.setattr("inspect_embed.storage._http.PAUSE_SECONDS", 0)
    ask = socket.getaddrinfo

    def ask_nobody(host: Any, *more: Any, **options: Any) -> Any:
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ask(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", ask_nobody)
    return tmp_path / "hub_home" / "hub"


@pytest.fixture
def server(alone: Path) -> Iterator[Loopback]:
    """A web server on this machine."""
    from loopback import serve

    with serve() as running:
        yield running


@pytest.fixture
def other_server(alone: Path) -> Iterator[Loopback]:
    """Another one."""
    from loopback import serve

    with serve() as running:
        yield running
