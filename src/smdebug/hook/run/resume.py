"""Resume an interrupted job: after a checkpoint, the last saved step, or `hook.step`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from smdebug.config.json_config import read_checkpoint_dir
from smdebug.exceptions import SMDebugValueError
from smdebug.hook.run.checkpoints import CheckpointDirectory
from smdebug.hook.run.previous_run import PreviousRun
from smdebug.hook.steps import StepHistory
from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.config.options import HookOptions
    from smdebug.hook.run.checkpoints import CheckpointState
    from smdebug.hook.steps import StepCounter
    from smdebug.hook.worker import Worker
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")


class Resume:
    """Sets the steps of a job to where an earlier one was, and records its checkpoints.

    Args:
        options: the options of the hook.
        store: where the run is.
        steps: the steps of the job.
    """

    def __init__(self, options: HookOptions, store: Store, steps: StepCounter) -> None:
        self._requested = options.resume
        self._format = options.format
        self._store = store
        self._steps = steps
        self._restored: Worker | None = None
        self._set_by_user = False
        # Kept until the first step begins: a long run of many workers is large.
        self._previous: PreviousRun | None = None
        self._writes_metadata = True
        self._checkpoints: CheckpointDirectory | None = None
        self._state: CheckpointState | None = None
        directory = read_checkpoint_dir()
        if directory is not None:
            # The run, or TensorBoard files, may be in the same directory.
            end = store.path(END_KEY)
            own = [options.tensorboard_path, None if end is None else str(Path(end).parent)]
            self._checkpoints = CheckpointDirectory(directory, [path for path in own if path])
            self._state = self._checkpoints.read()

    @property
    def continues(self) -> bool:
        """Whether the run may be that of an earlier job."""
        return self._requested or self._set_by_user or self._state is not None

    def restore(self, worker: Worker) -> int | None:
        """Set the steps to those of the earlier job.

        Returns:
            The last step at which something was saved.

        Raises:
            SMDebugRuntimeError: the run cannot be read.
            SMDebugValueError: it cannot be resumed in the requested format.
        """
        self._restored = worker
        steps, state = self._steps, self._state
        if state is not None:
            steps.history = StepHistory.from_counts(state.step, state.mode_steps)
            steps.restore(state.step, state.mode_steps)
            logger.info("Resuming after step %d, that of the last checkpoint", state.step)
            return state.last_saved_step
        if not self._requested:
            return None
        previous = self._previous_run(worker.name)
        if self._format == "v1" and previous.format == "v2":
            # Readers take the rows of v2 files before those of v1 files.
            raise SMDebugValueError(
                f'Cannot resume the run in {self._store.url} with format="v1", because its format '
                'is "v2"; omit the format'
            )
        steps.history = previous.history()
        last = previous.last_step(worker.workers)
        if last >= 0:
            steps.go_to(last)
            logger.info("Resuming after step %d, the last one in the run", last)
        return previous.last_saved_step(last)

    def must_restore(self, worker: Worker) -> bool:
        """Whether the worker has turned out to be another one than was restored."""
        from_run = self._requested and self._state is None and not self._set_by_user
        return from_run and self._restored != worker

    def go_to(self, number: int, worker: str) -> int | None:
        """Make a step the last one, as the user sets `hook.step`.

        Returns:
            The last step up to it at which an earlier job saved something, if that is known.

        Raises:
            SMDebugRuntimeError: the run has to be read, and cannot be.
        """
        self._set_by_user = True
        steps, saved = self._steps, None
        first = steps.history.first_step
        # Without steps of this process the run says most, except about a checkpoint's own step.
        fresh = not steps.begun and not (self._state and self._state.step == number)
        if fresh or (first is not None and 0 <= number < first):
            previous = self._previous_run(worker)
            if fresh and previous.format is not None:
                steps.history = previous.history()
            else:
                steps.history.prepend(previous.history())
            saved = previous.last_saved_step(number)
        steps.go_to(number)
        if self._checkpoints is not None:
            self._checkpoints.rewind(number)
        return saved

    def format(self, worker: str) -> str | None:
        """Return the format to continue in: that of the run; None where it is not known."""
        return self._previous_run(worker).format if self._requested else None

    def _previous_run(self, worker: str) -> PreviousRun:
        if self._previous is None or self._previous.worker != worker:
            self._previous = PreviousRun(self._store, worker)
        return self._previous

    # ---- checkpoints

    def ready(self, writes: bool, writes_metadata: bool) -> None:
        """Configure, before the first step, what this process does about checkpoints.

        Args:
            writes: it writes to the run, and publishes before a checkpoint is recorded.
            writes_metadata: it records them in `metadata.json`.
        """
        self._previous = None
        self._writes_metadata = writes_metadata
        if not writes:
            self.stop()

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a checkpoint directory to check."""
        return self._checkpoints is not None

    def record_checkpoint(
        self, last_saved_step: int | None, publish: Callable[[], None], at_end: bool = False
    ) -> None:
        """Record a checkpoint that was written; called before a step begins.

        Args:
            last_saved_step: the last step at which something was saved.
            publish: publishes what was saved, and waits for it.
            at_end: there are no more steps.
        """
        steps = self._steps
        if self._checkpoints is None:
            return
        found = self._checkpoints.find_checkpoint(steps.step, last_saved_step, at_end)
        if found is not None:
            now = found.step == steps.step
            counts = steps.mode_steps if now else steps.history.mode_steps_at(found.step)
            self._checkpoints.record(found, counts, publish, self._writes_metadata)

    def stop(self) -> None:
        """Stop checking for checkpoints."""
        self._checkpoints = None
