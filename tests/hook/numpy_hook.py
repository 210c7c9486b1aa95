"""A hook whose framework is numpy: the pipeline without anybody's callbacks."""

from __future__ import annotations

from typing import Any

from smdebug.config.options import HookOptions
from smdebug.hook.base import BaseHook


class NumpyHook(BaseHook):
    """A hook whose framework is a loop over arrays."""

    default_collections = {  # noqa: RUF012 - as the base class declares it
        "all": (), "default": (), "weights": ("weight",), "gradients": ("^gradient",),
        "losses": ("loss",), "scalars": ("^scalar",),
    }  # fmt: skip
    always_saved = frozenset({"losses"})

    def __init__(self, out_dir: Any = None, **options: Any) -> None:
        super().__init__(HookOptions(out_dir, **options))

    def run(self, **tensors: Any) -> None:
        """One step that has these tensors."""
        self._stop_if_asked()
        if self._begin_step() is None:
            return
        with self._entered():
            for name, tensor in tensors.items():
                self._offer(name.replace("__", "/"), tensor)
