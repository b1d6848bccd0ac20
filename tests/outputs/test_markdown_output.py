"""Markdown: tables that keep every character of a token."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspect_embed.outputs.markdown import render
from inspect_embed.report import Bars, Column, Fact, Facts, Grid, Heatmap, Note, Report

PUNCTUATION = r"!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~"


def unescape(text: str) -> str:
    """What a reader of CommonMark sees: a backslash before ASCII punctuation is not shown (section 2.4)."""
    return re.sub(rf"\\([{PUNCTUATION}])", r"\1", text)


def cells(line: str) -> list[str]:
    """The cells of a row of GitHub's tables: a pipe after a backslash parts nothing."""
    return [unescape(cell.strip(" ")) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def markdown_of(*blocks: object, title: str = "") -> str:
    return render(Report(title, None, blocks))  # type: ignore[arg-type]


def test_a_grid_is_a_table_with_its_numbers_to_the_right() -> None:
    grid = Grid(
        (Column("token"), Column("score", ".2f"), Column("id", "d")),
        [("·girl", 0.5, 7), ("boy", float("nan"), None)],
        "Near",
    )
    assert markdown_of(grid, title="T") == (
        "**T**\n\nNear\n\n| token | score | id |\n|---|---:|---:|\n| ·girl | 0.50 | 7 |\n| boy | undefined |  |\n"
    )


TOKENS = ["|", "||", "\\", "\\|", "*", "**bold**", "_", "__init__", "`", "``", "<b>", "</s>", "<|endoftext|>", "[/INST]", "[unused1]", "[PAD]",
          "[a](b)", "![x](y)", ":smile:", ":+1:", "::", "a:b", "$", "$$", "$x$", "~~gone~~", "&amp;", "&lt;", "#", "# head", "{", "}",
          "a\\nb", "---", "-", "+", "1.", "=", "(c)", "'", '"', "^", "%", "@user", "http://x", "·", "你", ">", "!", "\\x20"]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_a_cell_keeps_every_character_of_a_token(token: str) -> None:
    text = markdown_of(Grid((Column(token), Column("n", "d")), [(token, 1)]))
    lines = text.splitlines()
    assert len(lines) == 3
    assert cells(lines[0]) == [token, "n"]
    assert cells(lines[2]) == [token, "1"]


@pytest.mark.parametrize(
    ("token", "escaped"),
    [
        ("**b**", r"\*\*b\*\*"),
        ("<b>", r"\<b\>"),
        ("$$", r"\$\$"),
        (":smile:", r"\:smile:"),
        ("a|b", r"a\|b"),
        ("&amp;", r"\&amp;"),
        ("[x](y)", r"\[x\](y)"),
    ],
)
def test_nothing_in_a_token_is_read_as_markup(token: str, escaped: str) -> None:
    assert f"| {escaped} |" in markdown_of(Grid((Column("token"),), [(token,)]))


@pytest.mark.parametrize(
    ("token", "line"),
    [
        ("-", r"\- (id 7)"),
        ("+", r"\+ (id 7)"),
        ("1.", r"1\. (id 7)"),
        ("12)", r"12\) (id 7)"),
        ("#", r"\# (id 7)"),
        (">", r"\> (id 7)"),
        ("===", r"\=== (id 7)"),
        ("·x", "·x (id 7)"),
    ],
)
def test_a_line_of_its_own_is_no_item_of_a_list_and_no_heading(token: str, line: str) -> None:
    title = f"{token} (id 7)"
    text = markdown_of(Grid((Column("a"),), [("x",)], title), Note(title))
    assert text.startswith(line + "\n\n| a |")
    assert f"> {line}\n" in text


@given(st.text(alphabet=st.characters()))
def test_every_text_is_one_cell_of_one_row(token: str) -> None:
    text = markdown_of(Grid((Column("token"), Column("n", "d")), [(token, 1)]))
    text.encode("utf-8")
    lines = text.split("\n")
    assert len(lines) == 4
    assert len(cells(lines[2])) == 2
    if token.isprintable() and token == token.strip():
        assert cells(lines[2])[0] == token


def test_facts_bars_and_notes_have_their_places() -> None:
    text = markdown_of(
        Facts((Fact("a", 0.5, ".1f", "remark"),), "Facts"),
        Bars(["x"], [50.0], "share"),
        Heatmap([[1.0]], ["a"], ["b"], "v"),
        Note("n."),
    )
    assert (
        text
        == "Facts\n\n|  |  |  |\n|---|---|---|\n| a | 0.5 | remark |\n\n|  | share |\n|---|---:|\n| x | 50.0 |\n\n> n.\n"
    )
