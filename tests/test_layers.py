"""The layers of the architecture, enforced: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "smdebug"

LEAVES = {"_version", "addresses", "exceptions", "histogram", "markup", "mode_keys", "reductions"}
# What each layer may import beside the leaves and itself.
LAYERS = {
    "config": set(),
    "storage": set(),
    "hook": {"config", "storage"},
    "mxnet": {"hook", "config", "storage"},
    "pytorch": {"hook", "config", "storage"},
    "tensorflow": {"hook", "config", "storage"},
    "xgboost": {"hook", "config", "storage"},
    "trials": {"config", "storage"},
    "analysis": {"trials"},
    "rules": {"config", "storage", "trials", "analysis"},
    "core": {"config", "storage", "trials", "analysis"},
    "instrument": {"hook", "config", "pytorch", "tensorflow", "xgboost", "mxnet"},
    "cli": {"instrument", "config", "storage", "trials", "analysis", "rules"},
    "testing": {"config", "storage", "trials", "rules", "pytorch"},
    "": {"config", "trials", "instrument", "cli"},
}
# An adapter offers create_trial to scripts that import nothing else.
EXCEPTIONS = {
    "mxnet/__init__.py": {"trials"},
    "pytorch/__init__.py": {"trials"},
    "tensorflow/__init__.py": {"trials"},
    "xgboost/__init__.py": {"trials"},
    # What the demo trains; everything else of it knows only the run.
    "cli/demo/train.py": {"pytorch"},
    # Rules over the run that a hook is writing.
    "hook/rules/rule_thread.py": {"rules", "trials"},
}
# Leaves know each other, in this order and no other.
LEAF_IMPORTS = {
    "addresses": {"exceptions"},
    "exceptions": {"mode_keys"},
    "histogram": {"reductions"},
    "mode_keys": {"exceptions"},
    "reductions": {"exceptions"},
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The parts of `smdebug` that a module imports, at the top or later."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "smdebug":
                names = [f"smdebug.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("smdebug.")}
    return found


def layer_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_layers(path: Path) -> None:
    layer = layer_of(path)
    if not layer and path.stem in LEAVES:
        allowed = LEAF_IMPORTS.get(path.stem, set())
    else:
        assert layer in LAYERS, f"{layer} is not in the table of layers"
        allowed = LAYERS[layer] | LEAVES | {layer}
        allowed |= EXCEPTIONS.get(path.relative_to(SOURCE).as_posix(), set())
    assert imported(path) <= allowed


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_one_module_reads_the_environment(path: Path) -> None:
    if path == SOURCE / "config" / "environment.py":
        return
    text = path.read_text(encoding="utf-8")
    assert "environ" not in text.replace("environment", "")
    assert "getenv" not in text


def test_no_module_is_called_utils() -> None:
    # Paths of smdebug 1.0, which scripts import, are the exceptions; nothing of ours is in them
    # but what those scripts use.
    assert [path.relative_to(SOURCE).as_posix() for path in modules() if path.stem == "utils"] == [
        "analysis/utils.py",
        "core/utils.py",
    ]


def test_long_modules_give_a_reason() -> None:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > 400:
            assert "lines because" in text or "more methods than most because" in text, path
