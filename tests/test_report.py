"""The neutral blocks: values as people read them, text that steers nothing, records that show themselves."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspect_embed.report import (
    Column,
    Fact,
    Facts,
    Grid,
    Heatmap,
    Note,
    Report,
    Result,
    Value,
    printable,
    show,
    translate,
)


@pytest.mark.parametrize(
    ("value", "spec", "shown"),
    [
        (None, "", ""), (None, ".4f", ""), (float("nan"), ".4f", "undefined"), (float("nan"), "", "undefined"),
        (True, "", "yes"), (False, "d", "no"), ("girl", ".4f", "girl"), ("", "", ""), (0.5, ".4f", "0.5000"),
        (1234567, ",d", "1,234,567"), (1234567.891, ",.1f", "1,234,567.9"), (-0.00001, ".4f", "0.0000"), (-0.0, ".2f", "0.00"),
        (-0.0001, ".4f", "-0.0001"), (-1.5, ".1f", "-1.5"), (0.3102, ".2 %", "31.02 %"), (-0.00001, ".2 %", "0.00 %"),
        (float("inf"), ".4f", "inf"), (float("-inf"), ".4f", "-inf"), (-0.0, ",.1f", "0.0"), (2.5, "+.4f", "+2.5000"), (7, "", "7"),
    ],
)  # fmt: skip
def test_a_value_is_shown_as_people_read_it(value: Value, spec: str, shown: str) -> None:
    assert show(value, spec) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("·girl Ġ▁ 你 é 🙂", "·girl Ġ▁ 你 é 🙂"), ("a\nb", r"a\nb"), ("\x1b[2J", r"\x1b[2J"), ("\ud800", r"\ud800"), ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
     ("\u202e\u2028", r"\u202e\u2028"), ("\t\r", r"\t\r"), ("", ""), ("\\n", "\\n")],
)  # fmt: skip
def test_what_cannot_be_seen_is_its_escape(text: str, shown: str) -> None:
    assert printable(text) == show(text) == shown


@given(st.text(alphabet=st.characters()))
def test_no_text_leaves_its_line_or_fails_to_be_written(text: str) -> None:
    shown = printable(text)
    shown.encode("utf-8")
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown


# --- a report ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer(Result):
    token: str
    score: float

    def report(self) -> Report:
        grid = Grid(
            (Column("token"), Column("<score>", ".2f")),
            [(self.token, self.score), (None, float("nan"))],
            "A & B",
        )
        facts = Facts((Fact("name", "x<y", remark="a > b"),), "Facts")
        return Report("T & <title>", self, (facts, grid, Note("n < m")), grid)


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1], data))


@pytest.mark.parametrize("token", ["·girl", "<script>alert(1)</script>", "a&amp;b", '"><b>', "]]>"])
def test_a_notebook_shows_every_token_as_it_is(token: str) -> None:
    page = Cells()
    page.feed(Answer(token, 0.5)._repr_html_())
    page.close()
    assert page.open == []
    assert ("td", token) in page.texts
    assert [text for tag, text in page.texts if tag == "td"] == ["x<y", "a > b", token, "0.50", "undefined"]
    assert ("h4", "T & <title>") in page.texts
    assert ("th", "<score>") in page.texts
    assert ("p", "n < m") in page.texts
    assert [text for tag, text in page.texts if tag == "h5"] == ["Facts", "A & B"]


def test_a_result_and_its_report_show_the_same() -> None:
    answer = Answer("x", 1.0)
    assert answer._repr_html_() == answer.report()._repr_html_()


def test_what_has_no_report_says_so() -> None:
    with pytest.raises(NotImplementedError):
        Result().report()


def test_every_text_is_translated_and_nothing_else() -> None:
    answer = Answer("·a", 0.5)
    before = answer.report()
    heat = Heatmap([[1.0, None]], ["·r"], ["·c"], "·v", "·t", low=-1.0)
    report = Report("·T", answer, (*before.blocks, heat), before.sheet)
    after = translate(report, lambda text: text.replace("·", "_").replace("&", "and"))
    assert after.title == "_T"
    assert after.result is answer
    facts, grid, note, map_ = after.blocks
    assert isinstance(grid, Grid)
    assert grid.title == "A and B"
    assert list(grid.rows[0]) == ["_a", 0.5]
    assert [column.spec for column in grid.columns] == ["", ".2f"]
    assert isinstance(map_, Heatmap)
    assert (list(map_.row_labels), list(map_.column_labels), map_.title, map_.low) == (
        ["_r"],
        ["_c"],
        "_t",
        -1.0,
    )
    assert facts == before.blocks[0]
    assert note == before.blocks[2]
    assert after.sheet is not None
    assert list(after.sheet.rows[0]) == ["_a", 0.5]
