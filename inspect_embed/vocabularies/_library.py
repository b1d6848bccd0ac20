"""The tokenizers library, at arm's length: what it raises and what it prints stay on the other side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inspect_embed.spelling import encode, show

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Refusal(Exception):  # noqa: N818 - not for users: callers turn it into words
    """The tokenizers library could not do what was asked; says why."""


@contextmanager
def library_call() -> Iterator[None]:
    """Turn what the library raises into a refusal, and keep what it prints from the terminal.

    It raises bare `Exception`s; a panic in its Rust code is no `Exception` at all, and is also printed, past Python, to
    standard error.
    """
    try:
        with _quiet_standard_error():
            yield
    except BaseException as error:
        if type(error).__name__ != "PanicException" and not (
            type(error) is Exception
            or isinstance(error, (ValueError, TypeError, OverflowError, RecursionError))
        ):
            raise
        reason = str(error).split("\n", 1)[0][:200].rstrip(".")
        raise Refusal(f"{show(encode(reason))}.") from None


@contextmanager
def _quiet_standard_error() -> Iterator[None]:
    """Send what is written to the file descriptor of standard error nowhere, in all threads, for a moment."""
    try:
        saved = os.dup(2)
    except OSError:  # standard error is closed: nothing to keep quiet
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def make_plain(make: Callable[[], Tokenizer]) -> Tokenizer:
    """Make a tokenizer that cuts a text and does nothing else: no padding, no truncation, nothing at random."""
    with library_call():
        tokenizer = make()
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if getattr(tokenizer.model, "dropout", None) is not None:
            tokenizer.model.dropout = None
    return tokenizer


def cut(tokenizer: Tokenizer, text: str) -> list[tuple[str, int]]:
    """How does the library cut this text? Each piece and its id there, without special tokens around them."""
    with library_call():
        pieces = tokenizer.encode(text, add_special_tokens=False)
        return list(zip(pieces.tokens, pieces.ids, strict=True))


def normalize(tokenizer: Tokenizer, text: str) -> str:
    """What does the library make of this text before it cuts it?"""
    normalizer = tokenizer.normalizer
    if normalizer is None:
        return text
    with library_call():
        return str(normalizer.normalize_str(text))
