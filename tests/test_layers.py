"""Arrows point one way: a file imports only from layers above its own, and each folder is held against its tuple."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import inspect_embed

PACKAGE = Path(inspect_embed.__file__).parent

ORDER = (
    "errors", "spelling", "json_text", "numerics", "storage", "encodings", "formats", "schemes", "families", "parts", "vocabularies",
    "table", "query", "checkpoint", "report", "analyses", "outputs", "cli",
)  # fmt: skip
"""The layers from top to bottom: a new one is one name in its place."""

ABOVE_THEIR_LAYER = {
    "analyses": (),
    "cli": ("options",),
}
"""Packages whose files stand side by side and know nothing of each other, and the files in them that the rest may use."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name not in ("", "__main__"):
            yield name, path


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Modules of ours that a file imports, anywhere in it, without the package's own name; and the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import, whose layer cannot be seen"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            # A package may import its own modules by the names in its tuple, and the cli those of the outputs.
            argument = ast.unparse(node.args[0])
            names = ["inspect_embed.outputs"] if "inspect_embed.outputs" in argument else []
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == "inspect_embed" and rest:
                yield rest, node.lineno


def layer(name: str) -> int:
    first = name.split(".")[0]
    assert first in ORDER, f"{first} has no place in the order of layers: add it to ORDER"
    return ORDER.index(first)


def wrong_way(name: str, imported: str) -> bool:
    if imported in ("__version__",):
        return False
    here, there = layer(name), layer(imported)
    if here != there:
        return there > here
    package, _, own = name.partition(".")
    if package not in ABOVE_THEIR_LAYER or not own:
        return False
    other = imported.split(".")[1] if "." in imported else ""
    is_module = (PACKAGE / package / f"{other}.py").exists()
    is_part = own.startswith("_") or other.startswith("_")  # a file that another one was split into
    return is_module and other != own and other not in ABOVE_THEIR_LAYER[package] and not is_part


def test_no_import_points_down_or_to_a_sister_that_must_not_be_known() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {imported}"
        for name, path in modules()
        for imported, line in imports(path)
        if wrong_way(name, imported)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("errors", "spelling"),
        ("storage.local", "formats.TensorEntry"),
        ("numerics.search", "table"),
        ("table", "query"),
        ("query", "checkpoint"),
        ("report", "outputs.text"),
        ("analyses.vector", "analyses.neighbors.neighbors"),
        ("cli.vector", "cli.neighbors.command"),
        ("outputs.csv", "cli"),
    ],
)
def test_a_wrong_import_would_be_seen(name: str, imported: str) -> None:
    assert wrong_way(name, imported)


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("formats.safetensors", "formats.TensorEntry"),
        ("query", "table.EmbeddingTable"),
        ("analyses.neighbors", "numerics.search"),
        ("cli.vector", "cli.options.write_answer"),
        ("cli.options", "outputs.FIGURES"),
    ],
)
def test_a_right_import_is_let_pass(name: str, imported: str) -> None:
    assert not wrong_way(name, imported)


def test_every_file_is_looked_at() -> None:
    found = dict(modules())
    assert {"errors", "formats.safetensors", "formats", "analyses.neighbors", "cli.options"} <= set(found)
    assert ("formats.TensorEntry", 1) in {(name, 1) for name, _ in imports(found["formats.safetensors"])}


PLUGINS = {
    "storage": ("LOCATIONS",),
    "formats": ("FORMATS",),
    "schemes": ("SCHEMES",),
    "vocabularies": ("VOCABULARIES",),
    "analyses": ("ANALYSES",),
    "outputs": ("OUTPUTS", "FIGURES", "EXPORTS"),
    "cli": ("COMMANDS",),
}
NOT_PLUGINS = {"cli": {"options"}}


@pytest.mark.parametrize("package", PLUGINS)
def test_the_tuple_of_a_package_names_every_file_in_its_folder(package: str) -> None:
    module = importlib.import_module(f"inspect_embed.{package}")
    named: list[str] = []
    for attribute in PLUGINS[package]:
        named += [item if isinstance(item, str) else item[0] for item in getattr(module, attribute)]
    there = {
        path.stem
        for path in (PACKAGE / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    there = {name for name in there if not name.startswith("_")} - NOT_PLUGINS.get(package, set())
    assert sorted(named) == sorted(there)


@pytest.mark.parametrize("package", PLUGINS)
def test_every_file_that_a_tuple_names_can_be_imported(package: str) -> None:
    module = importlib.import_module(f"inspect_embed.{package}")
    for attribute in PLUGINS[package]:
        for item in getattr(module, attribute):
            importlib.import_module(f"inspect_embed.{package}.{item if isinstance(item, str) else item[0]}")


def test_every_output_offers_what_the_commands_call() -> None:
    from inspect_embed.outputs import FIGURES, OUTPUTS

    suffixes: list[str] = []
    for name in (*OUTPUTS, *FIGURES):
        module = importlib.import_module(f"inspect_embed.outputs.{name}")
        assert callable(module.render)
        suffixes += module.SUFFIXES
    assert len(suffixes) == len(set(suffixes)), "two formats claim one suffix"
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes)


def test_every_command_is_the_command_of_its_name() -> None:
    from inspect_embed.cli import COMMANDS

    for name, _ in COMMANDS:
        command = importlib.import_module(f"inspect_embed.cli.{name}").command
        assert command.name == name


def test_what_the_package_offers_is_there_and_is_listed_once() -> None:
    assert len(set(inspect_embed.__all__)) == len(inspect_embed.__all__)
    for name in inspect_embed.__all__:
        assert getattr(inspect_embed, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = inspect_embed.no_such_name


def test_no_file_imports_a_heavy_package_at_its_top() -> None:
    """`numerics/` is the one place that may import numpy when it is itself imported."""
    heavy = {"numpy", "sklearn", "matplotlib", "tokenizers", "safetensors", "scipy"}
    wrong: list[str] = []
    for name, path in modules():
        if layer(name) == ORDER.index("numerics"):
            continue
        for node in ast.parse(
            path.read_text(encoding="utf-8")
        ).body:  # not inside functions, nor TYPE_CHECKING
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{name} imports {found}" for found in names if found.split(".")[0] in heavy]
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("inspect_embed.numerics"):
                wrong.append(f"{name} imports {node.module}, which imports numpy")
    assert not wrong, "\n".join(wrong)
