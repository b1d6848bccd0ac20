"""Look inside the embedding tables of saved language models.

>>> import inspect_embed
>>> checkpoint = inspect_embed.open_checkpoint("checkpoints/toy")
>>> found = inspect_embed.neighbors(checkpoint, ["·girl"], k=3)

`open_checkpoint` opens a saved model; each question is a function that takes it and returns a frozen record, which
shows itself in a notebook. Errors are described in `inspect_embed.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are imported when they are first used, so that importing the package costs nothing.
_PUBLIC = {
    "Checkpoint": "inspect_embed.checkpoint",
    "EmbeddingTable": "inspect_embed.table",
    "InspectEmbedError": "inspect_embed.errors",
    "compare": "inspect_embed.analyses.compare",
    "compare_series": "inspect_embed.analyses.compare",
    "embed": "inspect_embed.analyses.embed",
    "export": "inspect_embed.analyses.export",
    "health": "inspect_embed.analyses.health",
    "info": "inspect_embed.analyses.info",
    "neighbors": "inspect_embed.analyses.neighbors",
    "open_checkpoint": "inspect_embed.checkpoint",
    "params": "inspect_embed.analyses.params",
    "positions": "inspect_embed.analyses.positions",
    "project": "inspect_embed.analyses.project",
    "similarity": "inspect_embed.analyses.similarity",
    "sinusoidal_positions": "inspect_embed.analyses.positions",
    "tokens": "inspect_embed.analyses.tokens",
    "vector": "inspect_embed.analyses.vector",
}

__all__ = sorted(_PUBLIC)

if TYPE_CHECKING:
    from inspect_embed.analyses.compare import compare, compare_series
    from inspect_embed.analyses.embed import embed
    from inspect_embed.analyses.export import export
    from inspect_embed.analyses.health import health
    from inspect_embed.analyses.info import info
    from inspect_embed.analyses.neighbors import neighbors
    from inspect_embed.analyses.params import params
    from inspect_embed.analyses.positions import positions, sinusoidal_positions
    from inspect_embed.analyses.project import project
    from inspect_embed.analyses.similarity import similarity
    from inspect_embed.analyses.tokens import tokens
    from inspect_embed.analyses.vector import vector
    from inspect_embed.checkpoint import Checkpoint, open_checkpoint
    from inspect_embed.errors import InspectEmbedError
    from inspect_embed.table import EmbeddingTable


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
