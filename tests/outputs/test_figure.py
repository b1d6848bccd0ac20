"""Figures, measured as they are drawn: size, overlaps, text that stays text, fonts that lack characters."""

from __future__ import annotations

import io
import math
import os
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspect_embed.errors import OutputError
from inspect_embed.outputs import Style, figure
from inspect_embed.outputs._lettering import Lettering, visible
from inspect_embed.report import Bars, Block, Grid, Heatmap, Lines, Note, Report, Scatter, Series

HARD = (
    "$",
    "$$",
    "$_$",
    "a$b$c",
    "\\frac",
    "_",
    "^",
    "<b>&\"'",
    "你",
    "ا",
    "\x00",
    "\x1b",
    "\n",
    "",
    "\ud800",
    "😀",
    "\u200b",
)


def report(block: Block) -> Report:
    return Report("A report", None, (), None, {"it": block})


def scatter(n: int, seed: int = 0, **more: Any) -> Scatter:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(5, 2))[np.arange(n) % 5]
    x, y = (centres + 0.25 * rng.normal(size=(n, 2))).T.tolist()
    labels = ["·" + "abcdefghij"[: 3 + place % 7] for place in range(n)]
    block = Scatter(x, y, labels, "PC 1", "PC 2", "A map", caption="checkpoint · method")
    return replace(block, **more)


BLOCKS: dict[str, Block] = {
    "scatter": scatter(12, groups=["a", "b", "c"] * 4),
    "space": scatter(12, z=[0.1 * n for n in range(12)], z_label="PC 3"),
    "path": scatter(12, path=True),
    "heatmap": Heatmap([[1, -0.5], [-0.5, None]], ["a", "b"], ["a", "b"], "cosine", "A grid", low=-1, high=1),
    "lines": Lines(
        (Series("one", [1, 10, 100], [1, 2, 3], [0.5, 1, 2], [2, 3, 4]), Series("two", [1, 10], [2, 1], dashed=True)),
        "step", "loss", "Lines", x_log=True, y_log=True,
    ),
    "bars": Bars(["token table", "attention", "norms"], [38_597_376, 85_000_000, 1_000], "parameters", "Shares", ",.0f"),
}  # fmt: skip


def texts_of(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def drawn_labels(block: Scatter, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], Any, Any]:
    """The boxes of the labels as drawn, the pixels of the points, and the drawing."""
    pages: list[Any] = []
    plain_save = figure._Page.save

    def save(page: Any, suffix: str) -> bytes:
        pages.append(page)
        return plain_save(page, suffix)

    monkeypatch.setattr(figure._Page, "save", save)
    drawing = figure.draw(report(block), ".png")
    drawn = pages[0].figure
    drawn.draw_without_rendering()
    over = max(drawn.axes, key=lambda axes: axes.get_zorder())
    boxes = [text.get_window_extent() for text in over.texts]
    axes = drawn.axes[0]
    points = axes.transData.transform(np.column_stack([block.x, block.y]))
    return boxes, points, drawing


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_picture_has_the_size_of_a_slide(kind: str, theme: str) -> None:
    png = figure.render(report(BLOCKS[kind]), ".png", Style(theme=theme))
    assert struct.unpack(">II", png[16:24]) == (1920, 1080)


@pytest.mark.parametrize("kind", BLOCKS)
def test_svg_is_xml_with_its_texts_as_text(kind: str) -> None:
    block = BLOCKS[kind]
    found = texts_of(figure.render(report(block), ".svg"))
    assert block.title in found  # type: ignore[union-attr]
    for name in ("labels", "groups", "row_labels"):
        assert set(getattr(block, name, ())) <= set(found)


@pytest.mark.parametrize("suffix", figure.SUFFIXES)
def test_the_same_report_gives_the_same_bytes(suffix: str) -> None:
    assert figure.render(report(BLOCKS["scatter"]), suffix) == figure.render(
        report(BLOCKS["scatter"]), suffix
    )


@pytest.mark.parametrize("size", [(640, 360), (1080, 1080), (3840, 2160)])
def test_a_size_that_is_asked_for_is_kept(size: tuple[int, int]) -> None:
    png = figure.render(report(BLOCKS["bars"]), ".png", Style(width=size[0], height=size[1]))
    assert struct.unpack(">II", png[16:24]) == size


def test_backgrounds_are_those_of_the_theme_or_none() -> None:
    from matplotlib.image import imread

    corners = {}
    for theme, transparent in (("light", False), ("dark", False), ("light", True)):
        png = figure.render(report(BLOCKS["lines"]), ".png", Style(theme=theme, transparent=transparent))
        corners[theme, transparent] = imread(io.BytesIO(png), format="png")[2, 2]
    assert corners["light", False].tolist() == [1, 1, 1, 1]
    assert corners["dark", False][:3].max() < 0.15
    assert corners["light", True][3] == 0


