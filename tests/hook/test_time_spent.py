"""The seconds that `stats()` reports are those that training has waited."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.hook.numpy_hook import NumpyHook

from smdebug import SaveConfig

if TYPE_CHECKING:
    from pathlib import Path

LARGE = np.ones(1 << 23, np.float32)


class SavesAnother:
    """A tensor that saves another one when it is converted: the hook is entered twice."""

    def __init__(self, hook: NumpyHook) -> None:
        self._hook = hook

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._hook.save_tensor("inner", LARGE, "default")
        return np.ones(2)


def test_nested_section_is_counted_once(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_all=True, save_config=SaveConfig(save_interval=1))
    hook.run(weight=np.ones(2))
    for _ in range(5):
        before = hook.stats().seconds
        began = time.perf_counter()
        hook.run(weight=SavesAnother(hook))
        elapsed = time.perf_counter() - began
        assert 0 < hook.stats().seconds - before <= elapsed
    hook.close()
