"""The errors: a tree as its docstring draws it, messages that stop at five."""

from __future__ import annotations

import inspect
import pickle

import pytest

from inspect_embed import errors
from inspect_embed.errors import InspectEmbedError, MissingExtraError, shorten


def drawn_tree() -> dict[str, str]:
    """Each error's parent, by the indents of the docstring."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    assert errors.__doc__ is not None
    for line in errors.__doc__.splitlines():
        name = line.strip().partition(" ")[0]
        if not name.endswith("Error") or name in ("TypeError", "ValueError"):
            continue
        indent = len(line) - len(line.lstrip())
        above = [(deep, other) for deep, other in above if deep < indent]
        parents[name] = above[-1][1] if above else "Exception"
        above.append((indent, name))
    return parents


def test_the_docstring_draws_the_tree_as_it_is() -> None:
    classes = {
        name: member.__bases__[0].__name__
        for name, member in vars(errors).items()
        if inspect.isclass(member) and issubclass(member, Exception)
    }
    assert drawn_tree() == classes
    assert len(classes) > 10


@pytest.mark.parametrize("name", sorted(drawn_tree()))
def test_every_error_is_caught_by_the_one_base_and_says_what_it_answers(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, InspectEmbedError)
    assert error.__doc__


def test_an_error_holds_its_message_and_its_hint() -> None:
    error = errors.DamagedFileError("x is short.", "Fetch it again.")
    assert (str(error), error.hint) == ("x is short.", "Fetch it again.")
    assert errors.AnalysisError("nothing").hint == ""


def test_an_error_survives_a_trip_between_processes() -> None:
    error = pickle.loads(pickle.dumps(errors.DamagedFileError("x is short.", "Fetch it again.")))
    assert (type(error), str(error), error.hint) == (
        errors.DamagedFileError,
        "x is short.",
        "Fetch it again.",
    )
    extra = pickle.loads(pickle.dumps(MissingExtraError("umap-learn", "umap", "A UMAP map")))
    assert (type(extra), extra.hint) == (MissingExtraError, 'pip install "inspect-embed[umap]"')


def test_a_missing_extra_names_the_package_and_the_line_to_type() -> None:
    error = MissingExtraError("umap-learn", "umap", "A UMAP map")
    assert "umap-learn" in str(error)
    assert "A UMAP map" in str(error)
    assert error.hint == 'pip install "inspect-embed[umap]"'


@pytest.mark.parametrize(
    ("n", "end"),
    [(0, ""), (1, "0"), (5, "0, 1, 2, 3, 4"), (6, "0, 1, 2, 3, 4 and 1 more"), (1205, "4 and 1,200 more")],
)
def test_a_list_stops_at_five_and_says_how_many_more(n: int, end: str) -> None:
    text = shorten(iter(range(n)))
    assert text.endswith(end)
    assert text.count(",") <= 5
