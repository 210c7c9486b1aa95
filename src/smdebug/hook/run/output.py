"""Where the steps of a hook go: to a run or, in a dry run, to the log."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from smdebug.hook.capture import pending_batch
from smdebug.hook.stats import CollectionStats, HookStats, format_bytes
from smdebug.storage.writer import RunWriter
from smdebug.storage.writer_lock import WriterLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.hook.capture import Capture
    from smdebug.hook.sinks.base import StepSink
    from smdebug.hook.steps import Step
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")

_SHOWN_NAMES = 20


class Output(Protocol):
    """Takes the steps of one worker."""

    def submit(
        self, step: Step, time: float, pending: list[Capture], finish: bool = False
    ) -> None: ...
    def finish_step(self) -> None: ...
    def write_collections(self, text: str) -> None: ...
    def flush(self) -> None: ...
    def close(self, end: bool, interrupted: bool = False) -> None: ...
    def leave(self) -> None: ...
    def update(self, stats: HookStats) -> None: ...
    def lost_steps(self) -> tuple[int, ...]: ...


class RunOutput:
    """Writes to a run; takes the lock of the worker first.

    Args:
        store: where the run is.
        worker: the name of the worker that writes.
        format: "v1" or "v2".
        flush_seconds: as for `RunWriter`.
        queue_bytes: as for `RunWriter`.
        sinks: receive every step, too.
        reopen: as for `RunWriter`.

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
        sinks: Sequence[StepSink] = (),
        reopen: bool = False,
    ) -> None:
        self._sinks = tuple(sinks)
        self._writer = RunWriter(store, worker, format, flush_seconds, queue_bytes, reopen)
        self._lock = WriterLock(store, worker)
        self._lock.take()
        self._counts = _Counts()

    def submit(self, step: Step, time: float, pending: list[Capture], finish: bool = False) -> None:
        batch = pending_batch(step, time, pending, self._counts.add, self._sinks)
        self._writer.submit(batch, finish)

    def finish_step(self) -> None:
        self._writer.finish_step()

    def write_collections(self, text: str) -> None:
        self._writer.write_collections(text)

    def flush(self) -> None:
        self._writer.flush()
        for sink in self._sinks:
            sink.flush()

    def close(self, end: bool, interrupted: bool = False) -> None:
        try:
            self._writer.close(end, interrupted)
        except Exception:
            self._release()
            raise
        # Not after Ctrl-C: the writer thread continues, and a second call completes it.
        self._release()

    def _release(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._lock.release)
            for sink in self._sinks:
                stack.callback(sink.close)

    def leave(self) -> None:
        """Leave the run to the parent, in a forked child."""
        self._lock.leave()

    def update(self, stats: HookStats) -> None:
        written = self._writer.stats
        stats.bytes, stats.segments = written.bytes, written.segments
        stats.seconds_waited = written.seconds_waited
        stats.collections = self._counts.copy()

    def lost_steps(self) -> tuple[int, ...]:
        """Return the steps that were handed over and will not be published."""
        return self._writer.lost_steps


class DryOutput:
    """Writes nothing: logs what would be saved, once for each kind of step."""

    def __init__(self) -> None:
        self._counts = _Counts()
        self._logged: set[tuple[str, ...]] = set()

    def submit(self, step: Step, time: float, pending: list[Capture], finish: bool = False) -> None:
        items = [item for each in pending for item in each.items()]
        for each in pending:
            self._counts.add(each)
            each.release()
        names = tuple(name for name, _, _ in items)
        if not names or names in self._logged:
            return
        self._logged.add(names)
        shown = []
        for name, request, _ in items[:_SHOWN_NAMES]:
            parts = [*(["raw"] if request.raw else []), *request.reductions]
            shown.append(f"{name} ({', '.join(parts) or 'shape'})")
        if len(items) > _SHOWN_NAMES:
            shown.append(f"and {len(items) - _SHOWN_NAMES} more")
        # A warning, because most scripts show nothing below that level.
        logger.warning(
            "dry run: step %d (%s) would save %d tensors, %s: %s",
            step.number, step.mode.name, len(items),
            format_bytes(sum(size for _, _, size in items)), ", ".join(shown),
        )  # fmt: skip

    def finish_step(self) -> None:
        """Do nothing."""

    def write_collections(self, text: str) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self, end: bool, interrupted: bool = False) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""

    def update(self, stats: HookStats) -> None:
        stats.collections = self._counts.copy()

    def lost_steps(self) -> tuple[int, ...]:
        """Return nothing: what is not written is not lost."""
        return ()


class _Counts:
    """How many tensors and bytes were saved of each collection."""

    def __init__(self) -> None:
        self._collections: dict[str, CollectionStats] = {}

    def add(self, capture: Capture) -> None:
        for names, tensors, size in capture.totals():
            for name in names:
                stats = self._collections.get(name)
                if stats is None:
                    stats = self._collections[name] = CollectionStats()
                stats.tensors += tensors
                stats.bytes += size

    def copy(self) -> dict[str, CollectionStats]:
        # The writer thread continues to count.
        return {name: replace(stats) for name, stats in list(self._collections.items())}
