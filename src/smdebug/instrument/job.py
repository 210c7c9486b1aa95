"""The job that a hook is attached to: what it is to save, and the one hook it has."""

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
    """Makes the hook of a script when its training begins.

    The first framework that trains gets it: a run belongs to one framework. A script that makes a
    hook itself is left alone.

    Args:
        description: what a job file says, as a dict.

    Attributes:
        made: the hook, once there is one.
        has_trainer: whether a trainer begins the steps, so that modules need not be found.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._description = description
        self._refused: set[str] = set()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.made: BaseHook | None = None
        self.has_trainer = False

    def hook(self, kind: type[_Hook]) -> _Hook | None:
        """Returns the hook, made on the first call; None when this framework gets none.

        Args:
            kind: the class of the framework's hook.

        Raises:
            SMDebugError: what the job is to save makes no sense, or cannot be saved there.
        """
        # A process that the script forked is not the one that is watched.
        if not environment.use_smdebug() or os.getpid() != self._process:
            return None
        with self._lock:
            return self._hook(kind)

    def _hook(self, kind: type[_Hook]) -> _Hook | None:
        if isinstance(self.made, kind):
            return None if self.made.closed else self.made
        if self.made is not None:
            self._refuse(kind, f"the run is that of {_framework(type(self.made))}")
            return None
        if current_hook() is not None:
            self._refuse(kind, "the script has made a hook itself")
            return None
        hook = kind.create_from_json_file(self._description)
        self.made = hook
        logger.info("%s: a hook saves to %s", _framework(kind), hook.out_dir)
        return hook

    def _refuse(self, kind: type, why: str) -> None:
        name = _framework(kind)
        if name not in self._refused:
            self._refused.add(name)
            logger.warning("no hook is attached to what %s trains: %s", name, why)


def _framework(kind: type) -> str:
    return kind.__module__.split(".")[1]
