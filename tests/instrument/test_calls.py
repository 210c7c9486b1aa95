"""Arguments of calls by name, and calls that no other call makes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from smdebug.instrument.calls import Arguments, report_root_calls


def train(params: Any, data: Any = None, *, evals: Any = None, callbacks: Any = None) -> None:
    """What xgboost.train looks like."""


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2, 3, [4]), {}),
        ((1, 2), {"evals": 3, "callbacks": [4]}),
        ((), {"params": 1, "data": 2, "evals": 3, "callbacks": [4]}),
    ],
)
def test_arguments_by_name_however_they_were_passed(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    arguments = Arguments(train, args, kwargs)
    given = [arguments.get(name) for name in ("params", "data", "evals", "callbacks")]
    assert given == [1, 2, 3, [4]]
    arguments.set("callbacks", [5])
    assert (len(arguments.args), set(arguments.kwargs)) == (len(args), set(kwargs))
    assert arguments.get("callbacks") == [5]
    # The caller's own are not changed.
    assert [4] in (*args, *kwargs.values())


def test_an_argument_that_was_not_passed_is_added_by_name() -> None:
    arguments = Arguments(train, (1,), {})
    assert arguments.get("callbacks") is None
    arguments.set("callbacks", [5])
    assert (arguments.args, arguments.kwargs) == ((1,), {"callbacks": [5]})


def test_invalid_arguments_are_left_to_the_function() -> None:
    arguments = Arguments(train, (1, 2, 3, 4, 5), {"unknown": 6})
    arguments.set("callbacks", [7])
    assert (arguments.args, arguments.kwargs) == ((1, 2, 3, [7], 5), {"unknown": 6})


def test_only_root_calls_are_reported() -> None:
    reported: list[str] = []

    @report_root_calls(lambda: True, reported.append)
    def call(name: str, *parts: str) -> None:
        for part in parts:
            call(part)
        if name == "fails":
            raise ValueError(name)

    call("model", "first", "second")
    with pytest.raises(ValueError, match="fails"):
        call("fails", "third")
    call("next")
    assert reported == ["model", "fails", "next"]


def test_each_thread_has_root_calls_of_its_own() -> None:
    reported: list[str] = []

    @report_root_calls(lambda: True, reported.append)
    def call(name: str) -> None:
        if name == "model":
            thread = threading.Thread(target=call, args=("replica",))
            thread.start()
            thread.join()

    call("model")
    assert reported == ["model", "replica"]


def test_nothing_is_reported_while_inactive() -> None:
    reported: list[str] = []
    active = False
    call = report_root_calls(lambda: active, reported.append)(lambda name: name)
    assert call("first") == "first"
    active = True
    call("second")
    assert reported == ["second"]
