"""The command line: contracts of JSON, streams, exit statuses, files; every command's help."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest

import inspect_embed.cli
from inspect_embed.cli import COMMANDS, run

PROGRAM = [sys.executable, "-m", "inspect_embed"]
HEAVY = ("numpy", "sklearn", "matplotlib", "tokenizers", "safetensors", "scipy")


@pytest.fixture
def ckpt(tmp_path: Path) -> str:
    return str(planted.write_checkpoint(tmp_path / "planted"))


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def call_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    status, out, err = call(capsys, *arguments, "--format", "json")
    assert (status, err) == (0, "")
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_neighbors_json_is_the_contract(capsys: pytest.CaptureFixture[str], ckpt: str) -> None:
    answer = call_json(capsys, "neighbors", ckpt, "·girl", "·red", "-k", "2")
    assert {"checkpoint", "table", "metric", "results", "notes"} <= set(answer)
    assert answer["checkpoint"] == ckpt
    assert answer["metric"] == "cosine"
    assert answer["table"] == {
        "role": "input",
        "tensor": "transformer.wte.weight",
        "shape": [planted.N_ROWS, planted.WIDTH],
        "encoding": "F32",
    }
    assert [(r["query"], r["id"], r["token"]) for r in answer["results"]] == [
        ("·girl", 0, "·girl"),
        ("·red", planted.WORDS.index("Ġred"), "·red"),
    ]
    for result in answer["results"]:
        assert [n["rank"] for n in result["neighbors"]] == [1, 2]
        assert set(result["neighbors"][0]) == {"rank", "id", "token", "score", "percentile", "z"}


def test_a_sum_of_words_has_no_id_in_json(capsys: pytest.CaptureFixture[str], ckpt: str) -> None:
    answer = call_json(capsys, "neighbors", ckpt, "--plus", "·king", "--minus", "·boy", "-k", "1")
    assert answer["results"][0]["id"] is None


def test_info_json_is_the_contract(capsys: pytest.CaptureFixture[str], ckpt: str) -> None:
    answer = call_json(capsys, "info", ckpt)
    assert (answer["family"], answer["format"], answer["tied"]) == ("gpt2", "safetensors", True)
    assert answer["position_kinds"] == ["learned"]
    tables = answer["tables"]
    assert set(tables) == {"input", "output", "position", "candidates"}
    assert tables["input"] == {
        "tensor": "transformer.wte.weight",
        "shape": [planted.N_ROWS, planted.WIDTH],
        "encoding": "F32",
    }
    assert tables["output"] is None
    assert tables["candidates"] == []
    assert {"tensor", "shape", "encoding"} <= set(tables["position"][0])
    assert {k: answer["vocabulary"][k] for k in ("tokens", "rows_without_token", "tokens_without_row")} == {
        "tokens": len(planted.WORDS),
        "rows_without_token": 3,
        "tokens_without_row": 0,
    }


def test_similarity_json_is_the_contract_and_undefined_is_null(
    capsys: pytest.CaptureFixture[str], ckpt: str
) -> None:
    answer = call_json(capsys, "similarity", ckpt, "·girl", "·zero")
    (pair,) = answer["pairs"]
    assert set(pair) == {"a", "b", "cosine", "dot", "euclidean"}
    assert pair["a"] == {"id": 0, "token": "·girl"}
    assert pair["cosine"] is None
    assert pair["dot"] == 0


def test_text_never_shows_how_numbers_are_held(capsys: pytest.CaptureFixture[str], ckpt: str) -> None:
    for arguments in (
        ("neighbors", ckpt, "·girl"),
        ("similarity", ckpt, "·girl", "·zero"),
        ("vector", ckpt, "·nan"),
    ):
        status, out, _ = call(capsys, *arguments)
        assert status == 0
        assert "np." not in out
        assert "float" not in out


def test_undefined_is_a_word_in_text_and_an_empty_cell_in_csv(
    capsys: pytest.CaptureFixture[str], ckpt: str
) -> None:
    assert "undefined" in call(capsys, "similarity", ckpt, "·girl", "·zero")[1]
    lines = call(capsys, "similarity", ckpt, "·girl", "·zero", "--format", "csv")[1].splitlines()
    assert lines[0] == "a_id,a,b_id,b,cosine,dot,euclidean"
    assert lines[1].split(",")[4] == ""


@pytest.mark.parametrize("suffix", [".txt", ".json", ".csv", ".md"])
def test_a_file_holds_what_the_stream_would(
    capsys: pytest.CaptureFixture[str], ckpt: str, tmp_path: Path, suffix: str
) -> None:
    names = {".txt": "text", ".json": "json", ".csv": "csv", ".md": "markdown"}
    path = tmp_path / f"answer{suffix}"
    assert call(capsys, "neighbors", ckpt, "·girl", "-o", str(path)) == (0, "", "")
    out = call(capsys, "neighbors", ckpt, "·girl", "--format", names[suffix])[1]
    assert path.read_text(encoding="utf-8") == out
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([path.name, "planted"])


def test_an_unknown_suffix_is_a_usage_error_that_lists_the_known_ones(
    capsys: pytest.CaptureFixture[str], ckpt: str, tmp_path: Path
) -> None:
    status, _, err = call(capsys, "neighbors", ckpt, "·girl", "-o", str(tmp_path / "answer.doc"))
    assert status == 2
    assert ".doc" in err
    assert ".csv" in err


def test_an_answer_that_cannot_be_written_leaves_what_was_there(
    capsys: pytest.CaptureFixture[str], ckpt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answer.csv"
    path.write_text("precious", encoding="utf-8")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    status, _, err = call(capsys, "neighbors", ckpt, "·girl", "-o", str(path))
    assert status == 1
    assert "No space left" in err
    assert path.read_text(encoding="utf-8") == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answer.csv", "planted"]


@pytest.mark.parametrize("target", ["nowhere/answer.csv", "."])
def test_a_place_that_cannot_be_written_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], ckpt: str, tmp_path: Path, target: str
) -> None:
    status, _, err = call(capsys, "neighbors", ckpt, "·girl", "-o", str(tmp_path / target), "--format", "csv")
    assert status == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["neighbors", "CKPT", "·nothing"], 1, "·nothing"),
        (["neighbors", "CKPT", "·zero"], 1, "no direction"),
        (["neighbors", "CKPT", "id:99"], 1, "99"),
        (["neighbors", "CKPT", ""], 1, "empty"),
        (["neighbors", "CKPT"], 2, "word"),
        (["neighbors", "CKPT", "·girl", "-k", "0"], 2, "0"),
        (["neighbors", "CKPT", "·girl", "-k", "-1"], 2, "-1"),
        (["neighbors", "CKPT", "·girl", "--metric", "taxicab"], 2, "taxicab"),
        (["neighbors", "CKPT", "·girl", "--tensor", "nope"], 1, "nope"),
        (["neighbors", "CKPT", "·girl", "--tokenizer", "/no/such"], 1, "/no/such"),
        (["neighbors", "/no/such/folder", "·girl"], 1, "/no/such/folder"),
        (["similarity", "CKPT", "·girl"], 2, "two words"),
        (["vector", "CKPT"], 2, "word"),
        (["embed", "CKPT"], 2, "TEXT"),
        (["embed", "CKPT", "girl" + " girl" * 7], 1, "7 positions"),
        (["tokens", "CKPT", "--grep", "("], 1, "("),
        (["tokens", "CKPT", "--id", "99"], 1, "99"),
        (["tokens", "CKPT", "--words-file", "/no/such"], 1, "/no/such"),
        (["tokens", "CKPT", "·girl", "--grep", "x"], 2, "--grep"),
        (["tokens", "CKPT", "--grep", "xyzzy"], 1, "xyzzy"),
        (["tokens", "CKPT", "--text", ""], 1, "empty"),
        (["tokens", "CKPT", "id:99"], 1, "99"),
        (["frobnicate", "CKPT"], 2, "frobnicate"),
        (["neighbors"], 2, "CKPT"),
    ],
)
def test_bad_input_is_one_clear_message_and_a_status(
    capsys: pytest.CaptureFixture[str], ckpt: str, arguments: list[str], status: int, says: str
) -> None:
    arguments = [ckpt if argument == "CKPT" else argument for argument in arguments]
    found, out, err = call(capsys, *arguments)
    assert found == status
    assert out == ""
    assert says in err
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_a_hub_name_that_is_no_path_names_the_cache_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    status, _, err = call(capsys, "info", "org/name")
    assert status == 1
    assert str(tmp_path / "models--org--name") in err


def test_words_come_from_a_file_too_with_their_leading_space(
    capsys: pytest.CaptureFixture[str], ckpt: str, tmp_path: Path
) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeff·girl\r\n\n girl\nid:3\n".encode())
    answer = call_json(capsys, "tokens", ckpt, "·red", "--words-file", str(path))
    assert [word["tokens"][0]["id"] for word in answer["words"]] == [planted.WORDS.index("Ġred"), 0, 0, 3]


def test_words_come_from_standard_input(ckpt: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "tokens", ckpt, "--words-file", "-", "--format", "csv"],
        input="·girl\n".encode(),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().splitlines()[1] == "·girl,0,·girl,Ġgirl,word-start"


def test_after_two_dashes_a_word_may_begin_with_a_dash(capsys: pytest.CaptureFixture[str], ckpt: str) -> None:
    status, _, err = call(capsys, "neighbors", ckpt, "--", "-k")
    assert status == 1
    assert "'-k'" in err
    assert call(capsys, "neighbors", ckpt, "-k", "1", "--", "id:0")[0] == 0


def test_a_file_cut_short_warns_on_stderr_once_and_its_data_are_refused(
    capsys: pytest.CaptureFixture[str], ckpt: str
) -> None:
    path = Path(ckpt) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    status, out, err = call(capsys, "info", ckpt, "--format", "json")
    assert status == 0
    assert json.loads(out)["tables"]["input"]["shape"] == [planted.N_ROWS, planted.WIDTH]
    assert err.count("warning:") == 1
    assert "cut short" in err
    status, out, err = call(capsys, "neighbors", ckpt, "·girl")
    assert (status, out) == (1, "")
    assert "--allow-partial" in err
    # The tensor at the end of the file is lost, the other one can be had.
    answers = [
        call(capsys, "vector", ckpt, word, "--table", table, "--allow-partial")[0]
        for table, word in (("input", "·girl"), ("position", "7"), ("input", "id:26"))
    ]
    assert sorted(answers) == [0, 0, 1]


def run_with(environment: dict[str, str], *arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, *arguments], env={**os.environ, **environment}, capture_output=True, check=False
    )


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_no_stream_encoding_stops_an_answer(ckpt: str, encoding: str) -> None:
    text = json.loads((Path(ckpt) / "tokenizer.json").read_text(encoding="utf-8"))
    text["model"]["vocab"] = {("你好" if k == "Ġred" else k): v for k, v in text["model"]["vocab"].items()}
    text["model"]["merges"] = []
    (Path(ckpt) / "tokenizer.json").write_text(json.dumps(text), encoding="utf-8")
    for format_ in ("text", "json", "csv", "markdown"):
        done = run_with(
            {"PYTHONIOENCODING": encoding}, "neighbors", ckpt, "id:0", "-k", "50", "--format", format_
        )
        assert (done.returncode, done.stderr) == (0, b"")
        out = done.stdout.decode(encoding)
        if format_ == "json":
            labels = [n["token"] for n in json.loads(out)["results"][0]["neighbors"]]
            assert "·king" in labels
        else:
            assert ("·king" if encoding != "ascii" else r"\x20king") in out


def test_an_argument_survives_a_locale_that_cannot_read_it(ckpt: str) -> None:
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for word in ("Ġgirl", "·girl"):
        done = run_with(environment, "neighbors", ckpt, word.encode(), "-k", "1")
        assert done.returncode == 0, done.stderr
        assert b"(id 0)" in done.stdout


def test_what_ascii_shows_can_be_typed_back(capsys: pytest.CaptureFixture[str], ckpt: str) -> None:
    out = call(capsys, "tokens", ckpt, "·girl", "--ascii", "--format", "csv")[1]
    shown = out.splitlines()[1].split(",")[2]
    assert out.isascii()
    assert call_json(capsys, "tokens", ckpt, shown)["words"][0]["tokens"][0]["id"] == 0


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    vocabulary = {f"Ġword{n}": n for n in range(20_000)}
    text = {**planted.tokenizer(), "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(text), encoding="utf-8")
    from safetensors.numpy import save_file

    save_file({"wte.weight": np.zeros((4, 2), np.float32)}, folder / "model.safetensors")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*PROGRAM, "tokens", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_tokens_that_look_like_markup_stay_as_they_are(capsys: pytest.CaptureFixture[str], ckpt: str) -> None:
    marks = ("[/INST]", "[unused1]", "[bold]", ":smile:", "[/]", "*", "$$", "<b>", "|", "`x`")
    text = json.loads((Path(ckpt) / "tokenizer.json").read_text(encoding="utf-8"))
    text["model"] = {"type": "BPE", "vocab": {mark: n for n, mark in enumerate(marks)}, "merges": []}
    (Path(ckpt) / "tokenizer.json").write_text(json.dumps(text), encoding="utf-8")
    out = call(capsys, "tokens", ckpt)[1]
    assert [line.split()[1] for line in out.splitlines()[1:]] == list(marks)
    assert [call_json(capsys, "tokens", ckpt, m)["words"][0]["tokens"][0]["id"] for m in marks] == list(
        range(10)
    )
    markdown = call(capsys, "tokens", ckpt, "--format", "markdown")[1]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in markdown.splitlines())


def test_arguments_are_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setattr(inspect_embed.cli.cli, "main", lambda arguments, **options: seen.update(options))
    assert run(["tokens", "CKPT", "*"]) == 0
    assert seen["windows_expand_args"] is False


@pytest.mark.parametrize("command", [None, *(name for name, _ in COMMANDS)])
def test_help_imports_nothing_heavy_and_shows_an_example(command: str | None) -> None:
    arguments = [command, "--help"] if command else ["--help"]
    script = (
        "import sys\nfrom inspect_embed.cli import run\n"
        f"status = run({arguments!r})\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules], status)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: [] 0"
    assert re.search(rf"(?m)^ +(Example: +)?inspect-embed {command or 'neighbors'} ", done.stdout)


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = f"import sys, inspect_embed\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    assert sorted(inspect_embed.__all__) == list(inspect_embed.__all__)
    for name in inspect_embed.__all__:
        assert getattr(inspect_embed, name).__doc__, name
    with pytest.raises(AttributeError):
        _ = inspect_embed.nothing_of_the_kind


def test_every_command_takes_the_common_options() -> None:
    for name, _ in COMMANDS:
        command = import_module(f"inspect_embed.cli.{name}").command
        options = {flag for parameter in command.params for flag in parameter.opts}
        assert {"--format", "-o", "--tensor", "--tokenizer", "--ascii"} <= options, name
        if any(parameter.name == "words" for parameter in command.params):
            assert "--words-file" in options, name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "--version")
    assert status == 0
    assert inspect_embed.__version__ in out
