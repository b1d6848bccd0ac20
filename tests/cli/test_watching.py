"""The line of progress, and the choice among the figures of an answer."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from made import random_table, write_checkpoint

from inspect_embed.cli import run
from inspect_embed.cli.options import show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_told_on_a_terminal_and_wiped_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with show_progress("rows") as tell:
        tell(512, 50_257)
        assert terminal.getvalue() == "\rrows: 512 of 50,257"
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_an_interrupted_line_is_wiped_away_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    def interrupted() -> None:
        with show_progress("rows") as tell:
            tell(1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_progress_says_nothing_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("rows") as tell:
        tell(1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("command", "view", "title"),
    [
        ("health", None, "How long the tokens' vectors are"),
        ("health", "spectrum", "How the variance is spread"),
        ("compare", None, "How many of its nearest neighbours a token keeps"),
        ("compare", "cosines", "How far the rows have turned"),
    ],
)
def test_the_figure_asked_for_is_drawn(tmp_path: Path, command: str, view: str | None, title: str) -> None:
    E = random_table(40, 12, 1)
    folders = []
    for name, rows in (("a", E), ("b", E + np.float32(0.1) * random_table(40, 12, 2))):
        words = tuple(f"w{i}" for i in range(40))
        folders.append(
            str(write_checkpoint(tmp_path / name, {"wte.weight": rows}, {"model_type": "gpt2"}, words))
        )
    drawn = tmp_path / "figure.svg"
    chosen = ["--view", view] if view else []
    assert run([command, *folders[: 1 + (command == "compare")], *chosen, "-o", str(drawn)]) == 0
    assert title in drawn.read_text(encoding="utf-8")


def test_a_figure_that_an_answer_has_not_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [
        str(
            write_checkpoint(
                tmp_path / str(width), {"wte.weight": random_table(9, width, 1)}, {}, tuple("abcdefghi")
            )
        )
        for width in (4, 5)
    ]
    assert run(["compare", *folders, "--view", "cosines", "-o", str(tmp_path / "figure.svg")]) == 1
    error = capsys.readouterr().err
    assert "no figure 'cosines'" in error
    assert "overlap" in error
