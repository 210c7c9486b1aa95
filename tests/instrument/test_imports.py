"""Being told of imports, which look as if nobody had watched."""

from __future__ import annotations

import importlib
import importlib.resources
import sys
from typing import TYPE_CHECKING

import pytest

from smdebug.instrument.imports import ImportWatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with a module in it and a file beside it."""
    folder = tmp_path / "watched_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 1\n", encoding="utf-8")
    (folder / "inner.py").write_text("from watched_package import value\n", encoding="utf-8")
    (folder / "data.txt").write_text("beside", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "watched_package"
    for name in [name for name in sys.modules if name.startswith("watched_package")]:
        del sys.modules[name]


def test_it_tells_once_and_when_all_is_there(package: str) -> None:
    told: list[tuple[str, int]] = []

    def tell(module: ModuleType) -> None:
        told.append((module.__name__, module.value))

    watch = ImportWatch({package: tell, f"{package}.inner": tell})
    watch.start()
    try:
        module = importlib.import_module(package)
        assert told == [(package, 1)]
        importlib.import_module(f"{package}.inner")
        importlib.import_module(package)
        assert told == [(package, 1), (f"{package}.inner", 1)]
    finally:
        watch.stop()
    assert type(module.__loader__).__module__.startswith(("importlib", "_frozen_importlib"))
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert importlib.resources.files(package).joinpath("data.txt").read_text() == "beside"


def test_it_tells_of_what_is_there_already(package: str) -> None:
    module = importlib.import_module(package)
    told: list[ModuleType] = []
    watch = ImportWatch({package: told.append, "no_such_package_at_all": told.append})
    watch.start()
    watch.stop()
    assert told == [module]


def test_what_is_not_there_is_missed_as_ever() -> None:
    watch = ImportWatch({"no_such_package_at_all": lambda module: None})
    watch.start()
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
            importlib.import_module("no_such_package_at_all")
    finally:
        watch.stop()
