"""JSON: the record itself, read back by a strict parser, no digit lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspect_embed.outputs.json import plain, render
from inspect_embed.report import Report


@dataclass(frozen=True)
class Inner:
    id: int | None
    score: float


class Named(NamedTuple):
    tensor: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Outer:
    query: str
    found: tuple[Inner, ...]
    table: Named
    more: Any = None


def strictly(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def written(value: Any) -> Any:
    return strictly(render(Report("", value)))


def test_a_record_is_an_object_in_the_order_of_its_fields() -> None:
    record = Outer("·girl", (Inner(7, 0.1), Inner(None, 0.25)), Named("wte.weight", (6, 4)))
    found = written(record)
    assert found == {
        "query": "·girl",
        "found": [{"id": 7, "score": 0.1}, {"id": None, "score": 0.25}],
        "table": {"tensor": "wte.weight", "shape": [6, 4]},
        "more": None,
    }
    assert list(found) == ["query", "found", "table", "more"]


def test_what_is_no_number_is_null() -> None:
    assert written([float("nan"), float("inf"), float("-inf"), np.float64("nan")]) == [None] * 4


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_digit_is_lost(number: float) -> None:
    assert written({"x": number})["x"] == number


def test_numbers_of_numpy_that_are_floats_are_plain_numbers() -> None:
    text = render(Report("", [np.float64(0.1)]))
    assert "np." not in text
    assert strictly(text) == [0.1]


@pytest.mark.parametrize(
    "value", [np.float32(0.5), np.int64(3), np.bool_(True), np.zeros(2), object(), {1, 2}, b"bytes", Inner]
)
def test_what_json_does_not_know_is_a_mistake_and_not_a_guess(value: object) -> None:
    with pytest.raises(TypeError, match="which JSON does not know"):
        plain([value])


def test_truths_are_not_numbers_and_keys_are_texts() -> None:
    assert written({1: True, "b": False, "c": 0}) == {"1": True, "b": False, "c": 0}
    assert render(Report("", {"a": True})) == '{\n  "a": true\n}\n'


@given(st.text(alphabet=st.characters()))
def test_every_text_comes_back_and_can_be_written_as_utf_8(text: str) -> None:
    content = render(Report("", {"token": text}))
    assert strictly(content.encode("utf-8").decode("utf-8"))["token"] == text


def test_scripts_stay_readable_and_lone_surrogates_are_escapes() -> None:
    content = render(Report("", ["Ġgirl 你 🙂", "\ud800", "\x1b\n"]))
    assert "Ġgirl 你 🙂" in content
    assert r"\ud800" in content
    assert "\x1b" not in content
    assert strictly(content) == ["Ġgirl 你 🙂", "\ud800", "\x1b\n"]
