"""Frames, compared with what was written: any run, any selection, in one piece or in chunks."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.exceptions import (
    InvalidWorker,
    SMDebugTypeError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailableForStep,
)
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import compute_reduction
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials import create_trial
from smdebug.trials.frame import Column
from smdebug.trials.index_rows import numbered

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial
    from smdebug.trials.frame import Frame

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL
TENSORS = ("loss", "fc.weight", "fc.bias", "gradient/fc.weight")
WORKERS = ("worker_0", "worker_1")
_NUMBERS = itertools.count()

values = st.sampled_from([0.0, 1.5, -2.0, 3e-8, 7e20, math.nan, math.inf, -math.inf])


@st.composite
def entries(draw: st.DrawFn, name: str) -> Entry:
    """Draw what is saved of a tensor: a number, its raw value, reductions, or both."""
    if name == "loss":
        return Entry(name, np.array(draw(values)))
    array = np.array(draw(st.lists(values, min_size=2, max_size=3)), np.float64)
    kind = draw(st.sampled_from(["raw", "reductions", "both"]))
    numbers = {} if kind == "raw" else {"max": float(compute_reduction(array, "max"))}
    return Entry(name, None if kind == "reductions" else array, numbers, array.shape, "float64")


@st.composite
def runs(draw: st.DrawFn) -> dict[tuple[str, int], StepBatch]:
    """Draw a run: workers, steps of two modes, and which tensors were saved at each."""
    data = {}
    counts = {TRAIN: itertools.count(), EVAL: itertools.count()}
    workers = WORKERS[: draw(st.integers(1, 2))]
    gaps = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    for step in np.cumsum(gaps).tolist():
        mode = draw(st.sampled_from([TRAIN, EVAL]))
        mode_step = next(counts[mode])
        for worker in workers:
            names = draw(st.lists(st.sampled_from(TENSORS), unique=True, min_size=1))
            some = [draw(entries(name)) for name in names]
            data[worker, step] = StepBatch(step, mode, mode_step, some)
    return data


def opened(data: dict[tuple[str, int], StepBatch], format: str) -> Trial:
    url = f"memory://test_frame/{next(_NUMBERS)}"
    workers = sorted({worker for worker, _ in data})
    make_run(url, sorted({step for _, step in data}), workers, format, data)
    return create_trial(url)


def number_of(entry: Entry, reduction: str) -> float | None:
    """Return a number of an entry as a reader may know it."""
    if reduction == "value":
        return entry.number
    if reduction in entry.reductions:
        return entry.reductions[reduction]
    return None if entry.value is None else float(compute_reduction(entry.value, reduction))


def expected(
    data: dict[tuple[str, int], StepBatch], reduction: str, mode: ModeKeys, worker: str | None
) -> dict[tuple[int, str], float]:
    """Return the number of every step and tensor; of the first worker that saved it."""
    found: dict[tuple[int, str], float] = {}
    saved: set[tuple[int, str]] = set()
    for (each, step), batch in sorted(data.items(), key=lambda item: item[0]):
        if worker not in (None, each) or mode not in (GLOBAL, batch.mode):
            continue
        number = step if mode is GLOBAL else batch.mode_step
        for entry in batch.entries:
            if (number, entry.name) not in saved:
                saved.add((number, entry.name))
                value = number_of(entry, reduction)
                if value is not None:
                    found[number, entry.name] = value
    return found


def numbers_in(frame: Frame) -> dict[tuple[int, str], float]:
    return {
        (int(frame.steps[row]), frame.columns[column].tensor): float(frame.values[row, column])
        for row, column in zip(*np.nonzero(frame.present), strict=True)
    }


def assert_same(found: dict[Any, float], truth: dict[Any, float]) -> None:
    assert found.keys() == truth.keys()
    for key, value in truth.items():
        np.testing.assert_array_equal(found[key], value, str(key))


@pytest.mark.parametrize("format", ["v2", "v1"])
@given(
    data=runs(), reduction=st.sampled_from(["max", "mean", "nans", None]),
    mode=st.sampled_from([GLOBAL, TRAIN, EVAL]), worker=st.sampled_from([None, *WORKERS]),
    max_rows=st.integers(1, 40),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_run(
    data: dict[tuple[str, int], StepBatch], reduction: str | None, mode: ModeKeys,
    worker: str | None, max_rows: int, format: str,
) -> None:  # fmt: skip
    trial = opened(data, format)
    options: Any = {"mode": mode, "worker": worker}
    if worker not in (None, *trial.workers()):
        with pytest.raises(InvalidWorker):
            trial.frame(reduction=reduction, **options)
        return
    if mode not in (GLOBAL, *trial.modes()):
        with pytest.raises(SMDebugValueError, match="mode must be GLOBAL or one that"):
            trial.frame(reduction=reduction, **options)
        return
    truth = expected(data, reduction or "value", mode, worker)
    whole = trial.frame(reduction=reduction, **options)
    assert np.all(np.diff(whole.steps) > 0)
    assert_same(numbers_in(whole), truth)
    parts = trial.frames(reduction=reduction, max_rows=max_rows, **options)
    assert_same({key: each for part in parts for key, each in numbers_in(part).items()}, truth)


@given(data=runs(), reduction=st.sampled_from(["max", "mean"]))
@settings(max_examples=40, deadline=None)
def test_a_column_for_each_worker(data: dict[tuple[str, int], StepBatch], reduction: str) -> None:
    frame = opened(data, "v2").frame(reduction=reduction, worker="all")
    for column, (tensor, worker) in enumerate(frame.columns):
        truth = {
            step: number_of(entry, reduction)
            for (each, step), batch in data.items()
            for entry in batch.entries
            if (each, entry.name) == (worker, tensor)
        }
        known = {step: value for step, value in truth.items() if value is not None}
        rows = np.flatnonzero(frame.present[:, column])
        assert_same(
            dict(zip(frame.steps[rows].tolist(), frame.values[rows, column].tolist(), strict=True)),
            known,
        )


# ---- what is selected


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    path = tmp_path_factory.mktemp("frame")
    make_run(path, range(0, 100, 5), data=two_layers)
    return create_trial(path)


def two_layers(worker: str, step: int) -> StepBatch:
    numbers = {"mean": float(step), "l2": step * 2.0}
    some = [
        Entry("gradient/fc10.weight", None, numbers, (2,), "float32"),
        Entry("gradient/fc2.weight", None, numbers, (2,), "float32"),
        Entry("loss", np.array(1.0 / (step + 1))),
    ]
    mode = EVAL if step % 10 else TRAIN
    return StepBatch(step, mode, step // 10, some)


def test_patterns_regexes_and_collections(trial: Trial) -> None:
    both = ["gradient/fc10.weight", "gradient/fc2.weight"]
    assert trial.frame("gradient/*", "mean").tensors == both
    assert trial.frame(r"fc\d+", "mean").tensors == both
    assert trial.frame(["loss", "gradient/fc2.weight"], "mean").tensors == [both[1], "loss"]
    assert trial.frame(collection="losses").tensors == ["loss"]
    with pytest.raises(SMDebugValueError, match=r"did you mean loss"):
        trial.frame("lss", "mean")
    with pytest.raises(SMDebugValueError, match="mean"):
        trial.frame("loss", "avg")
    with pytest.raises(SMDebugValueError, match="empty list"):
        trial.frame("loss", [])


def test_several_reductions(trial: Trial) -> None:
    frame = trial.frame("gradient/*", ["mean", "l2"])
    np.testing.assert_array_equal(frame["l2"].values, 2 * frame.values)
    assert frame["l2"].reduction == "l2"
    table = frame.to_pandas()
    assert list(table.columns)[::3] == ["gradient/fc10.weight:mean", "gradient/fc2.weight:l2"]
    assert table.index.name == "step"
    assert table["gradient/fc2.weight:l2"][15] == 30.0
    with pytest.raises(SMDebugValueError, match="It was read with mean, l2"):
        frame["std"]


def test_steps(trial: Trial) -> None:
    assert trial.frame("loss", steps=[95, 0, 10]).steps.tolist() == [0, 10, 95]
    assert trial.frame("loss", steps=slice(10, 25)).steps.tolist() == [10, 15, 20]
    assert trial.frame("loss", steps=slice(None, 3), mode=EVAL).steps.tolist() == [0, 1, 2]
    assert trial.frame("loss", every=6).steps.tolist() == [0, 30, 60, 90]
    with pytest.raises(StepUnavailable, match="nearest saved steps are 5, 10, 15, 20") as caught:
        trial.frame("loss", steps=[0, 12])
    assert caught.value.nearest == (5, 10, 15, 20)
    with pytest.raises(StepUnavailable, match="nearest saved steps are 90, 95"):
        trial.frame("loss", steps=[999])
    with pytest.raises(SMDebugTypeError, match="steps must be a list of steps or a slice"):
        trial.frame("loss", steps=5)  # type: ignore[arg-type]


def test_a_step_without_the_tensor(tmp_path: Path) -> None:
    data = {
        ("worker_0", step): StepBatch(step, TRAIN, step, [Entry(name, np.array(1.0))])
        for step, name in enumerate(["loss", "accuracy"])
    }
    make_run(tmp_path, [0, 1], data=data)
    with pytest.raises(TensorUnavailableForStep):
        create_trial(tmp_path).frame("loss", steps=[0, 1])


def test_arrow_tells_missing_numbers_from_nan() -> None:
    nan = {("worker_0", step): StepBatch(step, TRAIN, step, some) for step, some in enumerate([
        [Entry("a", np.array(math.nan)), Entry("b", np.array(1.0))], [Entry("b", np.array(2.0))],
    ])}  # fmt: skip
    table = opened(nan, "v2").frame().to_arrow()
    assert table.column_names == ["step", "a", "b"]
    assert table["a"].null_count == 1
    assert math.isnan(table["a"][0].as_py())
    assert table["b"].to_pylist() == [1.0, 2.0]


def test_numbers_of_its_own_stay_with_a_frame(trial: Trial) -> None:
    frame = trial.frame("gradient/*", "l2")
    doubled = frame.with_values(frame.values * 2, frame.present)
    np.testing.assert_array_equal(doubled.every(3).values, frame.values[::3] * 2)
    np.testing.assert_array_equal(doubled.at(frame.steps > 50).values[0], frame.values[11] * 2)
    for names in ("gradient/fc2.weight", "gradient/*"):
        part = frame.select(lambda name, names=names: names.rstrip("*") in name)  # type: ignore[misc]
        largest = part.with_values(part.values * 2, part.present).decimate(6).values.max(axis=0)
        np.testing.assert_array_equal(largest, part.values.max(axis=0) * 2)
    shares = frame.with_values(frame.values[:, :1], frame.present[:, :1], [Column("share")])
    assert shares.tensors == ["share"]
    assert shares.mode_at(5) == frame.mode_at(5) == (EVAL, 0)


def test_select_and_known(trial: Trial) -> None:
    frame = trial.frame(reduction="l2")
    part = frame.select(lambda name: name.startswith("gradient/"), EVAL)
    assert part.shape == (10, 2)
    assert part.modes == [EVAL] * 10
    assert part.mode_steps.tolist() == list(range(10))
    assert part.global_steps.tolist() == list(range(5, 100, 10))
    assert trial.frame(reduction=None).known().tensors == ["loss"]
    assert "20 steps (0 to 95) x 3 tensors" in repr(frame)


def test_plot_draws_what_is_there(trial: Trial) -> None:
    from matplotlib import pyplot

    frame = trial.frame("gradient/*", "l2")
    axes = frame.plot()
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) == len(frame)]
    assert len(lines) == 2
    np.testing.assert_array_equal(lines[0].get_ydata(), frame.values[:, 0])
    with pytest.raises(SMDebugValueError, match="it has no number"):
        trial.frame("loss", "l2", steps=slice(3, 4)).plot()
    pyplot.close("all")


def test_notebooks_show_the_first_and_the_last_steps(trial: Trial) -> None:
    page = trial.frame(["loss", "gradient/fc2.weight"], "mean")._repr_html_()
    assert "20 steps (0 to 95) x 2 tensors" in page
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    assert cells[::3] == ["0", "5", "10", "15", "20", "...", "75", "80", "85", "90", "95"]
    assert cells[1:3] == ["0", "1"]
    assert (
        "&lt;b&gt;"
        in trial.frame("loss")["value"]
        .with_values(np.ones((20, 1)), np.ones((20, 1), bool), [Column("<b>")])
        ._repr_html_()
    )


# ---- decimation


@given(
    numbers=st.lists(st.lists(values, min_size=2, max_size=2), min_size=10, max_size=200),
    max_points=st.integers(3, 30),
)
@settings(max_examples=60, deadline=None)
def test_decimation_keeps_extremes_and_non_finite_values(
    numbers: list[list[float]], max_points: int
) -> None:
    batches = {
        ("worker_0", step): StepBatch(
            step, TRAIN, step,
            [Entry(name, None, {"mean": each}, (2,), "float32")
             for name, each in zip("ab", both, strict=True)],
        )
        for step, both in enumerate(numbers)
    }  # fmt: skip
    trial = opened(batches, "v2")
    for names in ("a", ["a", "b"]):
        whole, less = (trial.frame(names, "mean", max_points=m) for m in (None, max_points))
        assert len(less) <= max(max_points, 3)
        assert np.all(np.diff(less.steps) > 0)
        for column in range(len(whole.columns)):
            before = whole.values[:, column]
            after = less.values[:, column][less.present[:, column]]
            finite = before[np.isfinite(before)]
            if len(finite):
                assert np.nanmin(np.where(np.isinf(after), np.nan, after)) == finite.min()
                assert np.nanmax(np.where(np.isinf(after), np.nan, after)) == finite.max()
            assert np.isfinite(before).all() == np.isfinite(after).all()
        if names == "a":
            places = np.searchsorted(whole.steps, less.steps)
            np.testing.assert_array_equal(less.values, whole.values[places])


@given(st.lists(st.integers(-5, 5) | st.integers(-(10**15), 10**15), max_size=50))
def test_numbered_is_unique(codes: list[int]) -> None:
    array = np.array(codes, np.int64)
    for found, truth in zip(numbered(array), np.unique(array, return_inverse=True), strict=True):
        np.testing.assert_array_equal(found, truth)
