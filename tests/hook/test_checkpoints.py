"""A checkpoint directory: what is seen in it, what is kept, what `metadata.json` may hold."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from smdebug.hook import checkpoints as checkpoint
from smdebug.hook.checkpoints import CheckpointDirectory, CheckpointState
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
    """Looks at once, whatever the last look took; returns the step of a new checkpoint."""
    directory._looked = directory._next_look = directory._next_glance = -3600.0
    mark = directory.look(step, None)
    return None if mark is None else mark.step


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def entries_of(directory: Path) -> Any:
    return json.loads((directory / "metadata.json").read_text(encoding="utf-8"))


def test_new_larger_other_and_touched_files_are_checkpoints(tmp_path: Path) -> None:
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


def test_names_of_sagemaker_and_our_own_are_not_checkpoints(tmp_path: Path) -> None:
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
    # Nothing is left to go on from.
    assert look(directory, 4) is None


def test_a_directory_may_come_later_and_go_again(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path / "later"))
    assert directory.read() is None
    assert look(directory, 0) is None
    write(tmp_path / "later" / "a.pt")
    assert look(directory, 1) == 1
    (tmp_path / "later" / "a.pt").unlink()
    (tmp_path / "later").rmdir()
    assert look(directory, 2) is None


def test_what_cannot_be_looked_at_harms_nothing(tmp_path: Path) -> None:
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


def test_the_run_itself_is_no_checkpoint(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path), [str(tmp_path / "run")])
    write(tmp_path / "run" / "index" / "a.parquet")
    assert look(directory, 1) is None


def test_files_by_the_hundreds_are_looked_at_in_several_goes(tmp_path: Path) -> None:
    for number in range(2 * checkpoint._FILES_AT_ONCE + 10):
        write(tmp_path / f"{number % 7}" / f"{number}.pt")
    directory = CheckpointDirectory(str(tmp_path))
    assert directory._known is None
    assert [look(directory, step) for step in range(2)] == [None, None]
    assert directory._known is not None
    write(tmp_path / "new.pt")
    steps = [look(directory, 10 + step) for step in range(3)]
    # Seen at the third, and told by its time that it was there before the first.
    assert steps == [None, None, 10]
    # At the end everything is looked at.
    write(tmp_path / "last.pt")
    mark = directory.look(20, 19, at_end=True)
    assert mark is not None
    assert (mark.step, mark.last_saved_step) == (20, 19)


def test_a_late_look_tells_the_step_by_the_time_of_the_file(tmp_path: Path) -> None:
    write(tmp_path / "old.pt")
    directory = CheckpointDirectory(str(tmp_path))
    directory._next_look = directory._next_glance = time.perf_counter() + 3600
    for step in range(3):
        assert directory.look(step, None) is None
    # As of a file system whose clock has another resolution, and in step 3.
    write(tmp_path / "new.pt")
    changed = (tmp_path / "new.pt").stat().st_ctime_ns
    while time.time_ns() <= changed:
        pass
    for step in range(3, 8):
        assert directory.look(step, None) is None
    directory._changes.clear()
    directory._marks = type(directory._marks)(
        mark._replace(
            since=changed + (mark.step - 4) * 10**9, until=changed + (mark.step - 3) * 10**9
        )
        for mark in directory._marks
    )
    assert look(directory, 8) == 3


def test_looks_take_a_hundredth_of_the_time(tmp_path: Path) -> None:
    for number in range(200):
        write(tmp_path / f"{number}.pt")
    directory = CheckpointDirectory(str(tmp_path))
    for _ in range(20):
        # What looks are thought to cost grows to what they do cost.
        directory._looked = directory._next_look = directory._next_glance = -3600.0
        began = time.perf_counter()
        directory.look(0, None)
        took = time.perf_counter() - began
    assert 1e-4 < directory._look_cost <= took
    looked = directory._looked
    assert directory._next_glance >= began + 200 * directory._glance_cost
    # A look that takes long, so that no pause of this process counts. Too early for another:
    directory._look_cost = 10.0
    assert directory.look(1, None) is None
    assert directory._looked == looked
    # Nothing has changed at a glance, so there is more time; otherwise it is time by now.
    directory._looked = time.perf_counter() - 500 * directory._look_cost
    looked = directory._looked
    directory._next_glance = -3600.0
    assert directory.look(2, None) is None
    assert directory._looked == looked
    write(tmp_path / "new.pt")
    directory._looked = time.perf_counter() - 500 * directory._look_cost
    directory._next_glance = -3600.0
    mark = directory.look(3, None)
    assert mark is not None
    assert mark.step == 3


def test_a_glance_tells_steps_that_are_shorter_than_the_clock_of_files(tmp_path: Path) -> None:
    write(tmp_path / "old.pt")
    directory = CheckpointDirectory(str(tmp_path))
    assert look(directory, 0) is None
    directory._next_look = time.perf_counter() + 3600
    for step in range(1, 9):
        if step == 5:
            write(tmp_path / "new.pt")
        directory._next_glance = 0.0
        assert directory.look(step, None) is None
    # By its time, the file could have been written in any of them.
    os.utime(tmp_path / "new.pt", ns=(1, 1))
    assert len(directory._changes) == 1
    after, until = directory._changes[0]
    inside = [mark.step for mark in directory._marks if after < mark.until <= until]
    assert inside == [5]
    first = directory._mark_at(directory._marks[0].since)
    assert first is not None
    assert first.step == 5


def test_an_entry_is_that_of_smdebug_1(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path))
    write(tmp_path / "a.pt")
    mark = directory.look(3, 2, at_end=True)
    assert mark is not None
    published: list[int] = []
    directory.record(mark, {GLOBAL: 3, TRAIN: 2, EVAL: 0}, lambda: published.append(1))
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
    mark = again.look(5, None, at_end=True)
    assert mark is not None
    again.record(mark, {GLOBAL: 5}, lambda: None)
    assert [entry["training-run"] for entry in entries_of(tmp_path)] == [0, 1]
    assert entries_of(tmp_path)[1]["latest-global-step-saved"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt", "metadata.json"]


def test_a_failure_to_publish_keeps_nothing(tmp_path: Path) -> None:
    directory = CheckpointDirectory(str(tmp_path))
    write(tmp_path / "a.pt")
    mark = directory.look(3, 2, at_end=True)
    assert mark is not None

    def fail() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        directory.record(mark, {GLOBAL: 3}, fail)
    assert not (tmp_path / "metadata.json").exists()


def test_the_largest_step_counts_and_a_rewind_forgets_larger_ones(tmp_path: Path) -> None:
    entries = [{**ENTRY, "latest-global-step-seen": step} for step in (4, 9, 6)]
    write(tmp_path / "metadata.json", json.dumps(entries))
    directory = CheckpointDirectory(str(tmp_path))
    state = directory.read()
    assert state is not None
    assert (state.step, state.training_run) == (9, 2)
    directory.rewind(6)
    write(tmp_path / "a.pt")
    mark = directory.look(7, 7, at_end=True)
    assert mark is not None
    directory.record(mark, {GLOBAL: 7}, lambda: None)
    assert [entry["latest-global-step-seen"] for entry in entries_of(tmp_path)] == [4, 6, 7]


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    write(tmp_path / "metadata.json", json.dumps([ENTRY] * checkpoint._MOST_ENTRIES))
    directory = CheckpointDirectory(str(tmp_path))
    directory.read()
    directory.record(checkpoint.StepInterval(0, 0, 8, 8), {GLOBAL: 8}, lambda: None)
    assert len(entries_of(tmp_path)) == checkpoint._MOST_ENTRIES
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
def test_a_broken_file_is_as_none_and_is_replaced(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "metadata.json", BROKEN[kind])
    directory = CheckpointDirectory(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert directory.read() is None
    assert str(tmp_path / "metadata.json") in caplog.text
    directory.record(checkpoint.StepInterval(0, 0, 8, 8), {GLOBAL: 8}, lambda: None)
    assert len(entries_of(tmp_path)) == 1


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_somebody_else_stays(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "metadata.json", FOREIGN[kind])
    directory = CheckpointDirectory(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert directory.read() is None
    assert "it stays as it is" in caplog.text
    directory.record(checkpoint.StepInterval(0, 0, 8, 8), {GLOBAL: 8}, lambda: None)
    assert (tmp_path / "metadata.json").read_text(encoding="utf-8") == FOREIGN[kind]


def test_a_file_beyond_all_measure_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (tmp_path / "metadata.json").open("wb") as file:
        file.truncate(checkpoint._MOST_BYTES + 1)
    directory = CheckpointDirectory(str(tmp_path))
    assert directory.read() is None
    assert "more than" in caplog.text


def test_a_file_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = CheckpointDirectory(str(tmp_path / "missing"))
    for step in (8, 9):
        directory.record(checkpoint.StepInterval(0, 0, step, step), {GLOBAL: step}, lambda: None)
    assert caplog.text.count("cannot be kept") == 1
