"""The program: `inspect-embed`, and `python -m inspect_embed`."""

from __future__ import annotations

import gc


def main() -> None:
    """Answer one call."""
    # A short-lived process that imports much and parses much JSON: collecting cycles would only take time.
    gc.disable()
    from inspect_embed.cli import main as answer

    answer()


if __name__ == "__main__":
    main()
