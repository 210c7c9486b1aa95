"""The thread that evaluates rules next to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_local_run_is_evaluated_as_often_as_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    remote: list[bool] = []

    def interval(age: float, is_remote: bool, flush_seconds: float | None) -> float:
        remote.append(is_remote)
        return 60.0

    monkeypatch.setattr("smdebug.hook.rules.rule_thread.flush_interval", interval)
    hook = NumpyHook(f"{scheme}{tmp_path}/run", rules=["VanishingGradient"])
    hook.run(gradient__a=np.ones(3))
    hook.close()
    assert set(remote) == {False}
