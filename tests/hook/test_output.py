"""Where the steps of a hook go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.hook.capture import (
    ArrayCapture,
    Capture,
    ScalarsCapture,
    StepCapture,
    make_entry,
    pending_batch,
    saved_bytes,
)
from smdebug.hook.plan import SaveRequest
from smdebug.hook.run.output import DryOutput, RunOutput
from smdebug.hook.stats import CollectionStats, HookStats
from smdebug.hook.steps import Step
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import BlockSchema
from smdebug.storage.format.keys import END_KEY
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing import ReductionContract
from smdebug.testing.runs import default_collections
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from smdebug.reductions import Array

RAW = SaveRequest(True, (), ("a",))
BOTH = SaveRequest(True, ("min", "l2"), ("a", "b"))
NUMBERS = SaveRequest(False, ("max",), ("b",))


def step(number: int) -> Step:
    return Step(number, ModeKeys.TRAIN, number)


def taken(name: str, want: SaveRequest, size: int = 4) -> ArrayCapture:
    return ArrayCapture(name, np.arange(size, dtype=np.float32), want)


def output_in(store: Any, **options: Any) -> RunOutput:
    return RunOutput(store, "worker_0", options.pop("format", "v2"), None, 1 << 20)


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_output_writes_steps_to_a_run(tmp_path: Path, format: str) -> None:
    output = output_in(LocalStore(tmp_path), format=format)
    output.write_collections(default_collections().to_json())
    for number in range(3):
        output.submit(step(number), 1000.0 + number, [taken("x", BOTH), taken("y", NUMBERS)])
        output.finish_step()
    output.flush()
    trial = create_trial(tmp_path)
    assert trial.steps() == [0, 1, 2]
    assert not trial.loaded_all_steps
    np.testing.assert_array_equal(trial.tensor("x").value(1), np.arange(4))
    assert trial.tensor("x").reduction_value(1, "min") == 0
    assert trial.tensor("y").reduction_values(2) == {("max", False): 3.0}
    output.close(end=True)
    assert (tmp_path / END_KEY).exists()
    trial.refresh_data()
    assert trial.loaded_all_steps


def test_close_without_end_writes_no_end_marker() -> None:
    store = MemoryStore()
    output = output_in(store)
    output.write_collections(default_collections().to_json())
    output.submit(step(0), 0.0, [taken("x", RAW)])
    output.close(end=False)
    assert END_KEY not in list(store.list())
    reader = RunReader(store)
    reader.refresh()
    assert set(reader.names()) == {"x"}


def test_a_second_output_of_the_same_worker_is_refused_until_the_first_is_closed(
    tmp_path: Path,
) -> None:
    first = output_in(LocalStore(tmp_path))
    with pytest.raises(SMDebugRuntimeError, match="another live process"):
        output_in(LocalStore(tmp_path))
    first.close(end=False)
    output_in(LocalStore(tmp_path)).close(end=False)


@pytest.mark.parametrize("dry", [False, True])
def test_captures_are_counted_by_collection(dry: bool) -> None:
    output = DryOutput() if dry else output_in(MemoryStore())
    for number in range(3):
        output.submit(step(number), 0.0, [taken("x", BOTH), taken("y", NUMBERS), taken("z", RAW)])
        output.finish_step()
    stats = HookStats()
    output.flush()
    output.update(stats)
    assert stats.collections == {
        "a": CollectionStats(6, 3 * (16 + 16 + 16)),
        "b": CollectionStats(6, 3 * (16 + 16 + 8)),
    }
    assert (stats.bytes > 0) is not dry
    output.close(end=True)


def test_dry_run_logs_each_kind_of_step_once(caplog: pytest.LogCaptureFixture) -> None:
    output = DryOutput()
    output.write_collections("{}")
    for number in range(4):
        items = [taken("x", BOTH)] if number % 2 else [taken("x", BOTH), taken("y", NUMBERS)]
        output.submit(step(number), 0.0, list(items))
        output.finish_step()
    output.submit(step(9), 0.0, [])
    output.close(end=True)
    first, second = [record.getMessage() for record in caplog.records]
    assert first == (
        "dry run: step 0 (TRAIN) would save 2 tensors, 40 B: x (raw, min, l2), y (max)"
    )
    assert second == "dry run: step 1 (TRAIN) would save 1 tensors, 32 B: x (raw, min, l2)"


# ---- what was taken


def test_entry_has_what_was_requested() -> None:
    array = np.array([[3.0, -4.0]], np.float32)
    both = make_entry("x", array, BOTH, 4, 7.0)
    assert both.value is array
    assert both.reductions == {"min": -4.0, "l2": 5.0}
    assert (both.shape, both.dtype, both.time) == ((1, 2), "float32", 7.0)
    assert both.position == 4
    numbers = make_entry("x", array, NUMBERS, 0)
    assert numbers.value is None
    assert numbers.reductions == {"max": 3.0}
    shape = make_entry("x", array, SaveRequest(False, (), ("c",)), 0)
    assert (shape.value, shape.reductions, shape.shape) == (None, {}, (1, 2))


def test_strings_are_saved_without_reductions() -> None:
    entry = make_entry("x", np.array(["a", "b"]), NUMBERS, 0)
    assert entry.value is not None
    assert entry.value.tolist() == ["a", "b"]
    assert entry.reductions == {}


def test_complex_tensor_has_only_real_reductions() -> None:
    want = SaveRequest(False, ("min", "abs_min", "l2", "zeros", "mean"), ("a",))
    entry = make_entry("x", np.array([3 + 4j, 0]), want, 0)
    assert entry.reductions == {"abs_min": 0.0, "l2": 5.0, "zeros": 1.0}


def test_saved_bytes_count_only_what_is_saved() -> None:
    assert saved_bytes(100, RAW) == 100
    assert saved_bytes(100, BOTH) == 116
    assert saved_bytes(100, NUMBERS) == 8


def test_capture_hands_over_its_list_once() -> None:
    capture = StepCapture(step(0), None)
    first, second = taken("x", RAW), taken("y", RAW)
    capture.add(first)
    assert capture.pending == [first]
    capture.handed_over()
    capture.add(second)
    assert capture.pending == [second]
    capture.handed_over()
    assert capture.pending == []


def test_capture_handed_over_twice_is_saved_once() -> None:
    """Ctrl-C may come when the writer has something, and before that is noted."""
    capture = StepCapture(step(0), None)
    for name in "xy":
        capture.add(taken(name, RAW))
    first = pending_batch(step(0), 0.0, capture.pending, lambda each: None)
    capture.add(taken("z", RAW))
    second = pending_batch(step(0), 0.0, capture.pending, lambda each: None)
    assert [entry.name for entry in first.make().entries] == ["x", "y", "z"]
    capture.add(taken("late", RAW))
    assert [entry.name for entry in second.make().entries] == ["late"]


def test_pending_batch_is_made_on_demand() -> None:
    counted: list[Capture] = []
    items: list[Capture] = [taken("x", BOTH), taken("y", RAW)]
    pending = pending_batch(Step(7, ModeKeys.EVAL, 3), 12.5, items, counted.append)
    assert not counted
    assert pending.step == 7
    assert pending.nbytes >= 32
    given = list(items)
    batch = pending.make()
    assert counted == given
    assert (batch.step, batch.mode, batch.mode_step, batch.time) == (7, ModeKeys.EVAL, 3, 12.5)
    assert [entry.name for entry in batch.entries] == ["x", "y"]
    pending.release()


class TestEntry(ReductionContract):
    """The definition keeps the contract that adapters are held to."""

    def reduce(self, array: Array, names: tuple[str, ...]) -> Mapping[str, float]:
        return make_entry("x", array, SaveRequest(False, names, ("a",)), 0).reductions


def test_scalars_of_one_block_are_separate_tensors(tmp_path: Path) -> None:
    layout = BlockSchema(("a", "b"), ("float64", "float32"), ((1,), ()))
    numbers = ScalarsCapture(layout, [0.1, 2.5], RAW)
    assert (numbers.tensors, [size for _, _, size in numbers.items()]) == (2, [8, 4])
    assert [*numbers.totals()] == [(("a",), 2, 12)]
    output = output_in(LocalStore(tmp_path))
    output.write_collections(default_collections().to_json())
    output.submit(step(0), 1000.0, [taken("x", RAW), numbers, taken("y", RAW)])
    output.close(end=True)
    trial = create_trial(str(tmp_path))
    assert trial.tensor("a").value(0) == np.array([0.1])
    assert trial.tensor("b").value(0).dtype == np.float32
    assert trial.tensor("b").value(0) == 2.5
    order = trial.to_arrow(["tensor", "position"]).sort_by("position")["tensor"].to_pylist()
    assert order == ["x", "a", "b", "y"]
