"""A checkpoint directory: what is seen in it, what is kept, what `metadata.json` may hold."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from smdebug.hook.run import checkpoints as checkpoint
from smdebug.hook.run.checkpoints import CheckpointDirectory, CheckpointState
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from pathlib import Path

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL
ENTRY = {
    "training-run": 2,
    "latest-global-step-saved": 5,
    "latest-global-step-seen": 6,
    "latest-mode-step": {"GLOBAL": 6, "TRAIN": 4, "EVAL": 1, "PREDICT": -1},
}


def look(directory: CheckpointDirectory, step: int) -> int | None:
    """Checks at once, whatever the last check took; returns the step of a new checkpoint."""
    directory._next_check = directory._next_scan = directory._next_record = 0.0
    found = directory.find_checkpoint(step, None)
    return None if found is None else found.step


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def entries_of(directory: Path) -> Any:
    return json.loads((directory / "metadata.json").read_text(encoding="utf-8"))


def test_new_changed_and_touched_files_are_checkpoints(tmp_path: Path) -> None:
    write(tmp_path / "old.pt")
    directory = CheckpointDirectory(str(tmp_path))
    # What was there before is not new.
    assert look(directory, 0) is None
    write(tmp_path / "a.pt")
    assert look(directory, 1) == 1
    assert look(directory, 2) is None
    write(tmp_path / "a.pt", "longer")
    assert look(directory, 3) == 3
    (tmp_path / "a.pt").rename(tmp_path / "b.pt")
    assert look(directory, 4) == 4
    (tmp_path / "old.pt").unlink()
    assert look(directory, 5) == 5
    # As a model of the same size is saved again; smdebug 1.0 did not see that.
    os.utime(tmp_path / "b.pt", ns=(1, 1))
    assert look(directory, 6) == 6
    write(tmp_path / "deep" / "er" / "c.pt")
    assert look(directory, 7) == 7
    assert look(directory, 8) is None


def test_files_of_sagemaker_and_metadata_json_are_not_checkpoints(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path))
    for name in (
        "metadata.json", "metadata.json.sagemaker-uploaded", "model.pt.sagemaker-uploaded",
        "metadata.json.tmp-sagemaker-uploaded",
    ):  # fmt: skip
        write(tmp_path / name)
        assert look(directory, 1) is None
    (tmp_path / "empty").mkdir()
    assert look(directory, 2) is None
    write(tmp_path / "model.pt")
    assert look(directory, 3) == 3
    (tmp_path / "model.pt").unlink()
    # There is no checkpoint left to resume from.
    assert look(directory, 4) is None


def test_checkpoint_directory_may_appear_and_disappear(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path / "later"))
    assert directory.read() is None
    assert look(directory, 0) is None
    write(tmp_path / "later" / "a.pt")
    assert look(directory, 1) == 1
    (tmp_path / "later" / "a.pt").unlink()
    (tmp_path / "later").rmdir()
    assert look(directory, 2) is None


def test_unreadable_checkpoint_directory_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "round").symlink_to(tmp_path, target_is_directory=True)
    write(tmp_path / "closed" / "a.pt")
    (tmp_path / "closed").chmod(0)
    try:
        directory = CheckpointDirectory(str(tmp_path))
        write(tmp_path / "b.pt")
        assert look(directory, 3) == 3
    finally:
        (tmp_path / "closed").chmod(0o755)


def test_files_of_the_run_are_not_checkpoints(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path), [str(tmp_path / "run")])
    write(tmp_path / "run" / "index" / "a.parquet")
    assert look(directory, 1) is None


def test_at_the_end_everything_is_checked(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path))
    directory._next_check = directory._next_scan = directory._next_record = float("inf")
    write(tmp_path / "deep" / "last.pt")
    found = directory.find_checkpoint(20, 19, at_end=True)
    assert found is not None
    assert (found.step, found.last_saved_step) == (20, 19)


def test_late_scan_finds_the_step_by_file_time(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "a.pt")
    directory = CheckpointDirectory(str(tmp_path))
    directory._next_check = float("inf")
    for step in range(8):
        assert directory.find_checkpoint(step, None) is None
    # Steps of a second each, and the file is written in the fourth of them.
    write(tmp_path / "deep" / "a.pt", "longer")
    changed = (tmp_path / "deep" / "a.pt").stat().st_ctime_ns
    start = changed - 3 * 10**9 - 10**8
    directory._steps = type(directory._steps)(
        each._replace(end=start + (each.step + 1) * 10**9) for each in directory._steps
    )
    assert look(directory, 8) == 3


def test_file_time_finds_the_step_between_two_checks(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path))
    write(tmp_path / "new.pt")
    changed = (tmp_path / "new.pt").stat().st_ctime_ns
    directory._checked = changed - 3 * 10**9 - 10**8
    directory._steps.extend(
        checkpoint.FinishedStep(directory._checked + (step + 1) * 10**9, step, None)
        for step in range(8)
    )
    assert look(directory, 8) == 3


def test_directory_change_finds_steps_shorter_than_the_file_clock(
    tmp_path: Path,
) -> None:
    directory = CheckpointDirectory(str(tmp_path))
    directory._next_record = float("inf")
    for step in range(1, 9):
        if step == 5:
            write(tmp_path / "new.pt")
            # By its time, the file could have been written in any of them.
            os.utime(tmp_path / "new.pt", ns=(1, 1))
        directory._next_check = 0.0
        assert directory.find_checkpoint(step, None) is None
    assert look(directory, 9) == 5


class Clock:
    """A fake `time` module: it advances by the given duration of each operation."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.spent = 0.0

    def perf_counter(self) -> float:
        return self.seconds

    def time_ns(self) -> int:
        return int(self.seconds * 1e9)

    def spend(self, seconds: float) -> None:
        self.seconds += seconds
        self.spent += seconds


