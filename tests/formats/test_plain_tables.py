"""Plain tables: numpy's arrays with words beside them, word2vec and GloVe text, word2vec binary, model2vec folders."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import numpy as np
import planted
import pytest
from numpy.typing import NDArray

from inspect_embed import open_checkpoint
from inspect_embed.cli import run
from inspect_embed.errors import InspectEmbedError

WORDS = ("the", "New York", "null", '"', "naïve", "1", "girl", "你好", "##ing-", "-0.5", "a  b", "·")
WIDTH = 7


def table() -> NDArray[np.float32]:
    E = made.random_table(len(WORDS), WIDTH)
    E[0, :4] = 1e-38, 3.4028235e38, 0.1, -16777217.0
    return E


def text(E: NDArray[Any], words: tuple[str, ...] = WORDS, end: str = "\n", head: bool = True) -> bytes:
    lines = [f"{len(E)} {E.shape[1]}"] if head else []
    lines += [f"{word} {' '.join(map(str, row.tolist()))}" for word, row in zip(words, E, strict=True)]
    return "".join(line + end for line in lines).encode()


def binary(E: NDArray[np.float32], words: tuple[str, ...] = WORDS, after: bytes = b"\n") -> bytes:
    head = f"{len(E)} {E.shape[1]}\n".encode()
    return head + b"".join(
        word.encode() + b" " + row.tobytes() + after for word, row in zip(words, E, strict=True)
    )


def npy(E: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, E)
    return file.getvalue()


def npz(pack: Callable[..., None] = np.savez, **arrays: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    pack(file, **arrays)
    return file.getvalue()


UNSPACED = tuple(word.replace(" ", "_") for word in WORDS)
LIST = "\n".join(WORDS).encode() + b"\n"

PLAIN: dict[str, tuple[dict[str, bytes], tuple[str, ...]]] = {
    "table.txt": ({"table.txt": text(table())}, WORDS),
    "table.vec": ({"table.vec": text(table(), end=" \n")}, WORDS),
    "crlf.txt": ({"crlf.txt": text(table(), end="\r\n")}, WORDS),
    "glove.txt": ({"glove.txt": text(table(), head=False)}, WORDS),
    "unended.txt": ({"unended.txt": text(table(), head=False)[:-1]}, WORDS),
    "bom.txt": ({"bom.txt": b"\xef\xbb\xbf" + text(table(), head=False)}, WORDS),
    "table.bin": ({"table.bin": binary(table(), UNSPACED)}, UNSPACED),
    "gensim.bin": ({"gensim.bin": binary(table(), UNSPACED, after=b"")}, UNSPACED),
    "odd.w2v": ({"odd.w2v": binary(table(), UNSPACED)}, UNSPACED),
    "table.npy": ({"table.npy": npy(table()), "table.txt": LIST}, WORDS),
    "crlf.npy": ({"crlf.npy": npy(table()), "words.txt": LIST.replace(b"\n", b"\r\n")}, WORDS),
    "columns.npy": ({"columns.npy": npy(np.asfortranarray(table())), "columns.vocab": LIST}, WORDS),
    "double.npy": ({"double.npy": npy(table().astype(np.float64)), "vocab.txt": LIST}, WORDS),
    "table.npz": ({"table.npz": npz(E=table(), words=np.array(WORDS))}, WORDS),
    "packed.npz": ({"packed.npz": npz(np.savez_compressed, E=table(), words=np.array(WORDS))}, WORDS),
    "columns.npz": (
        {"columns.npz": npz(np.savez_compressed, arr_0=np.asfortranarray(table()), arr_1=np.array(WORDS))},
        WORDS,
    ),
    "bytes.npz": ({"bytes.npz": npz(E=table(), vocab=np.array([w.encode() for w in WORDS]))}, WORDS),
    "beside.npz": ({"beside.npz": npz(E=table()), "beside.words.txt": LIST}, WORDS),
}


@pytest.mark.parametrize("name", PLAIN)
def test_every_row_is_the_vector_of_its_word(name: str, tmp_path: Path) -> None:
    files, words = PLAIN[name]
    opened = open_checkpoint(made.write(tmp_path, files) / name)
    found = opened.table()
    assert (found.n_rows, found.width) == table().shape
    np.testing.assert_array_equal(found.rows(range(len(WORDS))), table())
    np.testing.assert_array_equal(np.concatenate([block.copy() for _, block in found.blocks()]), table())
    np.testing.assert_array_equal(found.rows([5, 2]), table()[[5, 2]])
    vocabulary = opened.vocabulary
    assert vocabulary is not None
    raws = [token.raw for row in range(len(WORDS)) if (token := vocabulary.token(row)) is not None]
    assert raws == list(words)
    assert found.labels.find("girl").row == words.index("girl")
    assert found.labels.named(len(WORDS)).all()


@pytest.mark.parametrize("name", PLAIN)
def test_the_commands_answer_about_it(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, _ = PLAIN[name]
    path = str(made.write(tmp_path, files) / name)
    assert run(["neighbors", path, "girl", "-k", "1", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    E = table().astype(np.float64)
    E /= np.abs(E).max(axis=1, keepdims=True)
    U = E / np.linalg.norm(E, axis=1, keepdims=True)
    scores = U @ U[WORDS.index("girl")]
    scores[WORDS.index("girl")] = -np.inf
    (near,) = answer["results"][0]["neighbors"]
    assert near["id"] == scores.argmax()
    assert near["score"] == pytest.approx(scores.max(), abs=1e-7)
    assert run(["params", path, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == table().size
    assert run(["info", path]) == 0


def test_long_tables_are_read_whole_and_in_parts(tmp_path: Path) -> None:
    E = made.random_table(5000, 3)
    words = tuple(f"w{n}" for n in range(5000))
    made.write(tmp_path, {"long.txt": text(E, words), "long.bin": binary(E, words)})
    for name in ("long.txt", "long.bin"):
        found = open_checkpoint(tmp_path / name).table()
        np.testing.assert_array_equal(found.rows([4999, 0, 2500]), E[[4999, 0, 2500]])
        np.testing.assert_array_equal(np.concatenate([block.copy() for _, block in found.blocks()]), E)
        np.testing.assert_array_equal(found.rows([4999, 0, 2500]), E[[4999, 0, 2500]])
        assert found.has_same_values(found)


@pytest.mark.parametrize("is_binary", [False, True])
def test_gensim_writes_what_is_read(tmp_path: Path, is_binary: bool) -> None:
    models = pytest.importorskip("gensim.models", reason="gensim writes the files")
    vectors = models.KeyedVectors(WIDTH)
    vectors.add_vectors(list(UNSPACED), table())
    path = tmp_path / ("g.bin" if is_binary else "g.txt")
    vectors.save_word2vec_format(str(path), binary=is_binary)
    opened = open_checkpoint(path)
    rows = [opened.table().labels.find(f"raw:{word}").row for word in vectors.index_to_key]
    assert rows == [*range(len(WORDS))]
    np.testing.assert_array_equal(opened.table().rows(rows), vectors.vectors)


def test_a_folder_with_one_table_needs_no_name_of_a_file(tmp_path: Path) -> None:
    for name in ("table.vec", "table.npy", "table.npz"):
        files, _ = PLAIN[name]
        assert open_checkpoint(made.write(tmp_path / name, files)).table().n_rows == len(WORDS)


def test_a_bare_word_and_one_after_a_space_are_one_word(tmp_path: Path) -> None:
    opened = open_checkpoint(made.write(tmp_path, PLAIN["glove.txt"][0]) / "glove.txt")
    assert opened.table().labels.find("·girl").row == opened.table().labels.find("girl").row


@pytest.mark.parametrize("to", ["word2vec", "npz"])
def test_what_export_writes_is_read_back_with_its_spelling(to: str, tmp_path: Path) -> None:
    folder = planted.write_checkpoint(tmp_path / "planted")
    path = tmp_path / ("out.npz" if to == "npz" else "out.txt")
    assert run(["export", str(folder), "--to", to, "-o", str(path)]) == 0
    here, there = open_checkpoint(folder).table(), open_checkpoint(path).table()
    n = len(planted.WORDS)
    assert [there.labels.text(row) for row in range(n)] == [here.labels.text(row) for row in range(n)]
    assert (there.labels.find("·girl").row, there.labels.find("girl").row) == (0, 1)
    np.testing.assert_array_equal(there.rows(range(n)), here.rows(range(n)))


def test_a_lone_array_goes_by_its_own_name_too(tmp_path: Path) -> None:
    made.write(tmp_path, {"x.npz": npz(odd=table(), bias=np.zeros(3, np.float32))})
    opened = open_checkpoint(tmp_path / "x.npz")
    assert opened.tensors.names() == ["embeddings", "bias"]
    np.testing.assert_array_equal(opened.table("input", "odd").rows([3]), table()[[3]])


def test_arrays_of_objects_are_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path(tmp_path / "sprung").touch, ())

    objects = np.array([Trap()], object)
    made.write(tmp_path, {"x.npz": npz(E=table(), words=objects)})
    opened = open_checkpoint(tmp_path / "x.npz")
    assert opened.table().n_rows == len(WORDS)
    assert any("pickle" in note for note in opened.notes)
    assert opened.vocabulary is None
    assert not (tmp_path / "sprung").exists()


def test_numbers_that_cannot_be_read_are_listed_and_refused(tmp_path: Path) -> None:
    made.write(tmp_path, {"x.npy": npy(table().astype(">f4"))})
    opened = open_checkpoint(tmp_path / "x.npy")
    assert opened.tensors["embeddings"].encoding.name == "numpy >f4"
    with pytest.raises(InspectEmbedError, match="numpy >f4"):
        opened.table().rows([0])


def test_half_precision_is_widened(tmp_path: Path) -> None:
    E = made.random_table(4, 3).astype(np.float16)
    made.write(tmp_path, {"x.npy": npy(E)})
    np.testing.assert_array_equal(
        open_checkpoint(tmp_path / "x.npy").table().rows(range(4)), E.astype(np.float32)
    )


def test_a_tokenizer_goes_before_a_list_of_a_common_name(tmp_path: Path) -> None:
    made.write(
        tmp_path,
        {"x.npy": npy(table()), "vocab.txt": LIST, "tokenizer.json": made.words("one", "two")},
    )
    assert open_checkpoint(tmp_path / "x.npy").table().labels.find("two").row == 1


def test_words_of_a_plain_table_serve_another_checkpoint(tmp_path: Path) -> None:
    made.write(tmp_path, PLAIN["glove.txt"][0])
    folder = made.write_checkpoint(tmp_path / "m", {"wte.weight": table()})
    assert open_checkpoint(folder, tmp_path / "glove.txt").table().labels.find("girl").row == 6


def test_a_model2vec_folder_is_a_table_of_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    E = made.random_table(6, 4)
    tokens = ("[PAD]", "[UNK]", "girl", "boy", "##s", "the")
    config = {
        "model_type": "model2vec", "architectures": ["StaticModel"], "tokenizer_name": "baai/bge-base-en-v1.5",
        "apply_pca": 256, "apply_zipf": True, "hidden_dim": 4, "seq_length": 1000000, "normalize": True,
    }  # fmt: skip
    vocabulary = {
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {t: n for n, t in enumerate(tokens)}},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }  # fmt: skip
    made.write(
        tmp_path,
        {
            "model.safetensors": made.safetensors({"embeddings": E}),
            "config.json": config,
            "tokenizer.json": vocabulary,
        },
    )
    opened = open_checkpoint(tmp_path)
    assert opened.table().tensor.name == "embeddings"
    assert run(["neighbors", str(tmp_path), "girl", "-k", "1", "--format", "json"]) == 0
    (near,) = json.loads(capsys.readouterr().out)["results"][0]["neighbors"]
    U = E / np.linalg.norm(E, axis=1, keepdims=True)
    scores = U @ U[2]
    scores[2] = -np.inf
    assert near["id"] == scores.argmax()


def test_a_model2vec_folder_with_weights_of_words_is_a_table_of_tokens(tmp_path: Path) -> None:
    tensors = {
        "embeddings": made.random_table(6, 4),
        "weights": np.ones(9),
        "mapping": np.zeros(9, np.int64),
    }
    folder = made.write_checkpoint(tmp_path / "m", tensors, {"model_type": "model2vec"}, tuple("abcdefghi"))
    assert open_checkpoint(folder).table().tensor.name == "embeddings"


def cut(data: bytes, n: int = 9) -> bytes:
    return data[:-n]


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        for name, data in members.items():
            out.writestr(f"{name}.npy", data)
    return file.getvalue()


def bomb() -> bytes:
    """A megabyte of zeros said to be a gigabyte of numbers."""
    file = io.BytesIO()
    header = npy(np.zeros((1, 1), np.float32))[:128].replace(
        b"(1, 1), }" + b" " * 9, b"(16384, 16384), }" + b" "
    )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("E.npy", header + bytes(1 << 20))
    return file.getvalue()


def with_shape(shape: bytes) -> bytes:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + b", }\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


HOSTILE = {
    "rows.txt": (cut(text(table()), 200), "cut short"),
    "row.txt": (text(table()).replace(b"null ", b"null x"), "Line 4"),
    "short.txt": (text(table()).replace(b"null ", b""), "Line 4"),
    "glove.txt": (text(table(), head=False) + b"word 1 2 3\n", f"Line {len(WORDS) + 1}"),
    "prose.txt": (b"Once upon a time\nthere was a girl.\n", "no table of words"),
    "empty.txt": (b"", "empty"),
    "many.txt": (b"999999999999 3\nword 1 2 3\n", "promises"),
    "none.vec": (b"0 0\n", "promises"),
    "wide.bin": (b"3 9999999\nword 1 2 3", "promises"),
    "page.txt": (b"<!DOCTYPE html><html>", "web page"),
    "pointer.vec": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git-lfs"),
    "packed.vec": (b"\x1f\x8b\x08" + bytes(40), "compressed with gzip"),
    "fast.bin": (b"\xba\x16\x4f\x2f" + bytes(64), "fastText"),
    "rows.bin": (cut(binary(table(), UNSPACED), 30), "cut short"),
    "spaceless.bin": (b"3 2\n" + bytes(5000), "cut short"),
    "cut.npy": (cut(npy(table())), "cut short"),
    "head.npy": (npy(table())[:40], "damaged"),
    "magic.npy": (b"\x93NUMPY", "damaged"),
    "version.npy": (b"\x93NUMPY\x09\x00" + bytes(200), "damaged"),
    "huge.npy": (with_shape(b"(999999999999, 999999999999)"), "no file holds so many"),
    "longer.npy": (with_shape(b"(4096, 4096)"), "cut short"),
    "minus.npy": (with_shape(b"(-1, 4)"), "damaged"),
    "code.npy": (with_shape(b"__import__('os').system('true')"), "damaged"),
    "none.npy": (b"no array at all", "no array"),
    "cut.npz": (cut(npz(E=table())), "cut short"),
    "page.npz": (b"<html>404</html>", "web page"),
    "odd.npz": (archive(E=b"nothing"), "no array"),
    "less.npz": (archive(E=npy(table())[:-8]), "do not agree"),
    "bomb.npz": (bomb(), "do not agree"),
    "rotten.npz": (
        npz(np.savez_compressed, E=table()).replace(
            npz(np.savez_compressed, E=table())[60:120], bytes(60)
        ),
        "damaged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_file_is_one_clear_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, says = HOSTILE[name]
    made.write(tmp_path, {name: data})
    status = run(["neighbors", str(tmp_path / name), "--", "id:2"])
    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    first, hint = err.splitlines()
    assert first.startswith("error: ")
    assert says in first
    assert name in first
    assert hint.startswith("hint: ")


def test_several_tables_in_a_folder_are_not_chosen_among(tmp_path: Path) -> None:
    made.write(tmp_path, {"a.vec": text(table()), "b.vec": text(table())})
    with pytest.raises(InspectEmbedError, match=r"2 tables of words: a\.vec, b\.vec"):
        open_checkpoint(tmp_path)
    made.write(tmp_path / "z", {"a.npz": npz(E=table()), "b.npz": npz(E=table())})
    with pytest.raises(InspectEmbedError, match="2 archives"):
        open_checkpoint(tmp_path / "z")


@pytest.mark.parametrize(
    "name", ["table.txt", "table.bin", "table.npy", "table.npz", "packed.npz", "glove.txt"]
)
def test_no_cut_of_a_file_ends_in_a_traceback(name: str, tmp_path: Path) -> None:
    data = PLAIN[name][0][name]
    for end in range(0, len(data), max(1, len(data) // 60)):
        made.write(tmp_path, {name: data[:end]})
        try:
            opened = open_checkpoint(tmp_path / name)
            _ = opened.vocabulary
            found = opened.table().rows(range(opened.table().n_rows))
        except InspectEmbedError:
            continue
        # A text without a count, cut between two lines or within its last number, is another text.
        assert name in ("glove.txt", "table.txt")
        assert len(found) == 1 or np.array_equal(found[:-1], table()[: len(found) - 1])


def test_a_word_list_of_another_length_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.write(tmp_path, {"x.npy": npy(table()), "x.txt": b"one\ntwo\n"})
    assert run(["info", str(tmp_path / "x.npy"), "--format", "json"]) == 0
    vocabulary = json.loads(capsys.readouterr().out)["vocabulary"]
    assert (vocabulary["tokens"], vocabulary["rows_without_token"]) == (2, len(WORDS) - 2)
