"""A part of a run: which rows are in it, in which order, and what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.trials.mixed_run import STEPS, WORKERS, make_mixed

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.testing import make_run
from smdebug.trials import create_trial
from smdebug.trials.selection import Selection, groups, pieces

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials.trial import Trial

Key = tuple[str, int, str]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    path = tmp_path_factory.mktemp("mixed") / "run"
    make_mixed(path)
    return create_trial(str(path))


def keys(selection: Selection, **options: Any) -> list[Key]:
    found: list[Key] = []
    for table in selection.tables([], **options):
        columns = [table[name].to_pylist() for name in ("worker", "step", "tensor")]
        found += zip(*columns, strict=True)
    return found


@pytest.mark.parametrize("most_rows", [1, 60, 10**6])
def test_all_rows_by_step_worker_and_place(trial: Trial, most_rows: int, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    found = keys(Selection(trial), tell=lambda *numbers: told.append(numbers), most_rows=most_rows)
    truth = make_mixed(tmp_path / "again")
    assert set(found) == set(truth)
    assert len(found) == len(truth)
    names = [name for worker, step, name in truth if (worker, step) == (WORKERS[0], 0)]
    expected = [
        (worker, step, name) for step in STEPS for worker in sorted(WORKERS) for name in names
    ]
    assert found == expected
    assert told[-1] == (len(STEPS), len(STEPS))


def test_parts(trial: Trial) -> None:
    everything = keys(Selection(trial))
    for chosen, kept in (
        ({"tensor": "^plain/u?int8"}, lambda key: key[2] in ("plain/int8", "plain/uint8")),
        ({"collection": "losses"}, lambda key: key[2] in ("loss", "nan_loss")),
        ({"collection": "losses", "tensor": "nan"}, lambda key: key[2] == "nan_loss"),
        ({"collection": "all"}, lambda key: True),
        ({"mode": ModeKeys.EVAL}, lambda key: key[1] == 2),
        ({"worker": "host b/1"}, lambda key: key[0] == "host b/1"),
        ({"steps": (1, 40)}, lambda key: key[1] in (1, 2)),
        ({"steps": (None, 2)}, lambda key: key[1] < 2),
        ({"steps": (40, None)}, lambda key: key[1] >= 40),
        ({"worker": WORKERS[0], "mode": ModeKeys.TRAIN, "steps": (2, None), "tensor": "^loss$"},
         lambda key: key[0] == WORKERS[0] and key[1] >= 40 and key[2] == "loss"),
    ):  # fmt: skip
        selection = Selection(trial, **chosen)
        assert keys(selection) == [key for key in everything if kept(key)], chosen
        assert not selection.whole
    assert Selection(trial).whole
    part = Selection(trial).of_worker(WORKERS[0])
    assert keys(part) == [key for key in everything if key[0] == WORKERS[0]]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"tensor": "fc.wieght"}, "did you mean fc.weight"),
        ({"tensor": "["}, "must be a regular expression, got '['"),
        ({"collection": "loses"}, "did you mean 'losses'"),
        ({"collection": "losses", "tensor": "^plain"}, "with none"),
        ({"mode": ModeKeys.PREDICT}, "got 'predict'"),
        ({"worker": "worker_1"}, "did you mean 'worker_0'"),
        ({"steps": (41, 1001)}, "has steps from 0 to 1001"),
        ({"steps": (5, 5)}, "first < end"),
    ],
    ids=["tensor", "regex", "collection", "both", "mode", "worker", "steps", "range"],
)
def test_what_the_run_does_not_have(trial: Trial, chosen: dict[str, Any], said: str) -> None:
    with pytest.raises(SMDebugValueError, match=re.escape(said)):
        Selection(trial, **chosen)


def test_a_run_without_steps(tmp_path: Path) -> None:
    make_run(tmp_path, steps=[])
    with pytest.raises(SMDebugValueError, match="must hold saved steps"):
        Selection(create_trial(str(tmp_path)))


def test_pieces_and_groups(trial: Trial) -> None:
    (table,) = Selection(trial).tables(["length"], most_rows=10**6)
    for limits in ((1, 10**6), (10**9, 7), (10**9, 10**6), (300, 5)):
        parts = list(pieces(table, *limits))
        assert [row for part in parts for row in part.to_pylist()] == table.to_pylist()
        for part in parts:
            sizes = [length or 0 for length in part["length"].to_pylist()]
            assert part.num_rows <= limits[1]
            assert part.num_rows == 1 or sum(sizes) <= limits[0] or not any(sizes[1:])
    found = [
        group.select(["step", "worker"]).to_pylist() for group in groups(table, ("step", "worker"))
    ]
    assert len(found) == len(STEPS) * len(WORKERS)
    assert all(row == group[0] for group in found for row in group)
