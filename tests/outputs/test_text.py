"""Plain text: columns that stay aligned in every script, and lines that steer no terminal."""

from __future__ import annotations

import pytest

from inspect_embed.outputs.text import render, width_of
from inspect_embed.report import Bars, Column, Fact, Facts, Grid, Heatmap, Lines, Note, Report, Series


def text_of(*blocks: object, title: str = "") -> str:
    return render(Report(title, None, blocks))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("girl", 4), ("·girl", 5), ("Ġ", 1), ("▁", 1), ("你好", 4), ("한국", 4), ("カ", 2), ("ｶ", 1), ("Ａ", 2), ("é", 1),
     ("e\u0301", 1), ("か\u3099", 2), ("ا", 1), ("لا", 2), ("🙂", 2), ("न\u0947", 1), ("\u0301", 0), ("a\u20ddb", 2)],
)  # fmt: skip
def test_a_text_is_as_wide_as_a_terminal_shows_it(text: str, width: int) -> None:
    assert width_of(text) == width


def test_columns_line_up_whatever_script_the_tokens_are_in() -> None:
    tokens = ["·girl", "你好", "e\u0301", "か\u3099", "🙂", "ا"]
    grid = Grid((Column("token"), Column("score", ".4f"), Column("end")), [(t, -0.5, "|") for t in tokens])
    lines = text_of(grid).splitlines()
    assert len({width_of(line[: line.index("|")]) for line in lines[1:]}) == 1
    assert lines[0] == "token    score  end"
    assert lines[2] == "你好   -0.5000  |"


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    grid = Grid(
        (Column("n", ",d"), Column("word"), Column("x", ".1f")),
        [(5, "ab", 1.0), (12_345, "c", None), (None, "", 10.25)],
    )
    assert text_of(grid).splitlines() == [
        "     n  word     x",
        "     5  ab     1.0",
        "12,345  c",
        "              10.2",
    ]


def test_a_column_of_words_and_numbers_or_of_truths_stands_to_the_left() -> None:
    assert text_of(Grid((Column("mixed"),), [("long word",), (5,)])).splitlines()[2] == "5"
    assert text_of(Grid((Column("a true column"),), [(True,), (False,)])).splitlines()[1:] == ["yes", "no"]


def test_an_undefined_number_says_so() -> None:
    assert "undefined" in text_of(Grid((Column("cosine", ".4f"),), [(float("nan"),)]))


def test_an_empty_grid_is_its_headings() -> None:
    assert text_of(Grid((Column("token"), Column("score", ".4f")), [], "none")) == "none\ntoken  score\n"


def test_facts_line_up_and_remarks_follow() -> None:
    facts = Facts(
        (Fact("family", "gpt2"), Fact("tensors", 1234, ",d", "5 bytes"), Fact("none", None)), "Facts"
    )
    assert text_of(facts) == "Facts\nfamily   gpt2\ntensors  1,234   5 bytes\nnone\n"


def test_bars_are_as_long_as_their_share_of_the_longest() -> None:
    lines = text_of(Bars(["a", "bb", "c"], [50.0, 25.0, 0.0], "%", "Shares")).splitlines()
    assert lines[0] == "Shares"
    assert [line.count("#") for line in lines[1:]] == [40, 20, 0]
    assert "50.0" in lines[1]
    assert text_of(Bars(["a"], [0.0], "%")).count("#") == 0
    assert text_of(Bars([], [], "%")) == "\n"


def test_blocks_are_parted_and_notes_stand_together() -> None:
    grid = Grid((Column("a"),), [("x",)])
    assert (
        text_of(grid, Note("one."), Note("two."), title="Title")
        == "Title\n\na\nx\n\nnote: one.\nnote: two.\n"
    )


def test_what_only_a_picture_can_show_is_left_out() -> None:
    heat = Heatmap([[1.0]], ["a"], ["b"], "v")
    lines = Lines((Series("s", [0], [1]),), "x", "y")
    assert text_of(heat, Note("n."), lines, title="T") == "T\n\nnote: n.\n"


def test_no_line_ends_in_blanks_and_the_text_ends_in_one_line_break() -> None:
    grid = Grid((Column("a"), Column("b")), [("x", ""), ("", "y")])
    text = text_of(Facts((Fact("f", ""),)), grid, title="T")
    assert text.endswith("y\n")
    assert all(line == line.rstrip() for line in text.splitlines())


HOSTILE = "\x1b]0;owned\x07\x1b[2J\nnote: all is well\r\u202e\ud800"


def test_no_name_steers_the_terminal_or_begins_a_line() -> None:
    blocks = (
        Facts((Fact(HOSTILE, HOSTILE, remark=HOSTILE),), HOSTILE),
        Grid((Column(HOSTILE), Column("n", "d")), [(HOSTILE, 1), ("short", 2)], HOSTILE),
        Bars([HOSTILE], [1.0], "v", HOSTILE),
        Note(HOSTILE),
    )
    text = text_of(*blocks, title=HOSTILE)
    text.encode("utf-8")
    assert all(mark.isprintable() or mark == "\n" for mark in text)
    assert len(text.splitlines()) == 1 + (1 + 2) + (1 + 4) + (1 + 2) + (1 + 1)
    one, two = (line for line in text.splitlines() if line.endswith(("  1", "  2")))
    assert len(one) == len(two)
