"""Exports are read back by the programs they are for: same rows, same order, whatever the tokens look like."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import made
import numpy as np
import planted
import pytest
from numpy.typing import NDArray

import inspect_embed
from inspect_embed.cli import run

TOKENS = (
    "Ġgirl",
    "a b",
    "null",
    "NaN",
    '"',
    "NA",
    "Ġ",
    "  ",
    "\t",
    "\n",
    ",",
    "#",
    "Ġgirl's",
    "你好",
    "''",
    "-1",
    "id:3",
    "é",
)
WIDTH = 5
KINDS = ("projector", "word2vec", "npz", "safetensors", "parquet")


def rows() -> NDArray[np.float32]:
    E = made.random_table(len(TOKENS), WIDTH)
    E[0, 0], E[1, 1], E[2, 2], E[3, 3] = 1e-38, 3.4028235e38, 0.1, -16777217.0
    return E


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A checkpoint whose tokens trouble readers of text; its vocabulary is byte-level in part."""
    folder = made.write_checkpoint(tmp_path / "odd", {"wte.weight": rows()}, {"model_type": "gpt2"})
    tokenizer: dict[str, Any] = {
        "model": {"type": "BPE", "vocab": {token: n for n, token in enumerate(TOKENS)}, "merges": []},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def export_to(kind: str, folder: Path, path: Path, *options: str) -> Path:
    assert run(["export", str(folder), "--to", kind, "-o", str(path), *options]) == 0
    return path


def shown(folder: Path) -> list[str]:
    """The tokens as every other command shows them."""
    table = inspect_embed.open_checkpoint(folder).table()
    return [table.labels.text(row) for row in range(table.n_rows)]


def test_the_projector_finds_a_row_and_a_label_a_line(odd: Path, tmp_path: Path) -> None:
    folder = export_to("projector", odd, tmp_path / "out")
    with (folder / "vectors.tsv").open(encoding="utf-8", newline="") as file:
        vectors = np.array([*csv.reader(file, delimiter="\t")], np.float64).astype(np.float32)
    np.testing.assert_array_equal(vectors, rows())
    with (folder / "metadata.tsv").open(encoding="utf-8", newline="") as file:
        heading, *lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    assert heading == ["token", "id"]
    assert lines == [[token, str(n)] for n, token in enumerate(shown(odd))]
    # The Projector itself splits at line feeds and tabs alone.
    text = (folder / "metadata.tsv").read_bytes().decode()
    assert [line.split("\t") for line in text.removesuffix("\n").split("\n")][1:] == lines
    config = (folder / "projector_config.pbtxt").read_text(encoding="utf-8")
    assert "vectors.tsv" in config
    assert "metadata.tsv" in config


def test_pandas_reads_the_labels_as_they_are(odd: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas reads the labels back")
    path = export_to("projector", odd, tmp_path / "out") / "metadata.tsv"
    frame = pandas.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False)
    assert frame["token"].tolist() == shown(odd)
    assert frame["id"].tolist() == [*range(len(TOKENS))]


def test_gensim_reads_word2vec_text(odd: Path, tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models", reason="gensim reads the text back")
    path = export_to("word2vec", odd, tmp_path / "odd.txt")
    vectors = models.KeyedVectors.load_word2vec_format(str(path), binary=False)
    assert vectors.vectors.shape == (len(TOKENS), WIDTH)
    assert vectors.index_to_key == [token.replace(" ", r"\x20") for token in shown(odd)]
    np.testing.assert_array_equal(vectors.vectors, rows())


def test_a_word_of_word2vec_text_is_found_as_it_is_spelled_there(odd: Path, tmp_path: Path) -> None:
    path = export_to("word2vec", odd, tmp_path / "odd.txt")
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[0] == f"{len(TOKENS)} {WIDTH}"
    words = [line.split(" ")[0] for line in lines[1:-1]]
    vocabulary = inspect_embed.open_checkpoint(odd).vocabulary
    assert vocabulary is not None
    found = [vocabulary.find(word).id for word in words if not word.startswith("id:")]
    assert found == [n for n, word in enumerate(words) if not word.startswith("id:")]


def test_ids_stand_beside_the_words_of_word2vec_text(odd: Path, tmp_path: Path) -> None:
    export_to("word2vec", odd, tmp_path / "odd.txt", "--", "id:4", "id:2")
    lines = (tmp_path / "odd.ids.tsv").read_text(encoding="utf-8").splitlines()
    assert lines == ["token\tid", '"\t4', "null\t2"]


def test_rows_that_are_called_alike_or_not_at_all_are_called_by_their_ids(tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models", reason="gensim drops the second of two equal words")
    folder = made.write_checkpoint(tmp_path / "m", {"wte.weight": made.random_table(5, 3)})
    # A byte token and a letter are shown alike in no vocabulary; a control token and a word can be.
    tokenizer = {
        "added_tokens": [{"id": 1, "content": "girl", "special": True}],
        "model": {"type": "BPE", "vocab": {"girl": 0, "boy": 2}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    path = export_to("word2vec", folder, tmp_path / "m.txt", "--", "id:0", "id:1", "id:2", "id:4")
    vectors = models.KeyedVectors.load_word2vec_format(str(path), binary=False)
    assert vectors.index_to_key == ["girl", "id:1", "boy", "id:4"]


def test_numpy_reads_the_archive_without_objects(odd: Path, tmp_path: Path) -> None:
    path = export_to("npz", odd, tmp_path / "odd.npz", "--with-map", "pca", "--neighbors", "3")
    with np.load(path, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["vectors"], rows())
        assert arrays["tokens"].tolist() == shown(odd)
        assert arrays["ids"].tolist() == [*range(len(TOKENS))]
        assert arrays["coordinates"].shape == (len(TOKENS), 2)
        assert arrays["neighbors"].shape == arrays["distances"].shape == (len(TOKENS), 3)


def test_safetensors_reads_rows_in_order_and_tokens_from_the_metadata(odd: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    path = export_to("safetensors", odd, tmp_path / "odd.safetensors", "--with-map", "pca")
    with safe_open(path, "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("vectors"), rows())
        assert file.get_tensor("ids").tolist() == [*range(len(TOKENS))]
        assert json.loads(file.metadata()["tokens"]) == shown(odd)
        from_npz = np.load(export_to("npz", odd, tmp_path / "odd.npz", "--with-map", "pca"))
        # A map comes out of its library column by column: it must be written row by row.
        np.testing.assert_array_equal(file.get_tensor("coordinates"), from_npz["coordinates"])


def test_parquet_holds_the_columns_that_embedding_atlas_asks_for(odd: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads parquet back")
    path = export_to("parquet", odd, tmp_path / "odd.parquet", "--with-map", "pca", "--neighbors", "2")
    table = parquet.read_table(path)
    assert table.column_names == ["id", "token", "x", "y", "neighbors", "vector"]
    assert table["token"].to_pylist() == shown(odd)
    assert table["id"].to_pylist() == [*range(len(TOKENS))]
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), rows())
    E = rows().astype(np.float64)
    U = E / np.abs(E).max(axis=1, keepdims=True)
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    distances = 1 - U @ U.T
    np.fill_diagonal(distances, -1)  # a row itself comes first, whatever equals it
    for row, near in enumerate(table["neighbors"].to_pylist()):
        assert [*near] == ["ids", "distances"]
        assert near["ids"] == np.argsort(distances[row])[:3].tolist()
        assert (near["ids"][0], near["distances"][0]) == (row, 0)
        np.testing.assert_allclose(near["distances"][1:], np.sort(distances[row])[1:3], atol=1e-12)


def test_neighbours_are_places_among_the_rows_written_not_ids(odd: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads parquet back")
    path = export_to("parquet", odd, tmp_path / "few.parquet", "--", "id:9", "id:4", "id:12")
    near = parquet.read_table(path)["neighbors"].to_pylist()
    assert [n["ids"][0] for n in near] == [0, 1, 2]
    assert [sorted(n["ids"]) for n in near] == [[0, 1, 2]] * 3


def test_pandas_keeps_the_tokens_of_parquet(odd: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas reads parquet back")
    pytest.importorskip("pyarrow", reason="pandas reads parquet with pyarrow")
    frame = pandas.read_parquet(export_to("parquet", odd, tmp_path / "odd.parquet"))
    assert frame["token"].tolist() == shown(odd)
    assert set(frame["neighbors"][0]) == {"ids", "distances"}


def test_without_pyarrow_the_error_is_the_line_to_type(
    odd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from importlib import util

    from inspect_embed.outputs import parquet

    monkeypatch.setattr(
        parquet, "find_spec", lambda name: None if name == "pyarrow" else util.find_spec(name)
    )
    assert run(["export", str(odd), "--to", "parquet", "-o", str(tmp_path / "x.parquet")]) == 1
    err = capsys.readouterr().err
    assert 'hint: pip install "inspect-embed[parquet]"\n' in err
    assert not (tmp_path / "x.parquet").exists()


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ((), [*range(len(planted.WORDS))]),
        (("--first", "3"), [0, 1, 2]),
        (("--grep", "^·(king|red)$"), [3, 5]),
        (("--grep", "^·", "--first", "2"), [0, 2]),
        (("·red", "girl", "·red"), [5, 1]),
        (("·red", "--grep", "^·(king|red)$"), [5, 3]),
    ],
)
def test_the_rows_asked_for_are_written_once_in_the_order_asked_for(
    tmp_path: Path, options: tuple[str, ...], ids: list[int]
) -> None:
    folder = planted.write_checkpoint(tmp_path / "planted")
    path = export_to("npz", folder, tmp_path / "out.npz", *options)
    with np.load(path) as arrays:
        assert arrays["ids"].tolist() == ids
        np.testing.assert_array_equal(arrays["vectors"], planted.token_rows()[ids])


def test_words_come_from_a_file_and_positions_from_their_table(tmp_path: Path) -> None:
    folder = planted.write_checkpoint(tmp_path / "planted")
    (tmp_path / "words").write_text("·king\n·girl\n", encoding="utf-8")
    path = export_to("npz", folder, tmp_path / "out.npz", "--words-file", str(tmp_path / "words"))
    assert np.load(path)["tokens"].tolist() == ["·king", "·girl"]
    path = export_to("npz", folder, tmp_path / "out.npz", "--table", "position")
    assert np.load(path)["tokens"].tolist()[:2] == ["place 1", "place 2"]
    np.testing.assert_array_equal(np.load(path)["vectors"], planted.position_rows())


def test_broken_rows_go_out_as_they_are_without_a_place_or_neighbours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads parquet back")
    folder = planted.write_checkpoint(tmp_path / "planted")
    table = parquet.read_table(
        export_to("parquet", folder, tmp_path / "out.parquet", "--with-map", "pca")
    ).to_pylist()
    assert "2 of the rows are zero or not finite" in capsys.readouterr().out
    for row in (planted.ZERO, planted.NAN):
        assert (table[row]["x"], table[row]["y"]) == (None, None)
        # Lists of one length are what the reader of this column stacks.
        assert table[row]["neighbors"] == {"ids": [row] * 11, "distances": [0.0] * 11}
    sound = [row["neighbors"]["ids"] for n, row in enumerate(table) if n not in (planted.ZERO, planted.NAN)]
    assert np.stack(sound).shape == (len(table) - 2, 11)
    assert not {planted.ZERO, planted.NAN} & set(np.ravel(sound).tolist())
    assert table[planted.TWIN]["neighbors"]["ids"][:2] == [planted.TWIN, planted.DOUBLE]
    assert table[planted.TWIN]["neighbors"]["distances"][:2] == [0, 0]


def test_a_map_is_that_of_scikit_learn_and_repeats_for_its_seed(tmp_path: Path) -> None:
    from sklearn.decomposition import PCA

    E = made.random_table(12, 6)
    folder = made.write_checkpoint(tmp_path / "m", {"wte.weight": E})
    checkpoint = inspect_embed.open_checkpoint(folder)
    found = inspect_embed.export(checkpoint, with_map="pca").coordinates
    assert found is not None
    theirs = PCA(2).fit_transform(E.astype(np.float64))
    np.testing.assert_allclose(np.abs(found), np.abs(theirs), atol=1e-9)
    first, again = (
        inspect_embed.export(checkpoint, with_map="tsne", seed=seed).coordinates for seed in (1, 1)
    )
    assert first is not None
    assert first.shape == (12, 2)
    np.testing.assert_array_equal(first, again)


def test_float64_rows_keep_every_digit(tmp_path: Path) -> None:
    E = np.random.default_rng(0).standard_normal((4, 3))
    folder = made.write_checkpoint(tmp_path / "m", {"wte.weight": E})
    lines = export_to("word2vec", folder, tmp_path / "m.txt").read_text(encoding="utf-8").splitlines()
    np.testing.assert_array_equal(np.array([line.split()[1:] for line in lines[1:]], np.float64), E)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_finished_leaves_what_was_there(
    kind: str, odd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow writes parquet")
    path = tmp_path / "out"
    old = {path: b"old"}
    if kind == "projector":
        path.mkdir()
        old = {path / "vectors.tsv": b"old", path / "metadata.tsv": b"old"}
    for file, data in old.items():
        file.write_bytes(data)
    before = sorted(tmp_path.rglob("*"))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    assert run(["export", str(odd), "--to", kind, "-o", str(path)]) == 1
    assert "No space left" in capsys.readouterr().err
    assert all(file.read_bytes() == data for file, data in old.items())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (("--to", "npz"), 2, "-o FILE"),
        (("--to", "projector"), 2, "-o FOLDER"),
        (("--to", "word2vec", "-o", "x", "--with-map", "pca"), 2, "no place for a map"),
        (("--to", "projector", "-o", "x", "--neighbors", "3"), 2, "no place for neighbours"),
        (("--to", "excel", "-o", "x"), 2, "excel"),
        (("--to", "npz", "-o", "nowhere/x.npz"), 1, "nowhere"),
        (("--to", "projector", "-o", "nowhere/x"), 1, "nowhere"),
        (("--to", "npz", "-o", "x", "·nothing"), 1, "·nothing"),
        (("--to", "npz", "-o", "x", "--grep", "zzz"), 1, "zzz"),
        (("--to", "npz", "-o", "x", "--with-map", "pca", "·girl", "girl"), 1, "three rows"),
        (("--to", "npz", "-o", "x", "girlboy"), 1, "pieces"),
    ],
)
def test_what_cannot_be_written_is_one_clear_message(
    options: tuple[str, ...],
    status: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = planted.write_checkpoint(tmp_path / "planted")
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(folder), *options]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "--mean" not in err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["planted"]


def test_the_list_of_files_is_printed_as_asked(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_to("word2vec", odd, tmp_path / "odd.txt", "--format", "json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["files"] == [str(tmp_path / "odd.txt"), str(tmp_path / "odd.ids.tsv")]
    assert (answer["to"], answer["n_rows"], answer["width"]) == ("word2vec", len(TOKENS), WIDTH)
    assert "vectors" not in answer


def test_an_export_shows_itself_in_a_notebook(odd: Path) -> None:
    found = inspect_embed.export(inspect_embed.open_checkpoint(odd), ["id:0"])
    assert "rows" in found._repr_html_()
    assert "pyarrow" not in sys.modules or found.neighbors is None
