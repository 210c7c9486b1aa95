"""ARCHITECTURE.md and docs/decisions name files and functions that exist."""

from __future__ import annotations

import ast
import re

import pytest
from tests.pages import DOCS, ROOT, text_of
from tests.test_layers import EXCEPTIONS, LAYERS, LEAVES

SOURCE = ROOT / "src" / "smdebug"
PAGE = "ARCHITECTURE.md"
PAGES = [PAGE, *(f"docs/decisions/{path.name}" for path in sorted(DOCS.glob("decisions/*.md")))]
# What the path of a file may be relative to.
ROOTS = (ROOT, SOURCE, SOURCE / "tensorflow")


def named_functions(page: str) -> list[str]:
    """The functions of a page, as `file.py:Class.method`."""
    return re.findall(r"`([\w/]+\.py:[\w.]+)`", text_of(page))


def functions_of(path: str) -> set[str]:
    """The qualified names of the functions in a file, without `<locals>`."""
    found = set()

    def visit(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                found.add(".".join((*names, child.name)))
                visit(child, (*names, child.name))
            else:
                visit(child, names)

    visit(ast.parse((SOURCE / path).read_text(encoding="utf-8")), ())
    return found


def test_the_page_is_short() -> None:
    assert len(text_of(PAGE).splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    for path in re.findall(r"`([\w.]+/[\w./]*)(?::[\w.]+)?`", text_of(page)):
        assert any((root / path).exists() for root in ROOTS), f"{page} names {path}"


@pytest.mark.parametrize("name", named_functions(PAGE))
def test_functions_exist(name: str) -> None:
    path, _, function = name.partition(":")
    assert function in functions_of(path)


def test_the_list_of_functions_is_counted() -> None:
    steps = re.findall(r"^(\d+)\. `([^:`]+):", text_of(PAGE), re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    counted = f"{len(steps)} functions in {len({path for _, path in steps})} modules"
    assert counted in text_of(PAGE)


def test_the_table_of_layers_is_complete() -> None:
    section = text_of(PAGE).partition("## Layers")[2].partition("\n## ")[0]
    table = {}
    for left, right in re.findall(r"^\| (`.*) \| (.*) \|$", section, re.MULTILINE):
        allowed = set(re.findall(r"`(\w+)`", right.partition(";")[0]))
        if "the adapters" in right:
            allowed |= {"pytorch", "tensorflow", "mxnet", "xgboost"}
        table.update(dict.fromkeys(re.findall(r"`(\w+)`", left), allowed))
    assert table == {layer: allowed for layer, allowed in LAYERS.items() if layer}
    for path in EXCEPTIONS:
        assert f"`{path}`" in section or f"`{path.partition('/')[2]}`" in section


def test_every_folder_is_listed() -> None:
    section = text_of(PAGE).partition("## Folders")[2].partition("\n## ")[0]
    for layer in LAYERS:
        assert not layer or f"`{layer}/" in section, layer
    assert {path.stem for path in SOURCE.glob("*.py")} >= LEAVES


def test_every_page_of_decisions_is_linked() -> None:
    for page in PAGES[1:]:
        assert f"({page})" in text_of(PAGE)
