"""The instrumented job: its config, and the one hook that it gets."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from smdebug.config import environment
from smdebug.hook.hook import BaseHook
from smdebug.hook.module_api import current_hook

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("smdebug.instrument")

_Hook = TypeVar("_Hook", bound=BaseHook)


class InstrumentedJob:
    """Creates the hook of a script when its training starts.

    A run belongs to one framework: the first one that trains gets the hook. A script that creates
    a hook itself is not instrumented.

    Args:
        config: the JSON config.

    Attributes:
        hook: the hook, once it has been created.
        has_trainer: whether a trainer begins the steps, so that no modules have to be found.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._skipped: set[str] = set()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.hook: BaseHook | None = None
        self.has_trainer = False

    def hook_for(self, kind: type[_Hook]) -> _Hook | None:
        """Return the hook, created on the first call; None if this framework gets none.

        Args:
            kind: the class of the framework's hook.

        Raises:
            SMDebugError: the config does not suit this framework, or the run cannot be written.
        """
        # Processes that the script forks are not instrumented.
        if not environment.use_smdebug() or os.getpid() != self._process:
            return None
        with self._lock:
            if isinstance(self.hook, kind):
                return None if self.hook.closed else self.hook
            if self.hook is not None:
                self._skip(kind, f"this run belongs to {_framework(type(self.hook))}")
                return None
            if current_hook() is not None:
                self._skip(kind, "the script creates a hook itself")
                return None
            hook = kind.create_from_json_file(self._config)
            self.hook = hook
            logger.info("Saving tensors of %s to %s", _framework(kind), hook.out_dir)
            return hook

    def _skip(self, kind: type, why: str) -> None:
        name = _framework(kind)
        if name not in self._skipped:
            self._skipped.add(name)
            logger.warning("Not instrumenting %s: %s", name, why)


def _framework(kind: type) -> str:
    return kind.__module__.split(".")[1]
