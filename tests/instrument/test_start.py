"""Frameworks are instrumented when they are imported, and the import leaves no trace on them."""

from __future__ import annotations

import importlib
import importlib.resources
import sys
import uuid
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from smdebug.exceptions import SMDebugValueError
from smdebug.instrument import start
from smdebug.instrument.start import instrument, instrument_from_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from smdebug.instrument.job import InstrumentedJob

    Calls = list[tuple[InstrumentedJob, str, int]]

CONFIG = {"LocalPath": "run"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package that is a framework here; unique, as import hooks stay registered."""
    name = f"framework_{uuid.uuid4().hex}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 1\n", encoding="utf-8")
    (folder / "inner.py").write_text(f"from {name} import value\n", encoding="utf-8")
    (folder / "data.txt").write_text("resource", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(start, "FRAMEWORKS", {name: "fake", f"{name}.inner": "fake"})
    yield name
    for each in [each for each in sys.modules if each.startswith(name)]:
        del sys.modules[each]


@pytest.fixture
def instrumented(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The job, name and value of every package that was instrumented."""
    calls: Calls = []

    def record(job: InstrumentedJob, package: ModuleType) -> None:
        calls.append((job, package.__name__, package.value))

    fake = ModuleType("fake")
    monkeypatch.setattr(fake, "instrument", record, raising=False)
    monkeypatch.setitem(sys.modules, "smdebug.instrument.fake", fake)
    return calls


def test_a_package_is_instrumented_once_when_its_import_is_complete(
    package: str, instrumented: Calls
) -> None:
    job = instrument(CONFIG)
    assert instrumented == []
    importlib.import_module(package)
    assert instrumented == [(job, package, 1)]
    importlib.import_module(f"{package}.inner")
    importlib.import_module(package)
    assert instrumented == [(job, package, 1), (job, f"{package}.inner", 1)]


def test_an_imported_package_is_instrumented_at_once(package: str, instrumented: Calls) -> None:
    importlib.import_module(package)
    job = instrument(CONFIG)
    assert instrumented == [(job, package, 1)]


@pytest.mark.usefixtures("instrumented")
def test_an_instrumented_package_keeps_its_loader(package: str) -> None:
    instrument(CONFIG)
    module = importlib.import_module(package)
    assert type(module.__loader__).__module__.startswith(("importlib", "_frozen_importlib"))
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert importlib.resources.files(package).joinpath("data.txt").read_text() == "resource"


def test_a_missing_package_raises_the_usual_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "FRAMEWORKS", {"no_such_package_at_all": "fake"})
    instrument(CONFIG)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        importlib.import_module("no_such_package_at_all")


def test_an_invalid_config_is_an_error_before_anything_is_instrumented(
    package: str, instrumented: Calls
) -> None:
    config = {"HookParameters": {"save_interval": "often"}}
    with pytest.raises(SMDebugValueError, match=r"job\.json"):
        instrument(config, "job.json")
    importlib.import_module(package)
    assert instrumented == []


def test_nothing_is_instrumented_without_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMDEBUG_CONFIG_FILE_PATH", raising=False)
    assert instrument_from_environment() is None
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", "no/such/file.json")
    with pytest.raises(FileNotFoundError):
        instrument_from_environment()
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert instrument_from_environment() is None
