"""docs/guarantees.md names every promise, and tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.faults.tally import PROMISES

HERE = Path(__file__).parent
PAGE = (HERE.parent.parent / "docs" / "guarantees.md").read_text(encoding="utf-8")


def sections() -> dict[str, str]:
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def functions_of(module: str) -> set[str]:
    tree = ast.parse((HERE / module).read_text(encoding="utf-8"))
    return {
        f"{module}::{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def named(text: str) -> set[str]:
    return set(re.findall(r"`(test_\w+\.py::test_\w+)`", text))


def test_every_promise_has_a_section() -> None:
    assert list(sections()) == [f"{number}. {title}" for number, title in PROMISES.items()]


@pytest.mark.parametrize("section", sections())
def test_every_promise_names_its_tests(section: str) -> None:
    assert named(sections()[section])


def test_page_and_tests_refer_to_each_other() -> None:
    modules = [path.name for path in HERE.glob("test_*.py") if path.name != Path(__file__).name]
    there = {test for module in modules for test in functions_of(module)}
    assert named(PAGE) == there
