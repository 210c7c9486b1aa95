"""Everything that can be asked of a tensor, in both formats, compared with what was written."""

from __future__ import annotations

import logging
import mmap
import shutil
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from smdebug.exceptions import (
    DataCorrupted,
    InvalidWorker,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugTypeError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.format.keys import index_key
from smdebug.storage.run_id import run_ids
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2.index import IndexRow, encode_index, newest_rows, rows_to_table
from smdebug.testing.runs import make_run
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Rich = tuple[str, dict[tuple[str, int], StepBatch]]

GLOBAL, TRAIN, EVAL = ModeKeys.GLOBAL, ModeKeys.TRAIN, ModeKeys.EVAL
WORKERS = ["worker_0", "worker_1"]
TRAIN_STEPS = {0: 0, 2: 2, 4: 4, 9: 7}


@pytest.fixture(scope="module")
def trial(rich: Rich) -> Trial:
    return create_trial(rich[0])


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore("memory://place")
    monkeypatch.setattr("smdebug.trials.trial.open_store", lambda path: store)
    return store


def make_entry(rich: Rich, name: str, step: int, worker: str = "worker_0") -> Entry:
    return next(entry for entry in rich[1][worker, step].entries if entry.name == name)


def raw_of(rich: Rich, name: str, step: int, worker: str = "worker_0") -> Any:
    value = make_entry(rich, name, step, worker).value
    assert value is not None
    return value


def one(name: str, value: Any, **more: Any) -> Callable[[str, int], StepBatch]:
    """Gives a batch of one tensor; `value` may depend on the step."""

    def data(worker: str, step: int) -> StepBatch:
        found = value(step) if callable(value) else value
        return StepBatch(step, TRAIN, step, [Entry(name, found, **more)])

    return data


# ---- steps and workers


def test_steps(trial: Trial) -> None:
    both = trial.tensor("both")
    assert both.steps() == both.steps(show_incomplete_steps=True) == list(TRAIN_STEPS)
    assert both.steps(TRAIN) == list(TRAIN_STEPS.values())
    assert both.steps(EVAL) == both.steps(ModeKeys.PREDICT) == []
    loss = trial.tensor("loss")
    assert loss.steps() == [0, 2, 4, 5, 6, 9]
    assert loss.steps(mode=EVAL) == [0, 1]
    assert trial.tensor("eval_only").steps() == [5, 6]
    assert trial.tensor("mixed").steps() == [0, 2, 4, 9]
    assert trial.tensor("bare").steps() == [0, 2, 4, 9]
    assert trial.tensor("empty").steps() == [0, 2, 4, 9]


@pytest.mark.parametrize(
    ("step", "n", "mode", "expected"),
    [
        (9, None, GLOBAL, [0, 2, 4, 5, 6, 9]),
        (6, None, GLOBAL, [0, 2, 4, 5, 6]),
        (8, 2, GLOBAL, [5, 6]),
        (9, 2, GLOBAL, [6, 9]),
        (9, 100, GLOBAL, [0, 2, 4, 5, 6, 9]),
        (9, 0, GLOBAL, []),
        (0, 3, GLOBAL, [0]),
        (-1, None, GLOBAL, []),
        (1000, 1, GLOBAL, [9]),
        (6, 2, TRAIN, [2, 4]),
        (7, 2, TRAIN, [4, 7]),
        (1, None, EVAL, [0, 1]),
        (1, None, ModeKeys.PREDICT, []),
    ],
)
def test_prev_steps(
    trial: Trial, step: int, n: int | None, mode: ModeKeys, expected: list[int]
) -> None:
    assert trial.tensor("loss").prev_steps(step, n, mode) == expected


def test_workers(trial: Trial) -> None:
    assert trial.tensor("loss").workers(5) == WORKERS
    assert trial.tensor("loss").workers(1, EVAL) == WORKERS
    assert trial.tensor("second").workers(0) == ["worker_1"]
    for step, mode in ((1, GLOBAL), (10, GLOBAL), (5, TRAIN), (-1, GLOBAL)):
        with pytest.raises(TensorUnavailableForStep) as caught:
            trial.tensor("loss").workers(step, mode)
        assert (caught.value.tname, caught.value.step, caught.value.mode) == ("loss", step, mode)


def test_step_is_gone(trial: Trial) -> None:
    with pytest.raises(SMDebugNotImplementedError):
        trial.tensor("loss").step(0)


def test_attributes(trial: Trial) -> None:
    loss = trial.tensor("loss")
    assert (loss.name, loss.original_name) == ("loss", "loss")
    assert loss.trial is trial


# ---- values


@pytest.mark.parametrize("name", ["loss", "count", "fc/weight:0", "both", "big", "text", "empty"])
@pytest.mark.parametrize("worker", WORKERS)
def test_value(trial: Trial, rich: Rich, name: str, worker: str) -> None:
    tensor = trial.tensor(name)
    for step, mode_step in TRAIN_STEPS.items():
        written = raw_of(rich, name, step, worker)
        for value in (
            tensor.value(step, worker=worker),
            tensor.value(mode_step, TRAIN, worker),
            tensor.values(worker=worker)[step],
            tensor.values(TRAIN, worker)[mode_step],
        ):
            assert value.shape == written.shape
            assert value.dtype == written.dtype
            assert not value.flags.writeable
            np.testing.assert_array_equal(value, written)


def test_value_of_short_floats(trial: Trial, rich: Rich, format: str) -> None:
    written = raw_of(rich, "half", 2)
    value = trial.tensor("half").value(2)
    # The old format has no such type: it is stored wider, with the same numbers.
    assert value.dtype == (np.float32 if format == "v1" else ml_dtypes.bfloat16)
    np.testing.assert_array_equal(value.astype(np.float32), written.astype(np.float32))


def test_the_first_worker_speaks_when_none_is_named(trial: Trial, rich: Rich) -> None:
    tensor = trial.tensor("fc/weight:0")
    np.testing.assert_array_equal(tensor.value(2), raw_of(rich, "fc/weight:0", 2, "worker_0"))
    np.testing.assert_array_equal(tensor.values()[2], raw_of(rich, "fc/weight:0", 2, "worker_0"))
    # Where only the second has it, it is the first.
    second = trial.tensor("second")
    np.testing.assert_array_equal(second.value(2), raw_of(rich, "second", 2, "worker_1"))


def test_global_numbers_find_tensors_of_other_modes(trial: Trial, rich: Rich) -> None:
    tensor = trial.tensor("eval_only")
    np.testing.assert_array_equal(tensor.value(6), raw_of(rich, "eval_only", 6))
    np.testing.assert_array_equal(tensor.value(1, EVAL), raw_of(rich, "eval_only", 6))
    assert list(tensor.values()) == [5, 6]
    assert list(tensor.values(EVAL)) == [0, 1]
    assert tensor.values(TRAIN) == {}
    loss = trial.tensor("loss")
    # The same number means another step in each mode.
    assert [float(loss.value(0, mode)) for mode in (GLOBAL, TRAIN, EVAL)] == [8, 8, 508]


def test_values_leaves_out_steps_without_a_value(trial: Trial) -> None:
    assert list(trial.tensor("mixed").values()) == [0, 9]
    assert trial.tensor("gradient/fc").values() == {}
    assert trial.tensor("bare").values() == {}


@pytest.mark.parametrize("steps", [[0], [9, 0], [2, 2, 4], (4,), range(0, 5, 2), [], {0, 9}])
def test_values_of_some_steps(trial: Trial, rich: Rich, steps: Any) -> None:
    values = trial.tensor("big").values(steps=steps)
    assert set(values) == set(steps)
    for step, value in values.items():
        np.testing.assert_array_equal(value, raw_of(rich, "big", step))
    in_mode = trial.tensor("big").values(TRAIN, "worker_1", steps=[7, 0])
    assert sorted(in_mode) == [0, 7]
    np.testing.assert_array_equal(in_mode[7], raw_of(rich, "big", 9, "worker_1"))


def test_values_of_some_steps_leaves_out_what_has_no_value(trial: Trial) -> None:
    assert list(trial.tensor("mixed").values(steps=[0, 2, 4])) == [0]


@pytest.mark.parametrize(
    ("step", "error"), [(1, StepUnavailable), (10, StepUnavailable), (5, TensorUnavailableForStep)]
)
def test_values_of_steps_that_are_not_there(
    trial: Trial, step: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        trial.tensor("big").values(steps=[0, step])


def test_a_cached_value_is_read_once(tmp_path: Path, format: str) -> None:
    written = make_run(tmp_path, range(3), format=format)
    trial = create_trial(tmp_path, cache=True)
    tensor = trial.tensor("fc.weight")
    first = tensor.value(1)
    shutil.rmtree(tmp_path / "events")
    assert tensor.value(1) is first
    np.testing.assert_array_equal(first, written["worker_0", 1].entries[1].value)


# ---- which exception


@pytest.fixture(
    params=["value", "reduction_value", "reduction_values", "shape"],
)
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Asks a tensor one of the questions about a single step."""

    def question(tensor: Any, step: int, mode: ModeKeys = GLOBAL, worker: Any = None) -> Any:
        more = ["mean"] if request.param == "reduction_value" else []
        return getattr(tensor, request.param)(step, *more, mode=mode, worker=worker)

    return question


def test_a_step_that_was_skipped(trial: Trial, ask: Callable[..., Any]) -> None:
    for step, mode in ((1, GLOBAL), (3, TRAIN), (-1, GLOBAL)):
        with pytest.raises(StepUnavailable) as caught:
            ask(trial.tensor("both"), step, mode)
        assert (caught.value.step, caught.value.mode) == (step, mode)


def test_a_step_behind_the_end(trial: Trial, ask: Callable[..., Any]) -> None:
    for step, mode in ((10, GLOBAL), (8, TRAIN), (0, ModeKeys.PREDICT)):
        with pytest.raises(StepUnavailable):
            ask(trial.tensor("both"), step, mode)


def test_a_step_saved_without_the_tensor(trial: Trial, ask: Callable[..., Any]) -> None:
    for step, mode in ((5, GLOBAL), (0, EVAL)):
        with pytest.raises(TensorUnavailableForStep) as caught:
            ask(trial.tensor("both"), step, mode)
        assert (caught.value.tname, caught.value.step, caught.value.mode) == ("both", step, mode)


def test_a_worker_that_does_not_exist(trial: Trial, ask: Callable[..., Any]) -> None:
    for step in (0, 1, 5, 10):
        with pytest.raises(InvalidWorker, match="worker_7"):
            ask(trial.tensor("both"), step, worker="worker_7")


def test_a_worker_that_did_not_save_the_tensor(trial: Trial, ask: Callable[..., Any]) -> None:
    with pytest.raises(InvalidWorker) as caught:
        ask(trial.tensor("second"), 0, worker="worker_0")
    assert caught.value.worker == "worker_0"
    assert "worker_1" in str(caught.value)


@pytest.mark.parametrize("method", ["values", "series", "shapes"])
def test_a_worker_that_does_not_exist_for_many_steps(trial: Trial, method: str) -> None:
    with pytest.raises(InvalidWorker):
        getattr(trial.tensor("both"), method)(worker="worker_7")


def test_a_step_that_may_still_come(
    place: MemoryStore, format: str, ask: Callable[..., Any]
) -> None:
    make_run(place, [0, 10], format=format, end=False)
    tensor = create_trial("memory://place").tensor("fc.weight")
    with pytest.raises(StepNotYetAvailable) as caught:
        ask(tensor, 11)
    assert (caught.value.step, caught.value.mode) == (11, GLOBAL)
    with pytest.raises(StepNotYetAvailable):
        ask(tensor, 0, EVAL)
    with pytest.raises(StepUnavailable):
        ask(tensor, 5)


def test_the_exception_tells_of_reductions(trial: Trial) -> None:
    with pytest.raises(TensorUnavailableForStep, match="reductions") as caught:
        trial.tensor("gradient/fc").value(0)
    assert caught.value.has_reductions
    with pytest.raises(TensorUnavailableForStep) as caught:
        trial.tensor("mixed").value(4)
    assert not caught.value.has_reductions


class Eventful(MemoryStore):
    """Publishes what is pending behind the back of whoever has just listed the index."""

    pending: MemoryStore | None = None

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        keys = super().list(prefix, after)
        if prefix.startswith("index") and self.pending is not None:
            pending, self.pending = self.pending, None
            for key in pending.list():
                self.write(key, [pending.read(key)])
        return keys


def test_a_step_that_appears_while_a_question_is_answered_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, format: str, ask: Callable[..., Any]
) -> None:
    store = Eventful("memory://place")
    monkeypatch.setattr("smdebug.trials.trial.open_store", lambda path: store)
    make_run(store, [0], format=format, end=False)
    trial = create_trial("memory://place")
    tensor = trial.tensor("fc.weight")
    pending = MemoryStore()
    make_run(pending, [1], format=format, end=False)
    trial.refresh_data()
    store.pending = pending
    # Whether the first question sees the step is a matter of luck; that it was saved is not.
    try:
        ask(tensor, 1)
    except StepNotYetAvailable:
        trial.refresh_data()
        ask(tensor, 1)
    assert tensor.steps() == [0, 1]


def test_steps_published_while_values_are_chosen_do_not_mix_up_rows(
    place: MemoryStore, format: str
) -> None:
    written = make_run(place, [0, 1, 2], WORKERS, format, end=False)
    trial = create_trial("memory://place")
    tensor = trial.tensor("fc.weight")

    def steps() -> Iterator[int]:
        yield 0
        # New rows of the first worker push those of the second one down.
        make_run(place, [3, 4], ["worker_0"], format, num_workers=2, end=False)
        trial.refresh_data()
        yield 2

    values = tensor.values(worker="worker_1", steps=steps())
    for step in (0, 2):
        np.testing.assert_array_equal(
            values[step], written["worker_1", step].entries[1].value, err_msg=f"step {step}"
        )


# ---- reductions


def truth(array: Any, name: str) -> float:
    """The definition, in numpy's own words."""
    flat = np.asarray(array, np.float64).reshape(-1)
    flat = np.abs(flat) if name.startswith("abs_") else flat
    functions: dict[str, Callable[[Any], Any]] = {
        "min": np.min,
        "max": np.max,
        "mean": np.mean,
        "std": np.std,
        "variance": np.var,
        "sum": np.sum,
        "prod": np.prod,
        "median": np.median,
        "l1": lambda x: np.linalg.norm(x, 1),
        "l2": lambda x: np.linalg.norm(x, 2),
        "nans": lambda x: np.isnan(x).sum(),
        "infs": lambda x: np.isinf(x).sum(),
        "zeros": lambda x: (x == 0).sum(),
    }
    return float(functions[name.removeprefix("abs_")](flat))


_ALL = ["min", "max", "mean", "std", "variance", "sum", "prod", "median", "l1", "l2"]


@pytest.mark.parametrize("name", [*_ALL, *(f"abs_{name}" for name in _ALL), "nans", "zeros"])
def test_reductions_are_computed_where_they_were_not_saved(
    trial: Trial, rich: Rich, name: str
) -> None:
    tensor = trial.tensor("fc/weight:0")
    expected = [truth(raw_of(rich, "fc/weight:0", step), name) for step in TRAIN_STEPS]
    plain = name.removeprefix("abs_")
    found = [
        tensor.reduction_value(step, plain, abs=name.startswith("abs_")) for step in TRAIN_STEPS
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    steps, values = tensor.series(name)
    assert steps.tolist() == list(TRAIN_STEPS)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, found)
    steps, again = tensor.series(plain, mode=TRAIN, abs=name.startswith("abs_"))
    assert steps.tolist() == list(TRAIN_STEPS.values())
    np.testing.assert_array_equal(again, values)


@pytest.mark.parametrize("worker", WORKERS)
def test_saved_reductions(trial: Trial, rich: Rich, worker: str) -> None:
    tensor = trial.tensor("gradient/fc")
    for step, mode_step in TRAIN_STEPS.items():
        saved = make_entry(rich, "gradient/fc", step, worker).reductions
        expected = {
            ("l2", False): saved["l2"],
            ("mean", True): saved["abs_mean"],
            ("min", False): saved["min"],
        }
        assert tensor.reduction_values(step, worker=worker) == expected
        assert tensor.reduction_values(mode_step, TRAIN, worker) == expected
        assert tensor.reduction_value(step, "l2", worker=worker) == saved["l2"]
        assert tensor.reduction_value(step, "l2_norm", worker=worker) == saved["l2"]
        assert tensor.reduction_value(step, "mean", abs=True, worker=worker) == saved["abs_mean"]
        assert tensor.reduction_value(step, "abs_mean", worker=worker) == saved["abs_mean"]
        with pytest.raises(TensorUnavailableForStep) as caught:
            tensor.reduction_value(step, "mean", worker=worker)
        assert caught.value.has_reductions


def test_saved_and_computed_reductions_agree(trial: Trial, rich: Rich) -> None:
    tensor = trial.tensor("both")
    for step in TRAIN_STEPS:
        array = raw_of(rich, "both", step)
        saved = tensor.reduction_values(step)
        assert set(saved) == {("mean", False), ("std", False), ("max", True)}
        for (name, absolute), value in saved.items():
            full = f"abs_{name}" if absolute else name
            assert value == np.float32(truth(array, full))
            assert value == tensor.reduction_value(step, name, abs=absolute)
        # Computed ones have the same precision as saved ones.
        assert tensor.reduction_value(step, "sum") == np.float32(truth(array, "sum"))


def test_reduction_values_lists_saved_ones_only(trial: Trial) -> None:
    assert trial.tensor("fc/weight:0").reduction_values(0) == {}
    assert trial.tensor("loss").reduction_values(5) == {}
    assert trial.tensor("bare").reduction_values(9) == {("max", False): 9.0}


@pytest.mark.parametrize("name", ["", "mode", "l3", "abs_", "L2", "l1_norm_norm"])
def test_unknown_reductions(trial: Trial, name: str) -> None:
    with pytest.raises(SMDebugValueError, match="reduction"):
        trial.tensor("both").reduction_value(0, name)
    with pytest.raises(SMDebugValueError, match="reduction"):
        trial.tensor("both").series(name)


def test_saved_reductions_that_are_not_finite(place: MemoryStore, format: str) -> None:
    values = [float("nan"), float("inf"), -float("inf"), 1e300, 5e-324, -0.0, 0.1]

    def data(worker: str, step: int) -> StepBatch:
        entry = Entry("g", reductions={"mean": values[step]}, shape=(3,), dtype="float32")
        return StepBatch(step, TRAIN, step, [entry])

    make_run(place, range(len(values)), format=format, data=data)
    tensor = create_trial("memory://place").tensor("g")
    steps, found = tensor.series("mean")
    assert steps.tolist() == list(range(len(values)))
    # Bit for bit.
    assert found.tobytes() == np.array(values).tobytes()
    assert np.float64(tensor.reduction_value(5, "mean")).tobytes() == np.float64(-0.0).tobytes()


# ---- series


def test_series_of_a_scalar(trial: Trial) -> None:
    loss = trial.tensor("loss")
    steps, values = loss.series()
    assert steps.tolist() == [0, 2, 4, 5, 6, 9]
    assert values.tolist() == [8.0, 208.0, 408.0, 508.0, 608.0, 908.0]
    assert values.dtype == np.float32
    steps, values = loss.series(mode=EVAL, worker="worker_1")
    assert steps.tolist() == [0, 1]
    assert values.tolist() == [508.0, 608.0]
    steps, values = loss.series("mean", mode=EVAL)
    assert values.tolist() == [508.0, 608.0]
    steps, values = loss.series(mode=ModeKeys.PREDICT)
    assert len(steps) == len(values) == 0


def test_series_of_integers_too_large_for_floats(trial: Trial) -> None:
    _steps, values = trial.tensor("count").series()
    assert values.dtype == np.int64
    assert values.tolist() == [2**53 + 1 + step for step in (0, 2, 4, 5, 6, 9)]


def test_series_of_mixed_sources(trial: Trial, rich: Rich) -> None:
    """Raw at 0, saved at 2, neither at 4, both at 9."""
    steps, values = trial.tensor("mixed").series("l1")
    assert steps.tolist() == [0, 2, 9]
    assert values.tolist() == [
        np.float32(truth(raw_of(rich, "mixed", 0), "l1")),
        make_entry(rich, "mixed", 2).reductions["l1"],
        np.float32(truth(raw_of(rich, "mixed", 9), "l1")),
    ]
    steps, values = trial.tensor("mixed").series("min")
    assert steps.tolist() == [0, 9]


def test_series_of_some_steps(trial: Trial, rich: Rich) -> None:
    steps, values = trial.tensor("loss").series(mode=TRAIN, steps=[7, 2])
    np.testing.assert_array_equal(steps, [2, 7])
    np.testing.assert_array_equal(values, [make_entry(rich, "loss", step).value for step in (2, 9)])
    steps, norms = trial.tensor("fc/weight:0").series("l2", steps=[4])
    np.testing.assert_array_equal(steps, [4])
    value = make_entry(rich, "fc/weight:0", 4).value
    assert value is not None
    np.testing.assert_allclose(norms, np.linalg.norm(value.astype(np.float64)), rtol=1e-6)
    assert [len(each) for each in trial.tensor("loss").series(steps=[])] == [0, 0]


def test_a_missing_step_is_the_same_error_for_series_and_values(trial: Trial) -> None:
    loss = trial.tensor("loss")
    for read in (loss.series, loss.values):
        with pytest.raises(StepUnavailable, match="nearest saved steps are 6, 9"):
            read(steps=[0, 999])
        with pytest.raises(StepUnavailable, match="nearest saved steps are 0, 2, 4, 7"):
            read(mode=TRAIN, steps=[2, 3])
        with pytest.raises(TensorUnavailableForStep):
            trial.tensor("mixed").series("l1", steps=[0, 5])


def test_values_to_reduce_are_read_some_at_a_time(
    rich: Rich, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = create_trial(rich[0])
    whole = trial.tensor("fc/weight:0").series("std")
    monkeypatch.setattr("smdebug.trials.index_rows.CHUNK_BYTES", 1)
    together = []
    read = trial.row_values

    def noted(table: Any, tensor: str | None = None) -> Any:
        together.append(table.num_rows)
        return read(table, tensor)

    monkeypatch.setattr(trial, "row_values", noted)
    for one, other in zip(whole, trial.tensor("fc/weight:0").series("std"), strict=True):
        np.testing.assert_array_equal(one, other)
    assert together == [1] * len(whole[0])
    assert len(together) > 1


def test_series_of_what_was_never_saved(trial: Trial) -> None:
    for name, reduction in (("gradient/fc", "max"), ("bare", "min"), ("bare", None)):
        steps, values = trial.tensor(name).series(reduction)
        assert steps.tolist() == values.tolist() == []


def test_series_of_an_array_needs_a_reduction(trial: Trial) -> None:
    with pytest.raises(SMDebugValueError, match=r"both.*\(7,\)"):
        trial.tensor("both").series()


def test_series_of_strings(place: MemoryStore, format: str) -> None:
    texts = ["a", "longer", ""]
    make_run(place, range(3), format=format, data=one("t", lambda s: np.array([texts[s]])))
    tensor = create_trial("memory://place").tensor("t")
    assert tensor.series()[1].tolist() == texts
    with pytest.raises(SMDebugTypeError):
        tensor.series("mean")


def test_series_reads_saved_reductions_from_the_index_alone(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    def data(worker: str, step: int) -> StepBatch:
        array = np.arange(4.0) + step
        return StepBatch(step, TRAIN, step, [Entry("x", array, {"mean": float(array.mean())})])

    make_run(tmp_path, range(5), data=data)
    trial = create_trial(tmp_path)
    calls.clear()
    assert trial.tensor("x").series("mean")[1].tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert calls == []


# ---- shapes


def test_shapes(trial: Trial) -> None:
    for name, shape in (
        ("loss", ()), ("fc/weight:0", (3, 4)), ("gradient/fc", (5, 2)), ("both", (7,)),
        ("mixed", (2, 2)), ("text", (3,)), ("empty", (0, 3)), ("big", (200, 200)),
    ):  # fmt: skip
        tensor = trial.tensor(name)
        assert tensor.shape(4) == tensor.shape(4, TRAIN) == tensor.shape(4, worker="worker_1")
        assert tensor.shape(4) == shape
        assert tensor.shapes(TRAIN) == dict.fromkeys(TRAIN_STEPS.values(), shape)
        assert all(isinstance(each, tuple) for each in tensor.shapes(worker="worker_1").values())
    assert trial.tensor("eval_only").shapes() == {5: (3,), 6: (3,)}
    assert trial.tensor("eval_only").shapes(EVAL) == {0: (3,), 1: (3,)}


def test_shapes_that_were_not_saved(trial: Trial) -> None:
    with pytest.raises(ShapeUnavailableForStep) as caught:
        trial.tensor("bare").shape(4, TRAIN)
    assert (caught.value.tname, caught.value.step, caught.value.mode) == ("bare", 4, TRAIN)
    assert trial.tensor("bare").shapes() == {}


def test_a_shape_may_change(place: MemoryStore, format: str) -> None:
    make_run(place, range(3), format=format, data=one("x", lambda s: np.ones((s, 2), np.int16)))
    tensor = create_trial("memory://place").tensor("x")
    assert tensor.shapes() == {0: (0, 2), 1: (1, 2), 2: (2, 2)}
    assert tensor.value(0).shape == (0, 2)
    assert tensor.value(2).dtype == np.int16


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
def test_a_shape_without_a_value(place: MemoryStore, format: str, shape: tuple[int, ...]) -> None:
    make_run(place, [0], format=format, data=one("x", None, shape=shape, dtype="float32"))
    tensor = create_trial("memory://place").tensor("x")
    assert tensor.shape(0) == shape
    assert tensor.shapes() == {0: shape}


# ---- every element type


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
        "complex64",
        "complex128",
    ],
)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5)])
def test_element_types(place: MemoryStore, format: str, dtype: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(5)
    array = np.asarray(random.integers(0, 255, (*shape, np.dtype(dtype).itemsize), np.uint8))
    value = np.asarray(array % 2 if dtype == "bool" else array).view(dtype).reshape(shape)
    make_run(place, [3], format=format, data=one("x", value))
    found = create_trial("memory://place").tensor("x").value(3)
    assert found.dtype == value.dtype
    assert found.shape == value.shape
    assert found.tobytes() == value.tobytes()


# ---- local files


def _root(array: Any) -> Any:
    """What the memory of an array belongs to."""
    seen = array
    while True:
        inner = seen.obj if isinstance(seen, memoryview) else getattr(seen, "base", None)
        if inner is None:
            return seen
        seen = inner


def test_a_large_local_value_is_a_view_on_the_mapped_file(tmp_path: Path, format: str) -> None:
    arrays = {step: np.full((128, 128), step, np.float32) for step in range(3)}
    make_run(tmp_path, range(3), format=format, data=one("x", lambda step: arrays[step]))
    trial = create_trial(tmp_path)
    values = [trial.tensor("x").value(0), trial.tensor("x").values()[1]]
    for value in values:
        assert value.flags.writeable is False
        assert isinstance(_root(value), mmap.mmap)
        with pytest.raises(ValueError, match="read-only"):
            value[0, 0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            value.flags.writeable = True
    if format == "v2":
        assert all(value.flags.aligned for value in values)
    shutil.rmtree(tmp_path)
    for step, value in enumerate(values):
        np.testing.assert_array_equal(value, arrays[step])


# ---- missing and damaged files


def _event_files(path: Path) -> list[Path]:
    return sorted((path / "events").rglob("*.tfevents"))


def test_a_missing_event_file_of_a_finished_run(tmp_path: Path, format: str) -> None:
    make_run(tmp_path, range(3), format=format, flush_every=1)
    _event_files(tmp_path)[1].unlink()
    tensor = create_trial(tmp_path).tensor("fc.weight")
    with pytest.raises(TensorUnavailableForStep) as caught:
        tensor.value(1)
    assert (caught.value.tname, caught.value.step) == ("fc.weight", 1)
    assert tensor.value(0).shape == tensor.value(2).shape == (2, 3)


def test_a_missing_event_file_is_not_waited_for_when_a_later_one_is_there(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "1")
    make_run(tmp_path, range(3), format=format, flush_every=1, end=False)
    _event_files(tmp_path)[1].unlink()
    tensor = create_trial(tmp_path).tensor("fc.weight")
    with caplog.at_level(logging.WARNING), pytest.raises(TensorUnavailableForStep):
        tensor.value(1)
    assert "not there yet" not in caplog.text


def test_a_flipped_byte_is_found_and_named(tmp_path: Path, format: str) -> None:
    written = make_run(tmp_path, range(4), format=format, flush_every=1)
    file = next(f for f in _event_files(tmp_path) if f.parent.name == f"{2:012d}")
    data = bytearray(file.read_bytes())
    content = written["worker_0", 2].entries[1].value
    assert content is not None
    at = data.index(content.tobytes())
    data[at + 5] ^= 0x40
    file.write_bytes(data)
    trial = create_trial(tmp_path)
    tensor = trial.tensor("fc.weight")
    with pytest.raises(DataCorrupted) as caught:
        tensor.value(2)
    error = caught.value
    assert error.key == file.relative_to(tmp_path).as_posix()
    assert error.tensor == "fc.weight"
    assert error.offset is not None
    assert error.offset < at + 5
    for part in (error.key, str(error.offset), "fc.weight"):
        assert part in str(error)
    for step in (0, 1, 3):
        np.testing.assert_array_equal(
            tensor.value(step), written["worker_0", step].entries[1].value
        )
    assert trial.tensor("loss").value(2).shape == ()
    for read in (tensor.values, lambda: tensor.series("mean"), lambda: tensor.values(steps=[1, 2])):
        with pytest.raises(DataCorrupted):
            read()


def test_a_flipped_byte_anywhere_in_an_event_file_is_found(tmp_path: Path, format: str) -> None:
    make_run(tmp_path, [0], format=format, data=one("x", np.arange(4.0)))
    (file,) = _event_files(tmp_path)
    data = file.read_bytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(damaged)
        with pytest.raises(DataCorrupted):
            create_trial(tmp_path).tensor("x").value(0)


def test_an_event_file_that_is_cut(tmp_path: Path, format: str) -> None:
    make_run(tmp_path, range(2), format=format, flush_every=1)
    file = _event_files(tmp_path)[0]
    file.write_bytes(file.read_bytes()[:-1])
    tensor = create_trial(tmp_path).tensor("fc.weight")
    with pytest.raises(DataCorrupted):
        tensor.value(0)
    assert tensor.value(1).shape == (2, 3)


@pytest.mark.parametrize("shape", [(1 << 40,), (2, 3), (0,), (-1,), (0, 1 << 62, 1 << 62)])
def test_a_shape_that_does_not_fit_its_value_makes_no_array(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    make_run(tmp_path, steps=[0])
    row = IndexRow(
        step=1, mode=ModeKeys.TRAIN, mode_step=1, tensor="bomb", time=0.0, position=0,
        dtype="float32", shape=shape, value=1.0,
    )  # fmt: skip
    store = LocalStore(tmp_path)
    (run,) = run_ids(store)
    data = encode_index(newest_rows(rows_to_table([row], "worker_0", 99)), run)
    store.write(index_key(1, 99, "worker_0"), [data])
    with pytest.raises(DataCorrupted, match="of shape"):
        create_trial(tmp_path).tensor("bomb").value(1)
