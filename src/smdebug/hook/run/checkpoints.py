"""The checkpoint directory of a job, and the steps at which its checkpoints were written.

They are kept in `metadata.json` in that directory, in the format of smdebug 1.0: a list with an
entry for every checkpoint. A job that was killed and started again resumes after the last of them.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.config.log import WarnOnce
from smdebug.config.validation import short_repr
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.keys import LAST_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger("smdebug.hook")

METADATA_NAME = "metadata.json"
# Part of the names of files that SageMaker leaves next to those it has uploaded.
_UPLOADED = "sagemaker-uploaded"
# A name that both smdebug 1.0 and this module ignore.
_TEMPORARY_NAME = f"{METADATA_NAME}.tmp-{_UPLOADED}"
_RUN, _SAVED = "training-run", "latest-global-step-saved"
_SEEN, _MODE_STEPS = "latest-global-step-seen", "latest-mode-step"
_MAX_ENTRIES, _MAX_BYTES, _MAX_STEPS = 1000, 16 << 20, 100_000

# The next check comes after so many times what the last one took: scanning the files takes at most
# 0.1 % of the time, a stat of the directory slower than these seconds 1 %, and publishing
# what precedes a checkpoint 10 %.
_SCAN_PAUSE, _STAT_PAUSE, _RECORD_PAUSE, _SLOW_STAT = 1000, 100, 10, 1e-3


class CheckpointState(NamedTuple):
    """The step counts of a job when a checkpoint was written.

    Attributes:
        step: the last step that had begun.
        mode_steps: the last step of each mode.
        last_saved_step: the last step at which something was saved.
        training_run: how often the job had been started before.
    """

    step: int
    mode_steps: dict[ModeKeys, int]
    last_saved_step: int | None
    training_run: int


class FinishedStep(NamedTuple):
    """A step and the moment it ended, in nanoseconds since 1970."""

    end: int
    step: int
    last_saved_step: int | None


class CheckpointDirectory:
    """Finds new checkpoints and keeps the steps at which they were written.

    The files are scanned when the directory's modification time changes, because a file was added,
    removed or renamed, and now and then for those that changed in place or in subdirectories. A
    checkpoint belongs to the step that was under way at the time of its newest file.

    Args:
        path: the directory; it need not exist yet.
        ignored: directories whose files are not checkpoints, such as that of the run.
    """

    def __init__(self, path: str, ignored: Sequence[str] = ()) -> None:
        self._path = Path(path).expanduser()
        self._ignored = {os.path.realpath(each) for each in ignored}
        self._entries: list[dict[str, Any]] = []
        self._training_run = 0
        self._is_ours = True
        self._warnings = WarnOnce(logger)
        # Size and modification time of each file at the last scan.
        self._files: dict[str, tuple[int, int]] = {}
        self._scan()
        self._next_check = self._next_record = 0.0
        self._checked = time.time_ns()
        self._stamp = self._modification_time()
        # The moment before which the directory has not changed; 0 where it has not changed at all.
        self._changed_after = 0
        # The steps since the last scan.
        self._steps: deque[FinishedStep] = deque(maxlen=_MAX_STEPS)

    def read(self) -> CheckpointState | None:
        """Return the state with the largest step in `metadata.json`; None without one.

        An invalid file is ignored with a warning; one that smdebug has not written is not replaced.
        """
        path = self._path / METADATA_NAME
        try:
            if not path.exists():
                return None
            self._is_ours = False
            with path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise ValueError(f"it has more than {_MAX_BYTES} bytes")
            text = data.decode().strip()
            self._is_ours = text in ("", "[]") or (text[0] == "[" and f'"{_RUN}"' in text)
            entries = json.loads(text)
            states = _decode(entries)
        except (OSError, ValueError, RecursionError) as error:
            logger.warning(
                "Ignoring %s, which does not say at which step to resume: %s%s", path, error,
                "" if self._is_ours else "; it is not replaced, and the steps of checkpoints are "
                "not recorded: use another checkpoint directory",
            )  # fmt: skip
            return None
        self._entries = entries
        last = max(states, key=lambda state: state.step, default=None)
        if last is not None:
            self._training_run = last.training_run + 1
        return last

    def find_checkpoint(
        self, step: int, last_saved_step: int | None, at_end: bool = False
    ) -> FinishedStep | None:
        """Return the step of a new checkpoint, None without one; called when a step has ended.

        Args:
            step: the step that has ended.
            last_saved_step: the last one at which something was saved.
            at_end: there are no more steps: check in any case.
        """
        now, began = time.time_ns(), time.perf_counter()
        self._steps.append(FinishedStep(now, step, last_saved_step))
        if began < self._next_check and not at_end:
            return None
        stamp = self._modification_time()
        if stamp != self._stamp:
            self._stamp, self._changed_after = stamp, self._checked
        self._checked = now
        checked = time.perf_counter()
        took = checked - began
        self._next_check = checked + _STAT_PAUSE * took if took > _SLOW_STAT else 0.0
        due = self._changed_after or checked >= self._next_scan
        if not at_end and (not due or checked < self._next_record):
            return None
        moment, found = self._scan(), None
        if moment is not None:
            # The clock of a file system may be late by 10 ms.
            moment = max(moment, self._changed_after)
            found = next((each for each in self._steps if each.end > moment), self._steps[-1])
        self._steps.clear()
        self._changed_after = 0
        return None if found is None or found.step < 0 else found

    def record(
        self,
        found: FinishedStep,
        mode_steps: Mapping[ModeKeys, int],
        publish: Callable[[], None],
        write: bool = True,
    ) -> None:
        """Add a checkpoint to `metadata.json`.

        Args:
            found: the step it was written after.
            mode_steps: the last step of each mode at that step.
            publish: called first: a job that resumes after the checkpoint does not save again what
                came before.
            write: False in all processes of a job but one.
        """
        began = time.perf_counter()
        publish()
        if self._is_ours and write:
            entry = {
                _RUN: self._training_run,
                _SAVED: found.last_saved_step,
                _SEEN: found.step,
                _MODE_STEPS: {mode.name: step for mode, step in mode_steps.items()},
            }
            self._entries = [*self._entries, entry][-_MAX_ENTRIES:]
            try:
                temporary = self._path / _TEMPORARY_NAME
                temporary.write_text(json.dumps(self._entries), encoding="utf-8")
                temporary.replace(self._path / METADATA_NAME)
            except OSError as error:
                message = "Cannot record checkpoints in %s: %s"
                self._warnings.warning("record", message, self._path, error)
            self._stamp = self._modification_time()
        ended = time.perf_counter()
        # The files may change at every step.
        self._next_record = ended + _RECORD_PAUSE * (ended - began)

    def rewind(self, step: int) -> None:
        """Drop checkpoints after a step: the job has gone back to it."""
        self._steps.clear()
        self._changed_after = 0
        self._entries = [entry for entry in self._entries if entry[_SEEN] <= step]

    def _modification_time(self) -> int:
        try:
            return os.stat(self._path).st_mtime_ns  # noqa: PTH116 - a third of the time of Path.stat
        except OSError:
            return -1

    def _scan(self) -> int | None:
        """Update the known files; return the time of the newest change, None without changes."""
        began = time.perf_counter()
        known, self._files = self._files, {}
        newest = 0
        for directory, folders, names in os.walk(self._path):
            if self._ignored and os.path.realpath(directory) in self._ignored:
                folders.clear()
                continue
            for name in names:
                if name == METADATA_NAME or _UPLOADED in name:
                    continue
                path = f"{directory}/{name}"
                try:
                    status = os.stat(path)  # noqa: PTH116
                except OSError:
                    # Removed meanwhile, or a dangling link.
                    continue
                self._files[path] = version = (status.st_size, status.st_mtime_ns)
                if known.get(path) != version:
                    # A file that was renamed keeps its modification time.
                    newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
        ended = time.perf_counter()
        self._next_scan = ended + _SCAN_PAUSE * (ended - began)
        if not self._files or (not newest and len(self._files) == len(known)):
            return None
        return newest or time.time_ns()


def _decode(entries: object) -> list[CheckpointState]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("it must hold a list of objects")
    states = []
    for entry in entries:
        modes, saved = entry.get(_MODE_STEPS), entry.get(_SAVED)
        if not isinstance(modes, dict) or not set(modes) <= set(ModeKeys.__members__):
            raise ValueError(f"{_MODE_STEPS} must hold the steps of modes, got {short_repr(modes)}")
        mode_steps = {ModeKeys[name]: _step_in(modes, name) for name in modes}
        last_saved_step = None if saved is None else _step_in(entry, _SAVED)
        training_run = _step_in(entry, _RUN, least=0)
        states.append(
            CheckpointState(_step_in(entry, _SEEN), mode_steps, last_saved_step, training_run)
        )
    return states


def _step_in(entry: dict[str, Any], key: str, least: int = -1) -> int:
    value = entry.get(key)
    if type(value) is not int or not least <= value <= LAST_STEP:
        raise ValueError(f"{key} must be the number of a step, got {short_repr(value)}")
    return value
