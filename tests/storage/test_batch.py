"""Batches: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch


def test_unsupported_dtype_is_rejected() -> None:
    # Where the mistake is made, not later on the thread, where it would take others with it.
    with pytest.raises(SMDebugTypeError, match="datetime64"):
        Entry("dates", np.zeros(3, "M8[s]"))


@pytest.mark.parametrize("reductions", [{"foo": 1.0}, {"l1_norm": 1.0}, {"l2": 1.0, "L2": 1.0}])
def test_unknown_reductions_are_rejected(reductions: dict[str, float]) -> None:
    with pytest.raises(SMDebugValueError, match="Unknown reductions"):
        Entry("x", reductions=reductions)


@pytest.mark.parametrize(("step", "mode_step"), [(10**12, 0), (1.5, 0), (-1, 0), (0, -1), ("1", 0)])
def test_invalid_steps_are_rejected(step: Any, mode_step: Any) -> None:
    with pytest.raises(SMDebugValueError, match=r"step must be an integer from 0"):
        StepBatch(step, ModeKeys.TRAIN, mode_step, [])
