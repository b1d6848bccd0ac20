"""Every error that a user can meet, as a tree.

InspectEmbedError                 what happened; `.hint`: what to do next
  CheckpointError                 something is wrong with the checkpoint as a whole
    NotACheckpointError           the path holds no checkpoint that can be read
    PlaceError                    the place where files lie cannot be reached, or refuses them
    DamagedFileError              a file is cut short, or contradicts itself
    UnsupportedEncodingError      the numbers lie in an encoding that cannot be read
  TableError                      something is wrong with the table asked for
    UnknownFamilyError            no tensor looks like a token table
    MissingTableError             this model has no such table
    AmbiguousTableError           several tables could be meant
  TokenError                      something is wrong with a word or an id
    UnknownTokenError             the vocabulary has no such token, the table no such row
    NotOneTokenError              the word is several tokens
  AnalysisError                   the question has no answer on these numbers
    OptionError                   a value given for an option does not fit these numbers
  OutputError                     the result cannot be written as asked
  MissingExtraError               an optional package is needed; names the exact pip line

A programmer's mistake (a wrong type, a value that no user typed) is a TypeError or ValueError instead.
"""

from __future__ import annotations

from collections.abc import Iterable

LISTED = 5
"""How many items a list inside a message shows before it says "and N more"."""


class InspectEmbedError(Exception):
    """What happened. `hint` says what to do next; it may be empty."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class CheckpointError(InspectEmbedError):
    """Something is wrong with the checkpoint as a whole."""


class NotACheckpointError(CheckpointError):
    """The path holds no checkpoint that can be read."""


class PlaceError(CheckpointError):
    """The place where files lie cannot be reached, or refuses them."""


class DamagedFileError(CheckpointError):
    """A file is cut short, or contradicts itself."""


class UnsupportedEncodingError(CheckpointError):
    """The numbers lie in an encoding that cannot be read."""


class TableError(InspectEmbedError):
    """Something is wrong with the table asked for."""


class UnknownFamilyError(TableError):
    """No tensor looks like a token table."""


class MissingTableError(TableError):
    """This model has no such table."""


class AmbiguousTableError(TableError):
    """Several tables could be meant."""


class TokenError(InspectEmbedError):
    """Something is wrong with a word or an id."""


class UnknownTokenError(TokenError):
    """The vocabulary has no such token, or the table no such row."""


class NotOneTokenError(TokenError):
    """The word is several tokens."""


class AnalysisError(InspectEmbedError):
    """The question has no answer on these numbers."""


class OptionError(AnalysisError):
    """A value given for an option does not fit these numbers."""


class OutputError(InspectEmbedError):
    """The result cannot be written as asked."""


class MissingExtraError(InspectEmbedError):
    """An optional package is needed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed.",
            hint=f'pip install "inspect-embed[{extra}]"',
        )
        self._needed = (package, extra, purpose)

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        """An error must survive the trip from a worker process."""
        return type(self), self._needed


def shorten(items: Iterable[object], listed: int = LISTED) -> str:
    """Join items with commas, at most `listed` of them, then say how many more there are."""
    texts: list[str] = []
    n = 0
    for n, item in enumerate(items, 1):
        if n <= listed:
            texts.append(str(item))
    shown = ", ".join(texts)
    return shown if n <= listed else f"{shown} and {n - listed:,} more"