@pytest.mark.parametrize("files", [10, 100_000])
@pytest.mark.parametrize("stat_seconds", [1e-6, 0.05])
def test_checks_take_at_most_one_percent_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, stat_seconds: float
) -> None:
    clock = Clock()
    stat, walk = os.stat, os.walk

    def slow_stat(path: Any) -> Any:
        clock.spend(stat_seconds)
        return stat(path)

    def slow_walk(path: Any) -> Any:
        clock.spend(files * 5e-6)
        return walk(path)

    monkeypatch.setattr(checkpoint, "time", clock)
    monkeypatch.setattr(os, "stat", slow_stat)
    monkeypatch.setattr(os, "walk", slow_walk)
    directory = CheckpointDirectory(str(tmp_path))
    began, clock.spent = clock.seconds, 0.0
    for step in range(200_000):
        clock.seconds += 1e-4
        assert directory.find_checkpoint(step, None) is None
    assert 0 < clock.spent < 0.012 * (clock.seconds - began)


def test_files_that_change_at_every_step_do_not_slow_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(checkpoint, "time", clock)
    directory = CheckpointDirectory(str(tmp_path))
    began = clock.seconds
    for step in range(2000):
        clock.seconds += 1e-3
        write(tmp_path / f"{step % 100}.pt", "x" * step)
        found = directory.find_checkpoint(step, None)
        if found is not None:
            directory.record(found, {GLOBAL: step}, lambda: clock.spend(0.05))
    assert 0 < clock.spent < 0.15 * (clock.seconds - began)


def test_entry_has_the_format_of_smdebug_1(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path))
    write(tmp_path / "a.pt")
    found = directory.find_checkpoint(3, 2, at_end=True)
    assert found is not None
    published: list[int] = []
    directory.record(found, {GLOBAL: 3, TRAIN: 2, EVAL: 0}, lambda: published.append(1))
    assert published == [1]
    assert entries_of(tmp_path) == [
        {
            "training-run": 0,
            "latest-global-step-saved": 2,
            "latest-global-step-seen": 3,
            "latest-mode-step": {"GLOBAL": 3, "TRAIN": 2, "EVAL": 0},
        }
    ]
    again = CheckpointDirectory(str(tmp_path))
    assert again.read() == CheckpointState(3, {GLOBAL: 3, TRAIN: 2, EVAL: 0}, 2, 0)
    write(tmp_path / "b.pt")
    found = again.find_checkpoint(5, None, at_end=True)
    assert found is not None
    again.record(found, {GLOBAL: 5}, lambda: None)
    assert [entry["training-run"] for entry in entries_of(tmp_path)] == [0, 1]
    assert entries_of(tmp_path)[1]["latest-global-step-saved"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt", "metadata.json"]


def test_failed_publish_records_no_checkpoint(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path))
    write(tmp_path / "a.pt")
    found = directory.find_checkpoint(3, 2, at_end=True)
    assert found is not None

    def fail() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        directory.record(found, {GLOBAL: 3}, fail)
    assert not (tmp_path / "metadata.json").exists()


