"""Everything that can be asked of a trial, in both formats, compared with what was written."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.config.collection import Collection
from smdebug.exceptions import (
    IndexReaderException,
    NoMoreData,
    SMDebugError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
)
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer_lock import WriterLock
from smdebug.testing.runs import make_run
from smdebug.trials import StepState, Tensor, Trial, create_trial

if TYPE_CHECKING:
    from pathlib import Path

    Rich = tuple[str, dict[tuple[str, int], StepBatch]]

GLOBAL, TRAIN, EVAL, PREDICT = ModeKeys.GLOBAL, ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT
NO, YES, LATER = StepState.UNAVAILABLE, StepState.AVAILABLE, StepState.NOT_YET_AVAILABLE


@pytest.fixture(scope="module")
def trial(rich: Rich) -> Trial:
    return create_trial(rich[0])


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore("memory://place")
    monkeypatch.setattr("smdebug.trials.trial.open_store", lambda path: store)
    return store


def batch(step: int, *entries: Entry, mode: ModeKeys = TRAIN, mode_step: int = -1) -> StepBatch:
    return StepBatch(step, mode, step if mode_step < 0 else mode_step, list(entries))


def names_of(rich: Rich, **where: Any) -> list[str]:
    """The names that were written, of a step or a mode."""
    return sorted(
        {
            entry.name
            for each in rich[1].values()
            if all(getattr(each, key) == value for key, value in where.items())
            for entry in each.entries
        }
    )


# ---- names


def test_tensor_names_are_those_that_were_written(trial: Trial, rich: Rich) -> None:
    assert trial.tensor_names() == names_of(rich)
    assert trial.tensor_names(show_prefixed_tensors=True) == names_of(rich)


@pytest.mark.parametrize("mode", [TRAIN, EVAL])
def test_tensor_names_of_a_mode(trial: Trial, rich: Rich, mode: ModeKeys) -> None:
    assert trial.tensor_names(mode=mode) == names_of(rich, mode=mode)


@pytest.mark.parametrize("step", [0, 2, 4, 5, 6, 9])
def test_tensor_names_of_a_step(trial: Trial, rich: Rich, step: int) -> None:
    assert trial.tensor_names(step=step) == names_of(rich, step=step)
    mode, mode_step = trial.mode_modestep(step)
    assert mode is not None
    assert mode_step is not None
    assert trial.tensor_names(step=mode_step, mode=mode) == names_of(rich, step=step)


@pytest.mark.parametrize("step", [-1, 1, 3, 10, 10**9])
def test_an_unknown_global_step_has_no_names(trial: Trial, step: int) -> None:
    assert trial.tensor_names(step=step) == []


@pytest.mark.parametrize(
    ("mode", "step"), [(PREDICT, None), (PREDICT, 0), (TRAIN, 1), (TRAIN, 9), (EVAL, 2)]
)
def test_an_unknown_mode_or_step_of_a_mode_is_a_key_error(
    trial: Trial, mode: ModeKeys, step: int | None
) -> None:
    with pytest.raises(KeyError):
        trial.tensor_names(mode=mode, step=step)


def test_tensor_names_by_regex(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    assert trial.tensor_names(regex="o") == [name for name in trial.tensor_names() if "o" in name]
    assert trial.tensor_names(regex=["^loss$", "/fc"]) == ["gradient/fc", "loss"]
    assert trial.tensor_names(regex=[]) == []
    assert trial.tensor_names(regex="loss", mode=EVAL, step=1) == ["loss"]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert trial.tensor_names(regex="nothing has this name") == []
    assert caplog.records


def test_tensor_names_by_collection(trial: Trial, rich: Rich) -> None:
    assert trial.tensor_names(collection="losses") == ["loss"]
    assert trial.tensor_names(collection="named") == ["both", "gradient/fc"]
    assert trial.tensor_names(collection="named", mode=EVAL) == []
    assert trial.tensor_names(collection="all") == names_of(rich)
    assert trial.tensor_names(collection="nobody knows it") == []
    mine = Collection("mine", include_regex="^b", tensor_names=["loss"])
    assert trial.tensor_names(collection=mine) == ["bare", "big", "both", "loss"]


def test_regex_and_collection_exclude_each_other(trial: Trial) -> None:
    with pytest.raises(ValueError, match="regex and collection") as caught:
        trial.tensor_names(regex="x", collection="losses")
    assert isinstance(caught.value, SMDebugError)


@pytest.mark.parametrize("collection", [3, ["losses"], object()])
def test_a_collection_of_another_type_is_a_type_error(trial: Trial, collection: Any) -> None:
    with pytest.raises(TypeError):
        trial.tensor_names(collection=collection)


def test_a_tensor_that_is_not_there(trial: Trial) -> None:
    assert trial.has_tensor("loss")
    assert isinstance(trial.tensor("loss"), Tensor)
    assert not trial.has_tensor("lost")
    with pytest.raises(TensorUnavailable) as caught:
        trial.tensor("lost")
    assert caught.value.tname == "lost"
    assert "loss" in str(caught.value)


# ---- steps and modes


def test_steps(trial: Trial) -> None:
    assert trial.steps() == trial.steps(show_incomplete_steps=True) == [0, 2, 4, 5, 6, 9]
    assert trial.steps(TRAIN) == trial.steps(mode=TRAIN) == [0, 2, 4, 7]
    assert trial.steps(EVAL) == [0, 1]
    assert trial.steps(PREDICT) == []
    assert trial.last_complete_step == 9
    assert trial.loaded_all_steps
    assert sorted(mode.name for mode in trial.modes()) == ["EVAL", "TRAIN"]


@pytest.mark.parametrize(
    ("step", "mode", "mode_step"), [(0, TRAIN, 0), (4, TRAIN, 4), (6, EVAL, 1), (9, TRAIN, 7)]
)
def test_steps_in_modes(trial: Trial, step: int, mode: ModeKeys, mode_step: int) -> None:
    assert trial.mode(step) is mode
    assert trial.mode_step(step) == mode_step
    assert trial.mode_modestep(step) == (mode, mode_step)
    assert trial.global_step(mode, mode_step) == step


def test_unknown_steps_in_modes(trial: Trial) -> None:
    assert trial.mode(1) is None
    assert trial.mode_step(1) is None
    assert trial.mode_modestep(-5) == (None, None)
    assert trial.global_step(TRAIN, 9) is None
    assert trial.global_step(PREDICT, 0) is None
    assert trial.global_step(GLOBAL, 12345) == 12345


@pytest.mark.parametrize(
    ("step", "mode", "state"),
    [
        (0, GLOBAL, YES),
        (1, GLOBAL, NO),
        (9, GLOBAL, YES),
        (10, GLOBAL, NO),
        (7, TRAIN, YES),
        (5, TRAIN, NO),
        (9, TRAIN, NO),
        (1, EVAL, YES),
        (0, PREDICT, NO),
    ],
)
def test_has_passed_step(trial: Trial, step: int, mode: ModeKeys, state: StepState) -> None:
    assert trial.has_passed_step(step, mode) is state


def test_numpy_numbers_are_steps(trial: Trial) -> None:
    assert trial.has_passed_step(np.int64(9)) is YES
    assert trial.mode(np.int32(9)) is TRAIN
    assert trial.tensor("loss").value(np.int64(9)) == 908.0


# ---- waiting


def test_waiting_for_what_is_there(trial: Trial) -> None:
    trial.wait_for_steps([0, 9])
    trial.wait_for_steps([7, 0], mode=TRAIN)
    trial.wait_for_steps([])


def test_waiting_for_what_never_comes(trial: Trial) -> None:
    with pytest.raises(StepUnavailable) as skipped:
        trial.wait_for_steps([0, 3])
    assert (skipped.value.step, skipped.value.mode) == (3, GLOBAL)
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([5], mode=TRAIN)
    with pytest.raises(NoMoreData) as ended:
        trial.wait_for_steps([9, 10])
    assert (ended.value.step, ended.value.mode, ended.value.last_step) == (10, GLOBAL, 9)
    with pytest.raises(NoMoreData) as ended:
        trial.wait_for_steps([8], mode=TRAIN)
    assert (ended.value.step, ended.value.mode, ended.value.last_step) == (8, TRAIN, 7)
    with pytest.raises(NoMoreData):
        trial.wait_for_steps([0], mode=PREDICT)


def test_waiting_in_a_live_trial(place: MemoryStore) -> None:
    make_run(place, [0, 10], end=False)
    trial = create_trial("memory://place")
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([5])
    with pytest.raises(TimeoutError, match="20"):
        trial.wait_for_steps([20], timeout=0.01)
    # Refreshing is off, but whoever waits wants to see what comes.
    trial.dynamic_refresh = False
    job = threading.Thread(target=make_run, args=(place, [20]), kwargs={"end": False})
    job.start()
    trial.wait_for_steps([20], timeout=20)
    job.join()
    assert trial.dynamic_refresh is False
    assert trial.steps() == [0, 10, 20]


def test_waiting_ends_with_the_job(place: MemoryStore) -> None:
    make_run(place, [0], end=False)
    trial = create_trial("memory://place")
    job = threading.Thread(target=make_run, args=(place, [1]))
    job.start()
    with pytest.raises(NoMoreData):
        trial.wait_for_steps([0, 1, 2], timeout=20)
    job.join()
    assert trial.loaded_all_steps


# ---- workers and collections


def test_workers(trial: Trial) -> None:
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.num_workers == 2


def test_collections(trial: Trial) -> None:
    assert {"losses", "inputs", "named"} <= set(trial.collections())
    assert trial.collection("losses").include_regex == ["^loss$"]
    assert trial.collection("inputs").tensor_names == {"net_input_2", "net_input_10"}
    made = trial.collection("made now")
    assert made.name == "made now"
    assert made.is_empty()
    assert trial.collection("made now") is made


def test_collections_hold_the_tensors_of_all_workers(place: MemoryStore) -> None:
    from smdebug.config.collection_manager import CollectionManager

    for worker in ("a", "b"):
        manager = CollectionManager([Collection("shared", tensor_names=[f"of {worker}"])])
        manager.add(Collection(f"only {worker}", tensor_names=["loss"]))
        make_run(place, [0], [worker], collections=manager, num_workers=2, end=worker == "b")
    trial = create_trial("memory://place")
    assert trial.collection("shared").tensor_names == {"of a", "of b"}
    assert {"shared", "only a", "only b"} <= set(trial.collections())
    assert trial.tensor_names(collection="only b") == ["loss"]


# ---- inputs, labels, predictions


def test_values_by_their_place_in_the_name(trial: Trial) -> None:
    def numbers(arrays: list[Any]) -> list[list[int]]:
        return [array.tolist() for array in arrays]

    # The first number is the place in which they were saved.
    assert numbers(trial.inputs(5)) == [[1, 5], [0, 5]]
    assert numbers(trial.inputs(1, EVAL)) == [[1, 6], [0, 6]]
    assert numbers(trial.labels(0, EVAL)) == [[3, 5], [2, 5]]
    assert numbers(trial.predictions(5)) == [[4, 5]]
    assert trial.inputs(0) == []


# ---- ranges


@pytest.mark.parametrize(
    ("range_steps", "steps"),
    [
        ((2, 9), [2, 4, 5, 6]),
        ((None, 5), [0, 2, 4]),
        ((5, None), [5, 6, 9]),
        ([0, 1], [0]),
        ((10, None), []),
        ((None, None), [0, 2, 4, 5, 6, 9]),
    ],
)
def test_range(rich: Rich, range_steps: Any, steps: list[int]) -> None:
    trial = create_trial(rich[0], range_steps=range_steps)
    assert trial.steps() == steps
    inside = {step: each for (_, step), each in rich[1].items() if step in steps}
    assert trial.steps(TRAIN) == [e.mode_step for s, e in sorted(inside.items()) if e.mode is TRAIN]
    if steps:
        loss = trial.tensor("loss")
        assert loss.steps() == steps
        assert list(loss.values()) == steps
        assert loss.series()[0].tolist() == steps
    for step in {0, 2, 4, 5, 6, 9} - set(steps):
        assert trial.tensor_names(step=step) == []
        assert trial.has_passed_step(step) is NO


def test_a_tensor_outside_the_range_is_not_there(rich: Rich) -> None:
    evaluation = create_trial(rich[0], range_steps=(5, 7))
    assert evaluation.tensor_names() == names_of(rich, mode=EVAL)
    assert not evaluation.has_tensor("both")
    with pytest.raises(TensorUnavailable):
        evaluation.tensor("both")
    training = create_trial(rich[0], range_steps=(None, 5))
    assert training.tensor_names(regex="eval_only") == []
    with pytest.raises(KeyError):
        training.tensor_names(mode=EVAL)


@pytest.mark.parametrize(
    "range_steps", [(5, 5), (6, 5), (-1, 5), (0.5, 2), ("0", "5"), (1,), (1, 2, 3), 5, (True, 5)]
)
def test_bad_ranges(rich: Rich, range_steps: Any) -> None:
    with pytest.raises(SMDebugValueError, match="range_steps"):
        create_trial(rich[0], range_steps=range_steps)


# ---- several workers


def test_a_step_is_shown_when_all_workers_have_it(place: MemoryStore, format: str) -> None:
    workers = ["a", "b"]
    make_run(place, [0], workers, format, end=False)
    make_run(place, [1, 2], ["a"], format, num_workers=2, end=False)
    trial = create_trial("memory://place")
    assert trial.steps() == [0]
    assert trial.steps(show_incomplete_steps=True) == [0, 1, 2]
    assert trial.tensor("loss").steps() == [0]
    assert trial.tensor("loss").steps(show_incomplete_steps=True) == [0, 1, 2]
    assert trial.tensor("loss").prev_steps(2) == [0]
    assert trial.has_passed_step(1) is LATER
    make_run(place, [2], ["b"], format, num_workers=2, end=False)
    trial.refresh_data()
    assert trial.steps() == [0, 1, 2]
    assert trial.has_passed_step(1) is YES
    # The other worker left 1 out.
    assert trial.tensor("loss").workers(1) == ["a"]


def test_values_and_series_show_the_steps_that_steps_shows(place: MemoryStore, format: str) -> None:
    make_run(place, [0], ["a", "b"], format, end=False)
    make_run(place, [1], ["b"], format, num_workers=2, end=False)
    loss = create_trial("memory://place").tensor("loss")
    assert loss.steps() == [0]
    assert list(loss.values()) == [0]
    assert loss.series()[0].tolist() == [0]
    assert list(loss.shapes()) == [0]


def test_the_window_gives_up_on_a_worker(
    place: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", "4")
    make_run(place, range(5), ["a"], num_workers=2, end=False)
    make_run(place, [], ["b"], num_workers=2, end=False)
    assert create_trial("memory://place").steps() == [0, 1]
    monkeypatch.setenv("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", "5")
    assert create_trial("memory://place").steps() == []


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "a:b",
        "a__b",
        "a b",
        "host/0:gpu__1 x",
        "a%2Fb",
        "a_collections",
        "-",
        "ünï",
        "0_1",
        "000000000000-000000_w",
        "/job:worker/replica:0/task:1/device:GPU:0",
        "w.json",
        "a\\b",
    ],
)
def test_worker_names(tmp_path: Path, format: str, name: str) -> None:
    path = tmp_path / "run__of__workers"
    written = make_run(path, [0, 3], [name, "other"], format)
    trial = create_trial(path)
    assert trial.workers() == sorted([name, "other"])
    assert trial.tensor("fc.weight").workers(3) == sorted([name, "other"])
    for worker in (name, "other"):
        value = trial.tensor("fc.weight").value(3, worker=worker)
        np.testing.assert_array_equal(value, written[worker, 3].entries[1].value)


def test_a_path_with_two_underscores_changes_no_worker_name(rich: Rich, trial: Trial) -> None:
    assert "__" in trial.path
    assert trial.workers() == ["worker_0", "worker_1"]


# ---- resumed runs


def test_resumed_run_that_counts_modes_otherwise(tmp_path: Path) -> None:
    first = {
        0: batch(0, Entry("x", np.asarray(0.0)), mode_step=0),
        1: batch(1, Entry("x", np.asarray(1.0)), mode=EVAL, mode_step=0),
        2: batch(2, Entry("x", np.asarray(2.0)), mode_step=1),
    }
    again = {
        1: batch(1, Entry("x", np.asarray(11.0)), mode_step=1),
        2: batch(2, Entry("x", np.asarray(12.0)), mode_step=2),
    }
    make_run(tmp_path, first, data=lambda worker, step: first[step], end=False)
    make_run(tmp_path, again, data=lambda worker, step: again[step])
    trial = create_trial(tmp_path)
    assert trial.steps() == [0, 1, 2]
    assert trial.steps(TRAIN) == [0, 1, 2]
    assert [trial.global_step(*trial.mode_modestep(step)) for step in range(3)] == [0, 1, 2]  # type: ignore[arg-type]
    assert [float(trial.tensor("x").value(n, TRAIN)) for n in range(3)] == [0.0, 11.0, 12.0]


# ---- only scalars


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_run_of_nothing_but_numbers(place: MemoryStore, format: str, shape: Any) -> None:
    values = {0: 0.5, 1: float("nan"), 2: -0.0, 7: 1e300}

    def data(worker: str, step: int) -> StepBatch:
        return batch(step, Entry("loss", np.full(shape, values[step])))

    make_run(place, values, format=format, data=data)
    loss = create_trial("memory://place").tensor("loss")
    for step, value in values.items():
        np.testing.assert_array_equal(loss.value(step), np.full(shape, value))
        assert loss.shape(step) == shape
    steps, course = loss.series()
    assert steps.tolist() == list(values)
    np.testing.assert_array_equal(course, list(values.values()))


# ---- a trial that has not begun to save


def test_a_trial_without_steps(place: MemoryStore, format: str) -> None:
    make_run(place, [], format=format, end=False)
    trial = create_trial("memory://place")
    assert trial.steps() == []
    assert trial.tensor_names() == []
    assert trial.modes() == []
    assert trial.last_complete_step == -1
    assert trial.has_passed_step(0) is LATER
    assert trial.workers() == ["worker_0"]
    assert trial.to_arrow().num_rows == 0
    with pytest.raises(TensorUnavailable):
        trial.tensor("x")


# ---- identity


def test_equality_and_hash(rich: Rich, tmp_path: Path) -> None:
    path, _ = rich
    one, same = create_trial(path), create_trial(path)
    other_name = create_trial(path, name="another")
    make_run(tmp_path / "run__1")
    other_path = create_trial(tmp_path / "run__1")
    assert one == same
    assert hash(one) == hash(same)
    assert one.name == other_path.name == "run__1"
    part = create_trial(path, range_steps=(0, 3))
    assert part != one
    assert part == create_trial(path, range_steps=(0, 3))
    assert len({one, same, other_name, other_path, part}) == 4
    assert one != path


def test_repr_says_what_it_is_without_looking(rich: Rich, calls: list[tuple[str, str]]) -> None:
    trial = create_trial(rich[0])
    calls.clear()
    assert "run__1" in repr(trial)
    assert "loss" in repr(trial.tensor("loss"))
    assert calls == []


# ---- the end


def test_the_end_delay_acts_only_when_set(rich: Rich, monkeypatch: pytest.MonkeyPatch) -> None:
    def opening() -> float:
        began = time.monotonic()
        create_trial(rich[0])
        return time.monotonic() - began

    for name in ("SMDEBUG_TRAINING_END_DELAY_REFRESH", "TRAINING_END_DELAY_REFRESH"):
        monkeypatch.delenv(name, raising=False)
    # The fastest of three, so that a busy machine is no failure.
    assert min(opening() for _ in range(3)) < 0.5
    monkeypatch.setenv("TRAINING_END_DELAY_REFRESH", "0.6")
    assert opening() >= 0.6
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0.2")
    assert opening() >= 0.2


def test_a_step_published_just_before_the_end_is_there(place: MemoryStore, format: str) -> None:
    make_run(place, [0], format=format, end=False)
    trial = create_trial("memory://place")
    assert not trial.loaded_all_steps
    make_run(place, [1, 2], format=format)
    trial.refresh_data()
    assert trial.steps() == [0, 1, 2]
    assert trial.loaded_all_steps


# ---- damage


def test_check_verifies_the_whole_index_at_once(tmp_path: Path) -> None:
    make_run(tmp_path, range(3))
    (file,) = (tmp_path / "index").rglob("*.parquet")
    data = bytearray(file.read_bytes())
    create_trial(tmp_path, check=True)
    # Every byte in front of the footer belongs to some column.
    footer = int.from_bytes(data[-8:-4], "little") + 8
    for place in range(4, len(data) - footer, 97):
        damaged = data.copy()
        damaged[place] ^= 0x10
        file.write_bytes(damaged)
        with pytest.raises(IndexReaderException, match=file.name):
            create_trial(tmp_path, check=True)


def test_an_index_file_that_is_none_is_told_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(tmp_path, range(3))
    (tmp_path / "index" / "000000000" / "notes.txt").write_text("mine")
    with caplog.at_level(logging.WARNING):
        trial = create_trial(tmp_path)
    assert "notes.txt" in caplog.text
    assert trial.steps() == [0, 1, 2]


@pytest.mark.parametrize("text", ["{", "[]", '{"collections": 3}'])
def test_a_damaged_collections_file_is_an_error(tmp_path: Path, text: str) -> None:
    make_run(tmp_path, range(3))
    (file,) = (tmp_path / "collections").rglob("*.json")
    file.write_text(text)
    with pytest.raises(SMDebugError):
        create_trial(tmp_path)


def test_workers_that_close_one_after_the_other(tmp_path: Path, format: str) -> None:
    make_run(tmp_path, range(2), ["a", "b"], format, end=False)
    trial = create_trial(tmp_path)
    make_run(tmp_path, [2], ["b"], format, num_workers=2, end=False)
    trial.refresh_data()
    assert trial.steps() == [0, 1]
    make_run(tmp_path, [2], ["a"], format, num_workers=2, end=True)
    trial.refresh_data()
    assert trial.steps() == [0, 1, 2]
    assert trial.tensor("loss").workers(2) == ["a", "b"]


def test_the_end_of_one_worker_does_not_complete_the_steps_of_another(tmp_path: Path) -> None:
    claim = WriterLock(LocalStore(tmp_path), "b")
    claim.take()
    make_run(tmp_path, range(2), ["b"], num_workers=2, end=False)
    make_run(tmp_path, range(5), ["a"], num_workers=2, end=True)
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1]
    assert not trial.loaded_all_steps
    make_run(tmp_path, range(2, 4), ["b"], num_workers=2, end=False)
    assert trial.steps() == [0, 1, 2, 3]
    claim.release()
    # Nobody writes any more, so what there is, is all.
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert trial.loaded_all_steps