@pytest.mark.parametrize("seed", [0, 1])
def test_sixty_labels_do_not_overlap(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes, points, drawing = drawn_labels(scatter(60, seed), monkeypatch)
    assert len(boxes) >= 57
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert sum(box.contains(*point) for box in boxes for point in points) == 0
    if len(boxes) < 60:
        assert f"{60 - len(boxes)} of 60 labels" in drawing.notes[-1]


def test_two_hundred_labels_are_drawn_or_told(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes, _, drawing = drawn_labels(scatter(200), monkeypatch)
    assert len(boxes) > 80
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert f"{200 - len(boxes)} of 200 labels found no room" in drawing.notes[-1]


def test_labels_without_room_are_counted_in_the_small_print() -> None:
    crowd = scatter(40, x=[0.0] * 39 + [1.0], y=[0.0] * 40, labels=["a label that is long " * 5] * 40)
    svg = figure.draw(report(crowd), ".svg")
    assert any("labels left out for want of room" in text for text in texts_of(svg.content))  # type: ignore[arg-type]
    assert "found no room" in svg.notes[0]


def test_of_very_many_points_some_are_labelled() -> None:
    found = texts_of(figure.render(report(scatter(6000)), ".svg"))
    assert any("of 6,000 points labelled" in text for text in found)
    assert 10 < sum(text.startswith("·") for text in found) <= 60


@pytest.mark.parametrize("suffix", figure.SUFFIXES)
def test_tokens_of_every_kind_are_drawn(suffix: str) -> None:
    n = len(HARD)
    block = scatter(
        n, labels=HARD, groups=[f"${label}$" for label in HARD], title="$a$ _b_ \x1b", x_label="$x^2$"
    )
    content = figure.render(report(block), suffix)
    if suffix == ".svg":
        found = texts_of(content)
        for said in (
            "$$",
            "$_$",
            "a$b$c",
            "\\frac",
            "<b>&\"'",
            r"\x00",
            r"\x1b",
            r"\n",
            r"\&",
            r"\ud800",
            r"\u200b",
        ):
            assert said in found
        assert r"$a$ _b_ \x1b" in found
        assert "$x^2$" in found


def test_what_no_font_has_is_shown_by_id_and_told_once() -> None:
    unheard_of = "\U0001e7e0"  # an Ethiopic syllable of 2021
    block = scatter(4, labels=["a", unheard_of, "b", unheard_of * 2], ids=[1, 7, 2, 9])
    drawing = figure.draw(report(block), ".svg")
    found = texts_of(drawing.content)  # type: ignore[arg-type]
    if unheard_of in found:
        pytest.skip("a font of this machine has the character")
    assert {"a", "b", "id 7", "id 9"} <= set(found)
    (note,) = drawing.notes
    assert "2 of the texts" in note
    assert any("2 shown by id" in text for text in found)


def test_without_ids_an_escape_stands_for_what_no_font_has() -> None:
    lettering = Lettering(["x\U0001e7e0"])
    assert lettering.spell("x\U0001e7e0") in (r"x\U0001e7e0", "x\U0001e7e0")
    assert Lettering(["·girl"]).spell("·girl", 5) == "·girl"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("·girl", "·girl"),
        ("  ", "··"),
        ("", r"\&"),
        ("a\tb", r"a\tb"),
        ("\x1b", r"\x1b"),
        ("a b", "a b"),
        (r"\n", r"\n"),
    ],
)
def test_text_that_shows_nothing_is_spelled(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_heat_map_shows_its_numbers_and_what_is_undefined() -> None:
    block = replace(BLOCKS["heatmap"], values=[[1, -0.5], [-0.5, math.nan]])  # type: ignore[type-var]
    found = texts_of(figure.render(report(block), ".svg"))
    assert {"1.00", "−0.50", "–"} <= set(found)
    assert any("undefined" in text for text in found)


def test_a_heat_map_of_many_names_shows_some_of_them() -> None:
    names = [f"t{n}" for n in range(90)]
    found = texts_of(figure.render(report(Heatmap(np.eye(90).tolist(), names, names, "cosine")), ".svg"))
    assert {"t0", "t3"} <= set(found)
    assert "t1" not in found
    assert any("one name in 3 shown" in text for text in found)


def test_bars_say_their_share_of_the_whole() -> None:
    found = texts_of(figure.render(report(BLOCKS["bars"]), ".svg"))
    assert {"31.2 %", "68.8 %", "< 0.1 %", "38,597,376"} <= set(found)


def test_the_views_of_a_report_are_drawn_by_name() -> None:
    both = Report("t", None, (), None, {"one": BLOCKS["bars"], "two": BLOCKS["lines"]})
    assert "Shares" in texts_of(figure.render(both, ".svg"))
    assert "Lines" in texts_of(figure.render(both, ".svg", Style(view="two")))
    with pytest.raises(OutputError, match="no figure 'three'"):
        figure.render(both, ".svg", Style(view="three"))


def test_a_report_without_a_figure_says_so() -> None:
    with pytest.raises(OutputError, match="no figure"):
        figure.render(Report("t", None, (Note("n"), Grid((), ()))), ".png")


def test_two_points_and_equal_points_can_be_drawn() -> None:
    for block in (scatter(1), scatter(2), scatter(5, x=[1.0] * 5, y=[2.0] * 5), scatter(3, z=[0.0] * 3)):
        assert figure.render(report(block), ".png")


def test_users_own_settings_of_matplotlib_change_nothing_and_are_kept() -> None:
    import matplotlib

    plain = figure.render(report(BLOCKS["scatter"]), ".svg")
    with matplotlib.rc_context(
        {"text.usetex": True, "font.family": "serif", "axes.grid": False, "svg.fonttype": "path"}
    ):
        assert figure.render(report(BLOCKS["scatter"]), ".svg") == plain
        assert matplotlib.rcParams["text.usetex"]


def test_no_window_no_global_state_and_no_home_are_needed(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from inspect_embed.outputs import figure\n"
        "from inspect_embed.report import Report, Scatter\n"
        "block = Scatter([1, 2, 3], [1, 3, 2], ['$a$', '\\x1b', 'c'], 'x', 'y')\n"
        "assert figure.render(Report('t', None, (), None, {'m': block}), '.png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'tkinter' not in sys.modules\n"
    )
    locked = tmp_path / "home"
    locked.write_text("a file, so that no folder can be made below it")
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLCONFIGDIR")}
    environment |= {
        "MPLBACKEND": "TkAgg",
        "HOME": str(locked),
        "XDG_CONFIG_HOME": str(locked),
        "XDG_CACHE_HOME": str(locked),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
