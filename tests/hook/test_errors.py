"""What happens when saving fails."""

from __future__ import annotations

import logging

import pytest

from smdebug.exceptions import WriteFailed
from smdebug.hook.errors import ErrorPolicy


def failure(text: str = "no space") -> OSError:
    try:
        raise OSError(text)
    except OSError as error:
        return error


def test_without_a_failure_nothing_is_raised() -> None:
    for on_error in ("warn", "raise"):
        guard = ErrorPolicy(on_error)
        guard.raise_pending()
        assert guard.failure is None


def test_a_warning_has_the_traceback_and_comes_once(caplog: pytest.LogCaptureFixture) -> None:
    guard, error = ErrorPolicy("warn"), failure()
    guard.caught(error)
    guard.caught(failure("another"))
    guard.raise_pending()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "OSError: no space" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert "Traceback" in caplog.text
    assert guard.failure is error


def test_on_error_raise_raises_the_first_failure_once(caplog: pytest.LogCaptureFixture) -> None:
    guard, error = ErrorPolicy("raise"), failure()
    guard.caught(error)
    guard.caught(failure("another"))
    assert caplog.records == []
    with pytest.raises(OSError, match="no space") as caught:
        guard.raise_pending()
    assert caught.value is error
    guard.raise_pending()
    assert guard.failure is error


def test_lost_steps_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    error = WriteFailed("no space")
    error.lost_steps = (4, 2, 9)
    ErrorPolicy("warn").caught(error)
    assert "3 steps, 2, 4, 9" in caplog.text
