"""Where an interrupted job goes on: at a checkpoint, behind what its run holds, or by hand."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from smdebug.config.json_config import read_checkpoint_dir
from smdebug.exceptions import SMDebugValueError
from smdebug.hook.checkpoints import CheckpointDirectory
from smdebug.hook.previous_run import PreviousRun
from smdebug.hook.step_history import StepHistory
from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.config.options import HookOptions
    from smdebug.hook.checkpoints import CheckpointState
    from smdebug.hook.steps import StepCounter
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")


class Resume:
    """Sets the steps of a job to where an earlier one was, and keeps where this one is.

    Args:
        options: everything the hook was told.
        store: where the run is.
        steps: the steps of the job.
    """

    def __init__(self, options: HookOptions, store: Store, steps: StepCounter) -> None:
        self._asked = options.resume
        self._format = options.format
        self._steps = steps
        self._earlier = PreviousRun(store)
        self._restored: tuple[str, int] | None = None
        self._by_hand = False
        self._keeps = True
        self._checkpoints: CheckpointDirectory | None = None
        self._state: CheckpointState | None = None
        directory = read_checkpoint_dir()
        if directory is not None:
            # A run, or files for TensorBoard, may lie in the same place.
            end = store.path(END_KEY)
            run = None if end is None else str(Path(end).parent)
            own = [each for each in (run, options.tensorboard_path) if each is not None]
            self._checkpoints = CheckpointDirectory(directory, own)
            self._state = self._checkpoints.read()

    @property
    def continues(self) -> bool:
        """Whether the run may be that of an earlier job."""
        return self._asked or self._by_hand or self._state is not None

    def restore(self, worker: str, workers: int) -> int | None:
        """Sets the steps to those of the earlier job.

        Called again when a worker knows better who it is; a step that was set by hand stays.

        Returns:
            The last step at which something was saved.

        Raises:
            SMDebugRuntimeError: the run cannot be read.
            SMDebugValueError: it cannot be gone on with in the format that was asked for.
        """
        before, self._restored = self._restored, (worker, workers)
        steps, state = self._steps, self._state
        if state is not None:
            if before is None:
                steps.history = StepHistory.of_state(state.step, state.mode_steps)
                steps.restore(state.step, state.mode_steps)
                logger.info("goes on behind step %d, of which a checkpoint was written", state.step)
            return state.last_saved_step
        if not self._asked:
            return None
        self._require_format(worker)
        steps.history = self._earlier.history(worker)
        last = self._earlier.last(worker, workers)
        if last >= 0:
            steps.go_to(last)
            logger.info("goes on behind step %d, the last that the run holds", last)
        return self._earlier.last_saved(worker, last)

    def is_restored_as(self, worker: str, workers: int) -> bool:
        """Whether there is nothing that `restore` could do better for this worker."""
        known = self._restored == (worker, workers)
        return known or self._by_hand or self._state is not None or not self._asked

    def go_to(self, number: int, worker: str) -> int | None:
        """Makes a step the last one, because the user said so.

        Returns:
            The last step up to it at which an earlier job saved something, as far as is known.

        Raises:
            SMDebugRuntimeError: the run would have to be read, and cannot be.
        """
        self._by_hand = True
        history = self._steps.history
        saved = None
        first = history.begins_at()
        exact = self._state is not None and self._state.step == number
        if not self._steps.begun and not exact:
            # Nothing of this process is known, so what the run says is the best there is.
            earlier = self._earlier.history(worker)
            if earlier:
                self._steps.history = earlier
                saved = self._earlier.last_saved(worker, number)
        elif first is not None and 0 <= number < first:
            history.put_before(self._earlier.history(worker))
            saved = self._earlier.last_saved(worker, number)
        self._steps.go_to(number)
        if self._checkpoints is not None:
            self._checkpoints.rewind(number)
        return saved

    def format(self, worker: str) -> str | None:
        """The format to go on in: that of the run; None when it is not known."""
        return self._earlier.format(worker) if self._asked else None

    def _require_format(self, worker: str) -> None:
        if self._format == "v1" and self._earlier.format(worker) == "v2":
            # What v2 files say of a step comes before what v1 files say.
            raise SMDebugValueError(
                'format must be that of the run to go on with, "v2", got "v1"; leave it out'
            )

    # ---- checkpoints

    def ready(self, writes: bool, keeps: bool) -> None:
        """Says what this process does about checkpoints: it writes to the run; it keeps states."""
        self._earlier.forget()
        self._keeps = keeps
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
            self._checkpoints.record(found, counts, publish, self._keeps)

    def stop(self) -> None:
        """Looks no more."""
        self._checkpoints = None
