"""The run that a hook writes to: its location, its worker, and the step it continues after."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from smdebug.config import environment
from smdebug.hook.run.output import DryOutput
from smdebug.hook.run.previous_run import previous_tensor_names
from smdebug.hook.run.resume import Resume
from smdebug.hook.run.run_location import open_run, require_free
from smdebug.storage.arrow import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.config.options import HookOptions
    from smdebug.hook.collections import HookCollections
    from smdebug.hook.run.output import Output
    from smdebug.hook.run.saved_steps import SavedSteps
    from smdebug.hook.steps import StepCounter
    from smdebug.hook.worker import Worker
    from smdebug.storage.stores.base import Store

# The collections file takes longer to make the more names there are: making it takes at most one
# part in so many of the time.
_COLLECTIONS_SHARE = 20


class RunSession:
    """One worker's access to a run.

    Args:
        store: where the run is.
        out_dir: the same as the user wrote it.
        options: the hook's options.
        steps: the step counter; resuming sets it.

    Attributes:
        writes: whether this worker writes at all.
        ready: whether the run has been opened.
        output: what takes the steps; None before the run is opened, where nothing is written, and
            after the end.
        last_output: the same, kept after the end to be closed, and for its statistics.
        resume: where an interrupted job continues.
    """

    def __init__(
        self, store: Store, out_dir: str, options: HookOptions, steps: StepCounter
    ) -> None:
        self.store = store
        self.out_dir = out_dir
        self._options = options
        self.writes = True
        self.ready = False
        self.output: Output | None = None
        self.last_output: Output | None = None
        # An earlier job was interrupted here, and its end marker is not the end.
        self._was_interrupted = False
        self._reopens = False
        self._collections_pause = 0.0
        self.resume = Resume(options, store, steps)

    def check(self, worker: Worker) -> int | None:
        """Check that the run can be written, and restore the steps of an earlier job.

        Returns:
            The last step that was saved; None when nothing was.

        Raises:
            SMDebugRuntimeError: the directory holds a finished run, or another live process writes
                to it as this worker.
        """
        writes = not self._options.dry_run and self._is_writer(worker)
        if writes:
            self._was_interrupted = require_free(self.store, self._options, self.out_dir, worker)
        saved = self.resume.restore(worker)
        if writes:
            # Now, and not in the middle of the first steps.
            warm_up()
        return saved

    def open(
        self,
        worker: Worker,
        open_output: Callable[[str], Output | None],
        collections: HookCollections,
        saved: SavedSteps,
    ) -> None:
        """Open the run for writing.

        Args:
            worker: this worker; its rank may be known only now.
            open_output: opens what it writes to.
            collections: get the tensors that an earlier job saved.
            saved: gets the last step that an earlier job saved.
        """
        self.writes = self._is_writer(worker)
        self._reopens = (self._options.resume or self._was_interrupted) and worker.chief
        workers = worker.workers if self._options.include_workers == "all" else 1
        collections.manager.set_num_workers(workers)
        if self.resume.must_restore(worker):
            saved.last = self.resume.restore(worker)
        if self.output is None:
            self.output = self.last_output = open_output(worker.name)
        if self.resume.continues and self.writes and not self._options.dry_run:
            for collection, tensor in previous_tensor_names(self.store, worker.name):
                collections.remember(tensor, (collection,))

    def set_ready(self, worker: Worker) -> None:
        """Mark the run as opened, or as one that could not be opened."""
        writes = self.writes and not self._options.dry_run
        self.resume.ready(writes, writes_metadata=worker.chief)
        self.ready = True

    def open_output(self, worker: str) -> Output | None:
        """Open what a worker writes to, and take its lock.

        Raises:
            SMDebugRuntimeError: another live process writes to the run as this worker.
        """
        if self._options.dry_run:
            return DryOutput()
        if not self.writes:
            return None
        format = self._options.format or self.resume.format(worker) or environment.storage_format()
        return open_run(self.store, self._options, worker, format, reopen=self._reopens)

    def write_collections(
        self, collections: HookCollections, now: bool = False, always: bool = False
    ) -> None:
        """Write the collections file if there are new names.

        Args:
            collections: the collections.
            now: otherwise it waits where there are new names at every step, so that writing all of
                them again takes a small share of the time.
            always: write it even without new names.
        """
        due = now or time.perf_counter() >= self._collections_pause
        if self.output is not None and (always or (collections.plan.changed and due)):
            started = time.perf_counter()
            self.output.write_collections(collections.to_json())
            collections.plan.changed = False
            ended = time.perf_counter()
            self._collections_pause = ended + _COLLECTIONS_SHARE * (ended - started)

    def publish(self) -> None:
        """Publish everything that was handed over, and wait for it."""
        if self.output is not None:
            self.output.finish_step()
            self.output.flush()

    def finish(self) -> None:
        """Let no more steps in; `last_output` is still to be closed."""
        self.output = None

    def _is_writer(self, worker: Worker) -> bool:
        return worker.chief or self._options.include_workers == "all"