def test_largest_step_wins_and_a_rewind_drops_later_ones(tmp_path: Path) -> None:
    entries = [{**ENTRY, "latest-global-step-seen": step} for step in (4, 9, 6)]
    write(tmp_path / "metadata.json", json.dumps(entries))
    directory = CheckpointDirectory(str(tmp_path))
    state = directory.read()
    assert state is not None
    assert (state.step, state.training_run) == (9, 2)
    directory.rewind(6)
    write(tmp_path / "a.pt")
    found = directory.find_checkpoint(7, 7, at_end=True)
    assert found is not None
    directory.record(found, {GLOBAL: 7}, lambda: None)
    assert [entry["latest-global-step-seen"] for entry in entries_of(tmp_path)] == [4, 6, 7]


def test_metadata_file_is_bounded(tmp_path: Path) -> None:
    write(tmp_path / "metadata.json", json.dumps([ENTRY] * checkpoint._MAX_ENTRIES))
    directory = CheckpointDirectory(str(tmp_path))
    directory.read()
    directory.record(checkpoint.FinishedStep(0, 8, 8), {GLOBAL: 8}, lambda: None)
    assert len(entries_of(tmp_path)) == checkpoint._MAX_ENTRIES
    assert entries_of(tmp_path)[-1]["latest-global-step-seen"] == 8


BROKEN = {
    "half": json.dumps([ENTRY])[:-20],
    "negative": json.dumps([{**ENTRY, "latest-global-step-seen": -5}]),
    "huge": json.dumps([{**ENTRY, "latest-global-step-seen": 10**30}]),
    "text": json.dumps([{**ENTRY, "latest-global-step-seen": "6"}]),
    "fraction": json.dumps([{**ENTRY, "latest-global-step-seen": 6.5}]),
    "bool": json.dumps([{**ENTRY, "training-run": True}]),
    "no modes": json.dumps([{**ENTRY, "latest-mode-step": [1]}]),
    "unknown mode": json.dumps([{**ENTRY, "latest-mode-step": {"TEST": 1}}]),
    "negative mode": json.dumps([{**ENTRY, "latest-mode-step": {"TRAIN": -2}}]),
    "one of two": json.dumps([ENTRY, {"training-run": 1}]),
    "digits": '[{"training-run": ' + "9" * 5000 + "}]",
    "empty": "",
}
FOREIGN = {
    "object": '{"model": "resnet"}',
    "numbers": "[1, 2]",
    "text": "not JSON at all",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_invalid_metadata_file_is_ignored_and_replaced(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "metadata.json", BROKEN[kind])
    directory = CheckpointDirectory(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert directory.read() is None
    assert str(tmp_path / "metadata.json") in caplog.text
    directory.record(checkpoint.FinishedStep(0, 8, 8), {GLOBAL: 8}, lambda: None)
    assert len(entries_of(tmp_path)) == 1


@pytest.mark.parametrize("kind", FOREIGN)
def test_metadata_file_of_another_program_is_kept(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "metadata.json", FOREIGN[kind])
    directory = CheckpointDirectory(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert directory.read() is None
    assert "it is not replaced" in caplog.text
    directory.record(checkpoint.FinishedStep(0, 8, 8), {GLOBAL: 8}, lambda: None)
    assert (tmp_path / "metadata.json").read_text(encoding="utf-8") == FOREIGN[kind]


def test_huge_metadata_file_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (tmp_path / "metadata.json").open("wb") as file:
        file.truncate(checkpoint._MAX_BYTES + 1)
    directory = CheckpointDirectory(str(tmp_path))
    assert directory.read() is None
    assert "more than" in caplog.text


def test_unwritable_metadata_file_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = CheckpointDirectory(str(tmp_path / "missing"))
    for step in (8, 9):
        directory.record(checkpoint.FinishedStep(0, step, step), {GLOBAL: step}, lambda: None)
    assert caplog.text.count("Cannot record") == 1
