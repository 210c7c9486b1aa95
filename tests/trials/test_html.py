"""What a notebook shows: complete, escaped, and never an exception."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug import create_trial
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.findings import Finding, write_findings
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer_lock import WriterLock
from smdebug.testing import make_run
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED_TAGS = {
    "div", "span", "strong", "b", "table", "tbody", "tr", "td",
    "svg", "title", "polyline", "line", "circle",
}  # fmt: skip
HOSTILE = '</title></svg><script>alert(1)</script><img src=x onerror="alert(2)">"\'&loss'


class Page(HTMLParser):
    """The elements, attributes and texts of a page; raises when it is not well formed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def check(self) -> None:
        assert set(self.tags) <= ALLOWED_TAGS
        for name, value in self.attributes:
            assert not name.startswith("on")
            assert name not in ("href", "src", "id", "class")
            if name == "style":
                assert "url(" not in value
                assert not re.search(r"background|(?<!-)color\s*:\s*(?!#ef4444)", value)


def shown(thing: Any) -> Page:
    page = Page(thing._repr_html_())
    page.check()
    return page


def polylines(page: Page) -> list[list[tuple[float, float]]]:
    found = [value for name, value in page.attributes if name == "points"]
    return [[tuple(map(float, each.split(","))) for each in points.split()] for points in found]  # type: ignore[misc]


def batch(worker: str, step: int) -> StepBatch:
    mode = ModeKeys.EVAL if step >= 8 else ModeKeys.TRAIN
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    weight[0, 0] = np.nan
    entries = [
        Entry("loss", np.float32(step)),
        Entry("fc.weight", weight),
        Entry("gradient/fc.weight", reductions={"l2": 1.0 / (step + 1), "nans": 0.0},
              shape=(3, 4), dtype="float32"),
    ]  # fmt: skip
    return StepBatch(step, mode, step % 8, entries)


def test_trial() -> None:
    store = MemoryStore()
    make_run(store, range(10), ("worker_0", "worker_1"), data=batch)
    write_findings(store, [Finding("LossSpike", 7, "it jumps")])
    page = shown(Trial("somewhere/made", store=store))
    for expected in (
        "Trial made", "finished", "somewhere/made", "10, from 0 to 9", "(TRAIN 8, EVAL 2)",
        "2: worker_0, worker_1", "losses", "weights", "LossSpike", ", step 7: it jumps",
        "last 7, lowest 0, highest 7", "3 tensors", "gradient/fc.weight", "3 x 4, float32",
        "number, float32",
    ):  # fmt: skip
        assert expected in page.text, expected
    train, evaluation = polylines(page)
    # A loss that grows evenly is a straight line upwards, and upwards is a smaller number.
    assert len(train) == 8
    assert len(evaluation) == 2
    heights = np.array(train)[:, 1]
    np.testing.assert_allclose(np.diff(heights), -28 / 7, atol=0.11)


def test_tensors() -> None:
    store = MemoryStore()
    make_run(store, range(10), data=batch)
    trial = Trial("made", store=store)
    page = shown(trial.tensor("fc.weight"))
    for expected in (
        "Tensor fc.weight", "made", "10, from 0 to 9", "3 x 4, float32", "only raw values",
        "min 1, max 11, mean 6, std 3.16, 1 NaN", "at step 9",
    ):  # fmt: skip
        assert expected in page.text, expected
    page = shown(trial.tensor("gradient/fc.weight"))
    for expected in ("l2 0.1, nans 0", "not saved", "l2 of gradient/fc.weight, TRAIN"):
        assert expected in page.text, expected
    assert [len(points) for points in polylines(page)] == [8, 2]
    assert "last value 9.0  at step 9" in shown(trial.tensor("loss")).text


def test_live_and_empty() -> None:
    store = MemoryStore()
    make_run(store, [], end=False)
    page = shown(Trial("made", store=store))
    assert "live" in page.text
    assert "0 tensors" in page.text


