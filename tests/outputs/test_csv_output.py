"""CSV: one table that comes back as it was, whatever its tokens are."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspect_embed.errors import OutputError
from inspect_embed.outputs.csv import render
from inspect_embed.report import Column, Grid, Report, Value


def read_back(rows: list[tuple[Value, ...]], *names: str) -> list[list[str]]:
    text = render(Report("title", None, (), Grid(tuple(map(Column, names)), rows, "title of the grid")))
    text.encode("utf-8")
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_the_first_line_names_the_columns_and_no_title_comes_before_it() -> None:
    assert read_back([("·girl", 1)], "token", "id") == [["token", "id"], ["·girl", "1"]]
    assert read_back([], "token", "id") == [["token", "id"]]


@pytest.mark.parametrize(
    "token",
    [
        "a b",
        "null",
        "NaN",
        "NA",
        '"',
        '""',
        ",",
        "a,b",
        "'",
        ";",
        "·",
        "Ġgirl",
        "你",
        "#",
        "=1+1",
        "\\n",
        " x ",
        "-",
    ],
)
def test_tokens_come_back_as_they_were(token: str) -> None:
    assert read_back([(token, 7)], "token", "id")[1:] == [[token, "7"]]


@given(st.lists(st.tuples(st.text(alphabet=st.characters()), st.integers()), max_size=5))
def test_every_row_is_one_line_with_its_columns_whatever_the_text_is(rows: list[tuple[str, int]]) -> None:
    found = read_back([*rows], "token", "id")
    assert [row[1] for row in found[1:]] == [str(number) for _, number in rows]
    for (text, _), row in zip(rows, found[1:], strict=True):
        if text.isprintable():
            assert row[0] == text


def test_line_breaks_and_controls_are_escapes() -> None:
    for text, shown in (
        ("a\rb", r"a\rb"),
        ("a\nb", r"a\nb"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\ud800", r"\ud800"),
        ("\0", r"\x00"),
    ):
        assert read_back([(text, 1)], "token", "id\n")[1:] == [[shown, "1"]]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_digit_is_lost(number: float) -> None:
    assert float(read_back([(number, "x")], "score", "token")[1][0]) == number


def test_what_is_undefined_or_absent_is_an_empty_cell() -> None:
    rows: list[tuple[Value, ...]] = [(float("nan"), "x"), (float("inf"), "y"), (None, "z")]
    assert [row[0] for row in read_back(rows, "score", "token")[1:]] == ["", "", ""]


def test_the_formats_of_the_columns_do_not_round_what_is_written() -> None:
    grid = Grid((Column("score", ".1f"),), [(0.123456789,)])
    assert "0.123456789" in render(Report("", None, (), grid))


def test_an_answer_that_is_no_table_says_what_to_do() -> None:
    with pytest.raises(OutputError, match="no single table") as caught:
        render(Report("", None))
    assert "json" in caught.value.hint
