"""A hook for a loop over NumPy arrays: a complete adapter, without any framework."""

from __future__ import annotations

from typing import Any

from smdebug.hook.adapter import Adapter
from smdebug.hook.hook import BaseHook


class NumpyAdapter(Adapter):
    """The adapter: a step is a call of `run_step`."""

    framework = "NumPy"
    default_collections = {  # noqa: RUF012 - as the base class declares it
        "all": (), "default": (), "weights": ("weight",), "gradients": ("^gradient",),
        "losses": ("loss",), "scalars": ("^scalar",),
    }  # fmt: skip
    always_saved = frozenset({"losses"})

    def run_step(self, tensors: dict[str, Any]) -> None:
        self.pipeline.stop_if_requested()
        if self.pipeline.begin_step() is not None:
            with self.pipeline.guarded:
                for name, array in tensors.items():
                    self.pipeline.offer(name, array)


class NumpyHook(BaseHook):
    """The hook: the public methods of every hook, and one of its own."""

    adapter_class = NumpyAdapter

    def run(self, **tensors: Any) -> None:
        """Run one step that has these tensors; `__` in a name stands for `/`."""
        named = {name.replace("__", "/"): array for name, array in tensors.items()}
        self._adapter.run_step(named)
