"""The README's commands do what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from inspect_embed.cli import COMMANDS, run

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "checkpoints/toy/README.md", "checkpoints/bigram/README.md")
BLOCK = re.compile(r"^```console\n\$ ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d,]*\.\d+")


def examples() -> list[tuple[str, str, str]]:
    found = []
    for name in DOCUMENTS:
        path = ROOT / name
        if path.exists():
            found += [
                (name, command, shown) for command, shown in BLOCK.findall(path.read_text(encoding="utf-8"))
            ]
    return found


@pytest.mark.parametrize(("document", "command", "shown"), examples(), ids=lambda value: str(value)[:60])
def test_an_example_prints_what_the_document_shows(
    document: str,
    command: str,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    assert program == "inspect-embed"
    written = [Path(argument) for argument in arguments if argument.startswith("docs/figures/")]
    arguments = [str(tmp_path / Path(a).name) if Path(a) in written else a for a in arguments]
    assert run(arguments) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    for path in written:
        assert path.exists(), f"{path} is not shipped"
        drawn = (tmp_path / path.name).read_bytes()
        assert drawn[:8] == path.read_bytes()[:8]
        assert len(drawn) > path.stat().st_size / 2
    out = out.replace(str(tmp_path), "docs/figures")
    # Words to the letter; numbers as far as two machines' arithmetic agrees on the last digit shown.
    assert NUMBER.sub("#", out).split() == NUMBER.sub("#", shown).split(), document
    ours = [float(number.replace(",", "")) for number in NUMBER.findall(out)]
    theirs = [float(number.replace(",", "")) for number in NUMBER.findall(shown)]
    digits = [len(number.partition(".")[2]) for number in NUMBER.findall(shown)]
    for mine, yours, places in zip(ours, theirs, digits, strict=True):
        assert mine == pytest.approx(yours, abs=1.01 * 10**-places)


def test_every_command_has_an_example_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, _ in COMMANDS:
        assert re.search(rf"^\$ inspect-embed {name} ", text, re.MULTILINE), name


def test_every_figure_that_the_readme_shows_is_shipped() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((docs/[^)]+)\)", text):
        assert (ROOT / target).is_file(), target


def test_the_two_commands_stand_in_the_readme_and_ci_runs_the_second() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^```sh\n([^\n]+)\n```$", text, re.MULTILINE)[:2]
    assert first.startswith("python3 -m venv .venv && .venv/bin/pip install")
    assert first.endswith("inspect-embed neighbors checkpoints/toy ·girl")
    assert second == ".venv/bin/pytest"
    assert "README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_python_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (ROOT / "checkpoints" / "toy").exists():
        pytest.skip("checkpoints/toy is not here")
    monkeypatch.chdir(ROOT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5


def test_the_documented_examples_of_the_package_run(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (ROOT / "checkpoints" / "toy").exists():
        pytest.skip("checkpoints/toy is not here")
    import doctest
    from importlib import import_module

    import inspect_embed

    monkeypatch.chdir(ROOT)
    names = {name: getattr(inspect_embed, name) for name in inspect_embed.__all__}
    for name in inspect_embed.__all__:
        entry = names[name]
        module = import_module(entry.__module__)
        tests = [
            test
            for test in doctest.DocTestFinder().find(entry, name, module, globs={**names})
            if test.examples
        ]
        if callable(entry) and not isinstance(entry, type):
            assert tests, f"{name} has no example"
        for test in tests:
            result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
            assert result.failed == 0, name
