"""A number of many tensors over many steps: which cell holds what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing import make_run
from smdebug.trials import index_rows
from smdebug.trials.plot import heatmap as subject
from smdebug.trials.plot.heatmap import all_steps, listed_steps, read_heatmap, spread
from smdebug.trials.trial import Trial

STEPS, WORKERS = 31, ("worker_0", "worker_1")
TENSORS = ("first", "second", "third", "fourth", "fifth")
BAD = {("second", 7): np.nan, ("fourth", 12): np.inf}


def tensor(name: str, step: int, worker: str) -> Any:
    random = np.random.default_rng([step, *worker.encode(), *name.encode()])
    array = random.normal(size=(4, 3))
    array[0, 0] = BAD.get((name, step), array[0, 0])
    return array


def mean(name: str, step: int, worker: str = WORKERS[0]) -> float:
    return float(tensor(name, step, worker).mean())


def batch(worker: str, step: int) -> StepBatch:
    """Means at even steps, the tensors themselves at odd ones; EVAL is every third step."""
    entries = [Entry("words", np.array(["text"]))]
    for name in TENSORS:
        if (name, worker) == ("fifth", WORKERS[0]):
            continue
        if step % 2:
            entries.append(Entry(name, tensor(name, step, worker)))
        else:
            entries.append(Entry(name, reductions={"mean": mean(name, step, worker)}))
    mode, mode_step = (ModeKeys.EVAL, step // 3) if step % 3 == 0 else (ModeKeys.TRAIN, step)
    return StepBatch(step, mode, mode_step, entries)


@pytest.fixture(scope="module")
def trial() -> Trial:
    store = MemoryStore()
    make_run(store, range(STEPS), WORKERS, data=batch)
    return Trial("made", store=store)


@pytest.fixture(params=["all at once", "little by little"])
def amount(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "little by little":
        monkeypatch.setattr(subject, "_MAX_ROWS", 1)
        monkeypatch.setattr(index_rows, "CHUNK_BYTES", 1)


def check_cell(found: subject.HeatmapData, row: int, column: int, numbers: list[float]) -> None:
    finite = [number for number in numbers if np.isfinite(number)]
    assert found.present[row, column]
    assert found.non_finite[row, column] == (len(finite) < len(numbers))
    expected = max(finite, key=abs) if finite else numbers[0]
    np.testing.assert_allclose(found.values[row, column], expected, rtol=1e-12)


@pytest.mark.usefixtures("amount")
def test_steps_that_share_columns(trial: Trial) -> None:
    told: list[tuple[int, int]] = []
    found = read_heatmap(
        trial, TENSORS, "mean", all_steps(trial, 7), ModeKeys.GLOBAL,
        progress=lambda *pair: told.append(pair),
    )  # fmt: skip
    assert (found.tensors, found.steps_per_column, found.computed) == (list(TENSORS), 5, True)
    assert found.steps.tolist() == [0, 5, 10, 15, 20, 25, 30]
    assert (7, 7) in told
    for row, name in enumerate(TENSORS):
        # Of two workers the first that has it.
        worker = WORKERS[name == "fifth"]
        for column, begin in enumerate(range(0, STEPS, 5)):
            steps = range(begin, min(begin + 5, STEPS))
            check_cell(found, row, column, [mean(name, step, worker) for step in steps])


@pytest.mark.usefixtures("amount")
def test_steps_of_a_mode_and_a_worker(trial: Trial) -> None:
    columns = listed_steps(trial, [0, 3, 4, 9, 77], ModeKeys.EVAL)
    found = read_heatmap(trial, ["third", "nowhere", "words"], "mean", columns, ModeKeys.EVAL,
                      WORKERS[1])  # fmt: skip
    # There is no step 77, and text has no mean.
    assert (found.tensors, found.steps.tolist()) == (["third", "words"], [0, 3, 4, 9])
    assert found.absent == ["nowhere"]
    assert found.present.tolist() == [[True] * 4, [False] * 4]
    for column, step in enumerate([0, 9, 12, 27]):
        check_cell(found, 0, column, [mean("third", step, WORKERS[1])])
    shared = read_heatmap(trial, ["first"], "mean", all_steps(trial, 100), ModeKeys.EVAL)
    assert shared.without_empty_columns().steps.tolist() == list(range(11))
    for column, step in enumerate(range(0, STEPS, 3)):
        check_cell(shared.without_empty_columns(), 0, column, [mean("first", step)])


def test_what_is_left_out(trial: Trial) -> None:
    at_bad_steps = listed_steps(trial, [7, 12], ModeKeys.GLOBAL)
    found = read_heatmap(trial, TENSORS, "mean", at_bad_steps, ModeKeys.GLOBAL, max_tensors=3)
    assert found.tensors == ["first", "third", "fifth"]
    # Of those that are not shown nothing is computed: NaN at step 7 was not saved as a number.
    assert (found.hidden, found.hidden_non_finite) == (2, 1)


def test_places_are_evenly_spread() -> None:
    assert [spread(*pair) for pair in ((0, 3), (1, 3), (5, 1), (5, 0))] == [[], [0], [0], []]
    assert spread(10, 4) == [0, 3, 6, 9]


def test_a_number_that_complex_tensors_have_not() -> None:
    def data(worker: str, step: int) -> StepBatch:
        entries = [Entry("complex", np.array([3j, 4.0])), Entry("real", np.array([1.0, 3.0]))]
        return StepBatch(step, ModeKeys.TRAIN, step, entries)

    store = MemoryStore()
    make_run(store, range(2), data=data)
    trial = Trial("made", store=store)
    columns = listed_steps(trial, [0, 1], ModeKeys.GLOBAL)
    for number, there, values in (("std", False, [1.0, 1.0]), ("l2", True, [10**0.5] * 2)):
        found = read_heatmap(trial, ["complex", "real"], number, columns, ModeKeys.GLOBAL)
        assert found.present.tolist() == [[there] * 2, [True] * 2]
        np.testing.assert_allclose(found.values[1], values)
        np.testing.assert_allclose(found.values[0][found.present[0]], [5.0, 5.0] if there else [])
