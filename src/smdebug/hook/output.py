"""Where a hook's steps go: into a run, or, in a dry run, into the log."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from smdebug.hook.capture import pending_batch
from smdebug.hook.stats import CollectionStats, HookStats, shown_bytes
from smdebug.storage.writer import RunWriter
from smdebug.storage.writer_lock import WriterLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.hook.capture import Capture
    from smdebug.hook.sinks.base import StepSink
    from smdebug.hook.step_history import Step
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")

_SHOWN_NAMES = 20


class Output(Protocol):
    """Takes the steps of one worker."""

    def submit(
        self, step: Step, time: float, taken: list[Capture], finish: bool = False
    ) -> None: ...
    def finish_step(self) -> None: ...
    def write_collections(self, text: str) -> None: ...
    def flush(self) -> None: ...
    def close(self, end: bool, interrupted: bool = False) -> None: ...
    def leave(self) -> None: ...
    def update(self, stats: HookStats) -> None: ...
    def lost_steps(self) -> tuple[int, ...]: ...


class RunOutput:
    """Writes to a run; takes the claim on the worker first.

    Args:
        store: where the run is.
        worker: who writes.
        format: "v1" or "v2".
        flush_seconds: as `RunWriter` takes it.
        queue_bytes: as `RunWriter` takes it.
        exports: what else is told of every step.
        reopen: as `RunWriter` takes it.

    Raises:
        SMDebugRuntimeError: another live process writes to the run as this worker.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        format: str,
        flush_seconds: float | None,
        queue_bytes: int,
        exports: Sequence[StepSink] = (),
        reopen: bool = False,
    ) -> None:
        self._exports = tuple(exports)
        self._writer = RunWriter(store, worker, format, flush_seconds, queue_bytes, reopen)
        self._claim = WriterLock(store, worker)
        self._claim.take()
        self._collections: dict[str, CollectionStats] = {}

    def submit(self, step: Step, time: float, taken: list[Capture], finish: bool = False) -> None:
        self._writer.submit(pending_batch(step, time, taken, self._count, self._exports), finish)

    def _count(self, taken: Capture) -> None:
        _count(taken, self._collections)

    def finish_step(self) -> None:
        self._writer.finish_step()

    def write_collections(self, text: str) -> None:
        self._writer.write_collections(text)

    def flush(self) -> None:
        self._writer.flush()
        for export in self._exports:
            export.flush()

    def close(self, end: bool, interrupted: bool = False) -> None:
        try:
            self._writer.close(end, interrupted)
        except Exception:
            self._let_go()
            raise
        # Not after Ctrl-C: the thread goes on, and so does a second call.
        self._let_go()

    def _let_go(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._claim.release)
            for export in self._exports:
                stack.callback(export.close)

    def leave(self) -> None:
        """Leaves the run to the parent, in a forked child."""
        self._claim.leave()

    def update(self, stats: HookStats) -> None:
        written = self._writer.stats
        stats.bytes, stats.segments = written.bytes, written.segments
        stats.seconds_waited = written.seconds_waited
        stats.collections = _copied(self._collections)

    def lost_steps(self) -> tuple[int, ...]:
        """The steps that were handed over and will not be published."""
        return self._writer.lost_steps


class DryOutput:
    """Writes nothing: says in the log what would be saved, once for each kind of step."""

    def __init__(self) -> None:
        self._collections: dict[str, CollectionStats] = {}
        self._said: set[tuple[str, ...]] = set()

    def submit(self, step: Step, time: float, taken: list[Capture], finish: bool = False) -> None:
        items = [item for each in taken for item in each.items()]
        for each in taken:
            _count(each, self._collections)
            each.release()
        names = tuple(name for name, _, _ in items)
        if not names or names in self._said:
            return
        self._said.add(names)
        shown = [f"{name} ({_said(want.raw, want.reductions)})" for name, want, _ in items]
        if len(shown) > _SHOWN_NAMES:
            shown = [*shown[:_SHOWN_NAMES], f"and {len(shown) - _SHOWN_NAMES} more"]
        # A warning, because a log that shows only those is what most scripts have.
        logger.warning(
            "dry run: step %d (%s) would save %d tensors, %s: %s",
            step.number, step.mode.name, len(items),
            shown_bytes(sum(size for _, _, size in items)), ", ".join(shown),
        )  # fmt: skip

    def finish_step(self) -> None:
        """There is nothing to finish."""

    def write_collections(self, text: str) -> None:
        """Nothing is written."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self, end: bool, interrupted: bool = False) -> None:
        """Nothing is open."""

    def leave(self) -> None:
        """Nothing is shared."""

    def update(self, stats: HookStats) -> None:
        stats.collections = _copied(self._collections)

    def lost_steps(self) -> tuple[int, ...]:
        """What is not written is not lost."""
        return ()


def _said(raw: bool, reductions: tuple[str, ...]) -> str:
    parts = (["raw"] if raw else []) + list(reductions)
    return ", ".join(parts) or "shape"


def _copied(collections: dict[str, CollectionStats]) -> dict[str, CollectionStats]:
    # The writer's thread goes on to count.
    return {name: replace(stats) for name, stats in list(collections.items())}


def _count(taken: Capture, collections: dict[str, CollectionStats]) -> None:
    for names, tensors, size in taken.totals():
        for name in names:
            stats = collections.get(name)
            if stats is None:
                stats = collections[name] = CollectionStats()
            stats.tensors += tensors
            stats.bytes += size
