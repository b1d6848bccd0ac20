"""`python -m inspect_embed` is `inspect-embed`."""

from inspect_embed.cli import main

if __name__ == "__main__":
    main()