def test_a_job_that_is_gone(tmp_path: Path) -> None:
    make_run(tmp_path / "run", end=False)
    # As a process that was killed leaves it: a lock that nobody holds.
    claim = WriterLock(LocalStore(tmp_path / "run"), "worker_0")
    claim.take()
    trial = create_trial(str(tmp_path / "run"))
    assert "live" in shown(trial).text
    claim.release()
    assert "stopped" in shown(trial).text


def test_numbers_that_are_not_finite() -> None:
    values = [1.0, 2.0, np.nan, np.inf, 3.0, -np.inf, 4.0, 5.0]

    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("loss", np.array(values[step]))])

    store = MemoryStore()
    make_run(store, range(8), data=data)
    page = shown(Trial("made", store=store))
    assert [len(points) for points in polylines(page)] == [2, 2]
    assert page.tags.count("line") == 3
    assert page.tags.count("circle") == 1
    assert "3 NaN or Inf" in page.text


def test_a_long_curve_keeps_what_stands_out() -> None:
    values = np.sin(np.arange(5000) / 300)
    values[1234], values[4321] = 50.0, np.nan

    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("loss", np.array(values[step]))])

    store = MemoryStore()
    make_run(store, range(5000), data=data)
    page = shown(Trial("made", store=store))
    points = [point for line in polylines(page) for point in line]
    assert len(points) < 400
    assert sum(y < 10 for _, y in points) == 1
    assert page.tags.count("line") == 1


def test_names_are_other_peoples() -> None:
    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry(HOSTILE, np.array(float(step)))])

    manager = CollectionManager(
        [Collection("losses", include_regex="loss"), Collection(HOSTILE, include_regex="loss")]
    )
    store = MemoryStore()
    make_run(store, range(3), data=data, collections=manager)
    write_findings(store, [Finding(HOSTILE, 1, HOSTILE, tensor=HOSTILE)])
    trial = Trial(HOSTILE, HOSTILE, store=store)
    page = shown(trial)
    assert page.text.count("<script>alert(1)</script>") >= 4
    assert "<script>alert(1)</script>" in shown(trial.tensor(HOSTILE)).text


def test_of_many_tensors_some_are_shown() -> None:
    def data(worker: str, step: int) -> StepBatch:
        entries = [Entry(f"t{i:04d}_loss", np.array(1.0)) for i in range(3000)]
        return StepBatch(step, ModeKeys.TRAIN, step, entries)

    store = MemoryStore()
    make_run(store, range(2), data=data)
    write_findings(store, [Finding("Rule", step, "m") for step in range(100)])
    html = Trial("made", store=store)._repr_html_()
    assert "3,000 tensors; the first 20" in html
    assert "and 92 more" in html
    assert "and 2,996 more" in html
    assert len(html) < 30_000


def damage(files: list[Path]) -> None:
    assert files
    for file in files:
        content = file.read_bytes()
        half = len(content) // 2
        file.write_bytes(content[:half] + b"\xff" * (len(content) - half))


@pytest.mark.parametrize("part", ["findings", "events"])
def test_damaged_files_are_said(tmp_path: Path, part: str) -> None:
    path = tmp_path / "run"
    make_run(path, range(10), data=batch)
    write_findings(create_trial(str(path)).store, [Finding("LossSpike", 7, "it jumps")])
    damage([file for file in (path / part).rglob("*") if file.is_file()])
    trial = create_trial(str(path))
    said = f"{shown(trial).text} {shown(trial.tensor('fc.weight')).text}"
    assert "cannot be read" in said
    assert "10, from 0 to 9" in said


def test_a_damaged_index_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run"
    make_run(path, range(5), data=batch, end=False)
    trial = create_trial(str(path))
    known = set((path / "index").rglob("*.parquet"))
    make_run(path, range(5, 10), data=batch, end=False)
    damage(sorted(set((path / "index").rglob("*.parquet")) - known))
    said = f"{shown(trial).text} {shown(trial.tensor('fc.weight')).text}"
    assert "cannot be read" in said
    assert "Trial run" in said
