"""What all tests share: where real models and the shared folder are, and how hypothesis searches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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
