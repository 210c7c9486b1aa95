"""Switching the refreshing of trials on and off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from smdebug.analysis.utils import no_refresh, parse_bool, parse_list_from_str, refresh
from smdebug.exceptions import SMDebugValueError
from smdebug.testing.runs import make_run
from smdebug.trials import Trial, create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    Switch = Callable[[Any], AbstractContextManager[list[Trial]]]


@pytest.fixture
def trials(tmp_path: Path) -> list[Trial]:
    """Two live trials."""
    for name in ("a", "b"):
        make_run(tmp_path / name, [0], end=False)
    return [create_trial(tmp_path / name) for name in ("a", "b")]


def switches(trials: list[Trial]) -> list[bool]:
    return [trial.dynamic_refresh for trial in trials]


def test_a_trial_refreshes_unless_told_not_to(trials: list[Trial], tmp_path: Path) -> None:
    (trial, _) = trials
    with no_refresh(trial):
        make_run(tmp_path / "a", [1], end=False)
        assert trial.steps() == [0]
        assert trial.tensor("loss").steps() == [0]
        assert trial.tensor_names(step=1) == []
        # Asked for by name it happens all the same.
        trial.refresh_data()
        assert trial.steps() == [0, 1]
    trial.wait_for_steps([1])
    assert trial.steps() == [0, 1]


def test_what_came_meanwhile_is_seen_afterwards(trials: list[Trial], tmp_path: Path) -> None:
    (trial, _) = trials
    with no_refresh(trial):
        make_run(tmp_path / "a", [1], end=True)
        assert not trial.loaded_all_steps
    trial.wait_for_steps([1], timeout=30)
    assert trial.steps() == [0, 1]


@pytest.mark.parametrize(("switch", "inside"), [(no_refresh, False), (refresh, True)])
@pytest.mark.parametrize("before", [[True, True], [False, False], [True, False]])
def test_what_was_before_comes_back(
    trials: list[Trial], switch: Switch, inside: bool, before: list[bool]
) -> None:
    for trial, on in zip(trials, before, strict=True):
        trial.dynamic_refresh = on
    with switch(trials):
        assert switches(trials) == [inside, inside]
    assert switches(trials) == before


@pytest.mark.parametrize("switch", [no_refresh, refresh])
@pytest.mark.parametrize("before", [True, False])
def test_it_comes_back_after_an_exception(
    trials: list[Trial], switch: Switch, before: bool
) -> None:
    for trial in trials:
        trial.dynamic_refresh = before
    with pytest.raises(ZeroDivisionError), switch(trials):
        raise ZeroDivisionError
    assert switches(trials) == [before, before]


def test_blocks_nest(trials: list[Trial]) -> None:
    with no_refresh(trials):
        with refresh(trials[0]):
            assert switches(trials) == [True, False]
            with no_refresh(trials):
                assert switches(trials) == [False, False]
            assert switches(trials) == [True, False]
        assert switches(trials) == [False, False]
        with no_refresh(trials):
            pass
        assert switches(trials) == [False, False]
    assert switches(trials) == [True, True]


@pytest.mark.parametrize("kind", [list, tuple, set, iter])
def test_one_or_many(trials: list[Trial], kind: Any) -> None:
    with no_refresh(kind(trials)) as inside:
        assert set(inside) == set(trials)
        assert switches(trials) == [False, False]
    assert switches(trials) == [True, True]
    with no_refresh(trials[1]) as inside:
        assert inside == [trials[1]]
        assert switches(trials) == [True, False]
    with no_refresh([]) as inside:
        assert inside == []


def test_the_same_trial_twice(trials: list[Trial]) -> None:
    (trial, _) = trials
    with no_refresh([trial, trial]):
        assert trial.dynamic_refresh is False
    assert trial.dynamic_refresh is True


def test_something_that_is_no_trial_changes_nothing(trials: list[Trial]) -> None:
    with pytest.raises((AttributeError, TypeError)), no_refresh([trials[0], "no trial"]):  # type: ignore[list-item]
        pass
    assert trials[0].dynamic_refresh is True


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, []),
        ("", []),
        ("a", ["a"]),
        (" a, b ,,c ", ["a", "b", "c"]),
        (["a", "b"], ["a", "b"]),
        (("a",), ["a"]),
    ],
)
def test_lists_from_text(given: Any, expected: list[str]) -> None:
    assert parse_list_from_str(given) == expected


def test_lists_with_another_delimiter() -> None:
    assert parse_list_from_str("a;b", ";") == ["a", "b"]
    with pytest.raises(SMDebugValueError):
        parse_list_from_str(3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(True, True), (False, False), ("True", True), (" no ", False), ("0", False), (1, True)],
)
def test_bools(given: Any, expected: bool) -> None:
    assert parse_bool(given) is expected
    assert parse_bool(None, default=expected) is expected
    with pytest.raises(SMDebugValueError):
        parse_bool("perhaps")
