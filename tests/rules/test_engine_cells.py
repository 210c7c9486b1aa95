"""The cells of a frame: several reductions of the same tensors, laid out alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import TRAIN, collections, entry

from smdebug.rules.rule_frames import frame_of_steps
from smdebug.rules.tensor_choice import TensorChoice
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials.frame import Frame

READS = ("min", "max", "l2")
A, B = np.array([3.0, -4.0]), np.array([[1.0, 2.0, 2.0]])


@pytest.fixture
def frame(tmp_path: Path) -> Frame:
    """`a` itself at 0 and its max at 1, `b` reduced at 1 and a shape of `c` at 2."""
    steps: dict[int, list[Any]] = {
        0: [entry("a", A, None), entry("s", np.array(5.0), None)],
        1: [entry("a", A, ["max"]), entry("b", B, ["min", "l2"])],
        2: [Entry("c", None, {"max": 1.0}, None)],
    }
    make_run(
        tmp_path,
        steps,
        data=lambda worker, step: StepBatch(step, TRAIN, step, steps[step]),
        collections=collections(),
    )
    return frame_of_steps(create_trial(str(tmp_path)), 0, 3, READS)


def test_cells_are_all_that_was_saved(frame: Frame) -> None:
    cells = frame.where_saved(lambda name: name != "c")
    assert cells.steps.tolist() == [0, 1]
    assert [column.tensor for column in cells.columns] == ["a", "s", "b"]
    assert cells.present.tolist() == [[True, True, False], [True, False, True]]
    assert np.isnan(cells.values).all()


def test_numbers_lie_on_cells(frame: Frame) -> None:
    cells = frame.where_saved(lambda name: True)
    for name, truth in [
        ("min", {(0, "a"): -4, (0, "s"): 5, (1, "b"): 1}),
        ("max", {(0, "a"): 3, (0, "s"): 5, (1, "a"): 3, (2, "c"): 1}),
        ("l2", {(0, "a"): 5, (0, "s"): 5, (1, "b"): 3}),
    ]:
        values, known = cells.read(name)
        found = {
            (int(cells.steps[row]), cells.columns[place].tensor): values[row, place]
            for row, place in np.argwhere(known).tolist()
        }
        assert found == truth
        assert np.isnan(values[~known]).all()


def test_nothing_is_read_that_is_not_asked_for(
    frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = frame.where_saved(lambda name: True)
    read: list[Any] = []
    real = frame.trial.row_values

    def noted(rows: Any) -> Any:
        read.append(rows)
        return real(rows)

    monkeypatch.setattr(frame.trial, "row_values", noted)
    nowhere = np.zeros(cells.present.shape, bool)
    assert not cells.read("min", nowhere)[1].any()
    assert read == []
    assert cells.read("min", ~nowhere)[1].any()
    assert read


def test_where_the_tensors_are(frame: Frame) -> None:
    cells = frame.where_saved(lambda name: True)
    saved = [
        (int(cells.steps[row]), cells.columns[place].tensor)
        for row, place in np.argwhere(cells.has_value).tolist()
    ]
    assert saved == [(0, "a"), (0, "s")]


def test_sizes_that_are_not_known(frame: Frame) -> None:
    cells = frame.where_saved(lambda name: True)
    sizes = {
        (int(cells.steps[row]), cells.columns[place].tensor): cells.sizes(-1)[row, place]
        for row, place in np.argwhere(cells.present).tolist()
    }
    assert sizes == {(0, "a"): 2, (0, "s"): 1, (1, "a"): 2, (1, "b"): 3, (2, "c"): -1}
    assert cells.sizes()[2].max() == 0


def test_no_cells(frame: Frame) -> None:
    cells = frame.where_saved(lambda name: False)
    values, known = cells.read("min")
    assert values.shape == known.shape == cells.has_value.shape == (0, 0)


def test_needs_of_a_choice() -> None:
    needs = TensorChoice("weights,biases", "relu,tanh").needs("mine", ("min",), raw=True)
    assert [(each.collection, each.include_regex) for each in needs] == [
        ("weights", ()),
        ("biases", ()),
        ("mine", ("relu", "tanh")),
    ]
    assert all(each.reductions == ("min",) and each.raw for each in needs)
    assert TensorChoice(everything=True).needs("mine") == ()
