"""`project` held against scikit-learn and brute force, on planted tables and in all its outputs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import made
import numpy as np
import planted
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

from inspect_embed import open_checkpoint, project
from inspect_embed.analyses import project as module
from inspect_embed.cli import run
from inspect_embed.errors import AnalysisError, OptionError, TokenError
from inspect_embed.numerics import projection

TOKENS = tuple(f"w{n}" for n in range(40))


def write(folder: Path, E: NDArray[Any], tokens: tuple[str, ...] = TOKENS) -> str:
    return str(made.write_checkpoint(folder, {"transformer.wte.weight": E}, {"model_type": "gpt2"}, tokens))


@pytest.fixture
def forty(tmp_path: Path) -> str:
    return write(tmp_path / "forty", made.random_table(40, 16))


@pytest.fixture
def plant(tmp_path: Path) -> str:
    return str(planted.write_checkpoint(tmp_path / "planted"))


def coordinates(found: module.Projection) -> NDArray[np.float64]:
    return np.array([point.coordinates for point in found.points])


def same_up_to_signs(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    signs = np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours, theirs * signs, atol=1e-5)


def test_the_map_is_scikit_learns_of_the_rows_shown(forty: str) -> None:
    from sklearn.decomposition import PCA

    words = ["w3", "w30", "w7", "w8", "w21"]
    rows = made.random_table(40, 16)[[3, 30, 7, 8, 21]].astype(np.float64)
    found = project(open_checkpoint(forty), words, dims=3)
    theirs = PCA(3, svd_solver="full").fit(rows)
    same_up_to_signs(coordinates(found), theirs.transform(rows))
    np.testing.assert_allclose(found.explained, theirs.explained_variance_ratio_)
    assert [(p.id, p.token) for p in found.points] == [
        (3, "w3"),
        (30, "w30"),
        (7, "w7"),
        (8, "w8"),
        (21, "w21"),
    ]


def test_fit_table_centers_and_scales_as_it_says(forty: str) -> None:
    from sklearn.decomposition import PCA

    E = made.random_table(40, 16).astype(np.float64)
    E -= E.mean(axis=0)
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    theirs = PCA(2, svd_solver="full").fit(E)
    found = project(open_checkpoint(forty), ["w5", "w9"], fit="table", center=True, normalize=True)
    same_up_to_signs(coordinates(found), theirs.transform(E[[5, 9]]))
    np.testing.assert_allclose(found.explained, theirs.explained_variance_ratio_[:2], rtol=1e-5)


def test_faithfulness_is_that_of_brute_force(forty: str) -> None:
    found = project(open_checkpoint(forty))
    assert found.n_points == 40

    def nearest(X: NDArray[Any]) -> list[set[int]]:
        D = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
        np.fill_diagonal(D, np.inf)
        return [set(row[:10]) for row in np.argsort(D, axis=1, kind="stable").tolist()]

    E = made.random_table(40, 16).astype(np.float64)
    kept = [len(a & b) / 10 for a, b in zip(nearest(E), nearest(coordinates(found)), strict=True)]
    assert [point.kept for point in found.points] == pytest.approx(kept)
    assert found.faithfulness == module.Faithfulness(10, pytest.approx(np.mean(kept)), 10 / 39, 40)
    assert [{n.id for n in point.neighbors} for point in found.points] == nearest(E)
    assert [n.distance for n in found.points[0].neighbors] == sorted(
        n.distance for n in found.points[0].neighbors
    )


def test_of_many_points_some_stand_for_all_unless_all_are_asked_for(
    forty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALL_COMPARED", 20)
    monkeypatch.setattr(projection, "SAMPLED", 15)
    ckpt = open_checkpoint(forty)
    some, everyone = project(ckpt), project(ckpt, all_neighbors=True)
    assert some.faithfulness.n_points == 15
    assert sum(point.kept is not None for point in some.points) == 15
    assert not any(point.neighbors for point in some.points)
    assert all(len(point.neighbors) == 10 for point in everyone.points)
    assert some.faithfulness == everyone.faithfulness
    assert "by 15 of the points" in some.report().figures["map"].caption  # type: ignore[union-attr]


def test_words_groups_and_neighbourhoods_are_shown_once_each(plant: str) -> None:
    found = project(
        open_checkpoint(plant),
        ["·girl", "·king"],
        groups={"people": ["·girl", "·boy"], "colours": ["·red", "·blue"]},
        around="·king",
        k=3,
    )
    assert [p.token for p in found.points][:5] == ["·girl", "·boy", "·red", "·blue", "·king"]
    assert [p.group for p in found.points][:5] == ["people", "people", "colours", "colours", ""]
    assert len({p.id for p in found.points}) == len(found.points)
    assert {p.group for p in found.points[5:]} <= {"nearest to ·king"}


def test_without_words_every_named_row_that_is_sound_is_shown(plant: str) -> None:
    found = project(open_checkpoint(plant))
    assert [p.id for p in found.points] == [
        row for row in range(len(planted.WORDS)) if row not in (planted.ZERO, planted.NAN)
    ]
    assert any("2 rows are zero or not finite and left out: ·zero, ·nan" in note for note in found.notes)
    assert any("1 of the rows equals another" in note for note in found.notes)
    assert len(project(open_checkpoint(plant), first=5).points) == 5
    assert [p.token for p in project(open_checkpoint(plant), grep="^·(r|b)").points] == [
        "·boy",
        "·red",
        "·blue",
        "·ran",
    ]


@pytest.mark.parametrize("method", ["pca", "tsne"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["·girl"], "three words or more, and there is 1"),
        (["·girl", "·boy"], "three words or more, and there are 2"),
        (["·girl", "·boy", "·nan"], "there are 2 after rows were left out"),
    ],
)
def test_fewer_than_three_points_are_told(plant: str, words: list[str], said: str, method: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        project(open_checkpoint(plant), words, method=method)


def test_one_word_has_a_place_on_the_axes_of_the_table(plant: str) -> None:
    found = project(open_checkpoint(plant), ["·girl"], fit="table")
    assert len(found.points) == 1
    assert np.isfinite(coordinates(found)).all()
    assert found.report().figures["map"]


def test_three_words_lie_in_a_plane(plant: str) -> None:
    found = project(open_checkpoint(plant), ["·girl", "·boy", "·king"], dims=3)
    assert found.explained[2] == 0
    assert coordinates(found)[:, 2].tolist() == [0, 0, 0]


def test_equal_rows_alone_are_an_error_that_names_them(tmp_path: Path) -> None:
    ckpt = open_checkpoint(write(tmp_path / "equal", np.ones((4, 5), np.float32), ("a", "b", "c", "d")))
    for method in ("pca", "tsne", "umap"):
        with pytest.raises(AnalysisError, match=r"The 3 rows .a, b, c. are equal"):
            project(ckpt, ["a", "b", "c"], method=method)


def test_a_table_too_narrow_for_the_map_is_told(tmp_path: Path) -> None:
    ckpt = open_checkpoint(write(tmp_path / "narrow", made.random_table(6, 2), tuple("abcdef")))
    with pytest.raises(AnalysisError, match="2 wide: it has no 3 dimensions"):
        project(ckpt, dims=3)
    assert project(ckpt).faithfulness.share == 1


def test_tsne_says_its_choices_and_is_the_same_twice(plant: str) -> None:
    words = ["·girl", "·boy", "·king", "·queen", "·red"]
    first = project(open_checkpoint(plant), words, method="tsne")
    again = project(open_checkpoint(plant), words, method="tsne")
    other = project(open_checkpoint(plant), words, method="tsne", seed=1, perplexity=3)
    assert coordinates(first).tolist() == coordinates(again).tolist()
    assert (first.perplexity, first.seed, first.library, first.explained) == (2, 0, "scikit-learn", ())
    assert (other.perplexity, other.seed) == (3, 1)
    assert "perplexity 2, seed 0" in first.report().figures["map"].caption  # type: ignore[union-attr]


@pytest.mark.parametrize("perplexity", [5, 17.5, 0, -1, float("nan")])
def test_a_perplexity_that_does_not_fit_is_refused(plant: str, perplexity: float) -> None:
    words = ["·girl", "·boy", "·king", "·queen", "·red"]
    with pytest.raises(OptionError, match="does not fit 5 points"):
        project(open_checkpoint(plant), words, method="tsne", perplexity=perplexity)


def test_many_points_go_through_pca_first_and_it_is_said(forty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "MANY", 30)
    monkeypatch.setattr(projection, "REDUCED_WIDTH", 5)
    monkeypatch.setattr(projection, "find_spec", lambda name: None)
    found = project(open_checkpoint(forty), method="tsne")
    assert found.reduced_to == 5
    assert "40 points went through PCA to 5 dimensions first." in found.notes


def test_umap_draws_where_it_is_installed(forty: str) -> None:
    pytest.importorskip("umap", reason="the extra umap is not installed", exc_type=ImportError)
    found = project(open_checkpoint(forty), method="umap", seed=3)
    assert (found.library, found.seed, found.perplexity) == ("umap-learn", 3, None)
    assert np.isfinite(coordinates(found)).all()


def test_a_word_of_several_tokens_is_their_mean_where_asked(plant: str) -> None:
    found = project(open_checkpoint(plant), ["·girl", "·boy", "·king", "gig"], mean=True, fit="table")
    assert (found.points[3].id, found.points[3].token) == (None, "gig")
    with pytest.raises(TokenError):
        project(open_checkpoint(plant), ["·girl", "·boy", "·king", "gig"])


def test_positions_are_drawn_as_a_path(plant: str) -> None:
    found = project(open_checkpoint(plant), table="position")
    block = found.report().figures["map"]
    assert [point.token for point in found.points][:2] == ["place 1", "place 2"]
    assert block.path  # type: ignore[union-attr]


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_saved_as_safetensors_is_read_back_equal(tmp_path: Path, order: str) -> None:
    E = np.asarray(made.random_table(6, 4), order=order)
    folder = write(tmp_path / "six", E, tuple("abcdef"))
    found = project(open_checkpoint(folder))
    path = tmp_path / "map.safetensors"
    assert run(["project", folder, "-o", str(path)]) == 0
    with safe_open(path, "np") as file:
        assert file.get_tensor("coordinates").tolist() == coordinates(found).tolist()
        assert file.get_tensor("ids").tolist() == [0, 1, 2, 3, 4, 5]
        assert json.loads(file.metadata()["tokens"]) == list("abcdef")


def test_arrays_of_any_layout_are_saved_as_what_they_are() -> None:
    from safetensors.numpy import load

    from inspect_embed.outputs import arrays
    from inspect_embed.report import Report

    A = np.arange(24, dtype=np.float32).reshape(6, 4)
    held = {"turned": A.T, "fortran": np.asfortranarray(A), "every_second": A[:, ::2], "backwards": A[::-1]}
    back = load(arrays.render(Report("t", None, arrays=held)))
    for name, array in held.items():
        assert back[name].tolist() == array.tolist()


def test_csv_and_json_hold_every_point(
    tmp_path: Path, forty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = project(open_checkpoint(forty))
    assert run(["project", forty, "-o", str(tmp_path / "map.csv")]) == 0
    with open(tmp_path / "map.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(float(row["x"]), float(row["y"])) for row in rows] == [p.coordinates for p in found.points]
    assert run(["project", forty, "--format", "json", "--method", "tsne", "--perplexity", "7"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["perplexity"], answer["seed"], answer["n_points"]) == (7, 0, 40)
    assert len(answer["points"]) == 40
    assert set(answer["faithfulness"]) == {"k", "share", "by_chance", "n_points"}


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["w1", "w2", "w3", "w4", "w5", "--method", "tsne", "--perplexity", "5"], 2, "does not fit 5 points"),
        (["w1", "w2"], 1, "three words or more"),
        (["--group", "colours"], 2, "NAME=WORD"),
        (["--group", "=w1"], 2, "NAME=WORD"),
        (["--dims", "4"], 2, "--dims"),
        (["--size", "12"], 2, "no size"),
        (["--size", "10x10"], 2, "each side"),
        (["--grep", "nothing like it"], 1, "No token matches"),
        (["--method", "tsne", "--fit", "table"], 2, "Leave --fit table out"),
        (["-o", "map.bmp"], 2, ".bmp"),
    ],
)
def test_calls_that_cannot_be_answered_say_why(
    forty: str, capsys: pytest.CaptureFixture[str], options: list[str], status: int, said: str
) -> None:
    assert run(["project", forty, *options]) == status
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "html"])
def test_every_kind_of_figure_is_written(
    forty: str, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"map.{suffix}"
    arguments = [
        "project",
        forty,
        "--group",
        "few=w1,w2",
        "--group",
        "more=w3,w4,w5",
        "-o",
        str(path),
        "--theme",
        "dark",
    ]
    assert run(arguments) == 0
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!DOCTYPE html>"}
    assert path.read_bytes().startswith(starts[suffix])
    assert capsys.readouterr().out == ""


def test_similarity_draws_its_grid(forty: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.svg"
    assert run(["similarity", forty, "w1", "w2", "w3", "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8").count(">w2<") == 2


def test_a_map_that_misleads_says_so(tmp_path: Path) -> None:
    tokens = tuple(f"w{n}" for n in range(200))
    ckpt = open_checkpoint(write(tmp_path / "noise", made.random_table(200, 64), tokens))
    found = project(ckpt)
    assert found.faithfulness.share < 1 / 3
    assert any("mostly not near in the table" in note for note in found.notes)
    assert not any("mostly not near" in note for note in project(ckpt, tokens[:20]).notes)


@pytest.mark.parametrize(
    ("options", "title"),
    [
        ({"around": "·king", "k": 3}, "·king and its 3 nearest"),
        ({"groups": {"people": ["·girl", "·boy"], "colours": ["·red"]}}, "People and colours"),
        ({"first": 5}, "The first 5 tokens"),
        ({"words": ["·girl", "·boy", "·red"]}, "3 tokens"),
        ({"title": "$x$", "first": 5}, "$x$"),
        ({"table": "position"}, "All 7 places"),
    ],
)
def test_a_map_is_named_after_what_it_shows(plant: str, options: dict[str, Any], title: str) -> None:
    assert project(open_checkpoint(plant), **options).title == title
