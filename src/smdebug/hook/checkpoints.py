"""A directory of checkpoints, and the file in it that says at which steps they were written.

`metadata.json` is that of smdebug 1.0: a list with an entry for every checkpoint. A job that was
killed and started again goes on behind the last of them.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.keys import LAST_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

logger = logging.getLogger("smdebug.hook")

METADATA_NAME = "metadata.json"
# What SageMaker leaves beside the files it has copied.
_UPLOADED = "sagemaker-uploaded"
# A name that no look sees, neither ours nor that of smdebug 1.0.
_TEMPORARY_NAME = f"{METADATA_NAME}.tmp-{_UPLOADED}"
_RUN, _SAVED = "training-run", "latest-global-step-saved"
_SEEN, _MODE_STEPS = "latest-global-step-seen", "latest-mode-step"

# After a look, training goes on for so many times as long as it took before the next; longer if
# nothing has changed at a glance. After a glance, and after a state was kept, likewise. Looks and
# glances together take a hundredth of the time.
_PAUSE, _PAUSE_UNCHANGED, _PAUSE_AFTER_RECORD = 200, 1000, 10
# The clock of files goes in steps of up to so many nanoseconds.
_CLOCK_TICK = 10_000_000
# How many directories a glance is at.
_DIRECTORIES_AT_A_GLANCE = 8
# How many files are looked at in one go.
_FILES_AT_ONCE = 256
_MOST_MARKS = 100_000
_MOST_ENTRIES, _MOST_BYTES = 1000, 16 << 20


class CheckpointState(NamedTuple):
    """The counts of a job when a checkpoint was written.

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


class StepInterval(NamedTuple):
    """A step that lasted from a moment to another, in nanoseconds since 1970."""

    since: int
    until: int
    step: int
    last_saved_step: int | None


class CheckpointDirectory:
    """Sees that checkpoints are written, and remembers at which steps.

    A look at many files takes time, so there is not one at every step: on average they take a
    hundredth of the time of training. What was written since the last look belongs to the step
    that was under way by the times of the files. Those are no more exact than some milliseconds,
    so there is a glance at the directory and its newest file in between, which takes microseconds.

    Args:
        path: the directory; it need not exist yet.
        unseen: directories whose files are no checkpoints, such as that of the run.
    """

    def __init__(self, path: str, unseen: Sequence[str] = ()) -> None:
        self._path = Path(path).expanduser()
        self._unseen = {os.path.realpath(each) for each in unseen}
        self._entries: list[dict[str, Any]] = []
        self._training_run = 0
        self._is_ours = True
        self._complained = False
        # Files by path, with size and time, when last looked at; None before the first time.
        self._known: dict[str, tuple[int, int]] | None = None
        self._look: _Look | None = None
        self._looked = self._next_look = 0.0
        # The steps since the last look, and the times between which a glance saw a change.
        self._marks: deque[StepInterval] = deque(maxlen=_MOST_MARKS)
        self._changes: deque[tuple[int, int]] = deque(maxlen=_MOST_MARKS)
        self._places: tuple[str, ...] = (str(self._path),)
        self._glance = _glance(self._places)
        self._glanced, self._next_glance = 0, 0.0
        self._last_time = time.time_ns()
        # What a look and a glance take, without what the system did meanwhile.
        self._look_cost = self._glance_cost = 1e-6
        self._go_on_looking(time.time_ns())

    def read(self) -> CheckpointState | None:
        """Returns the state with the largest step that `metadata.json` has; None without one.

        A file that makes no sense is as none, with a warning; one of somebody else stays as it is.
        """
        path = self._path / METADATA_NAME
        try:
            if not path.exists():
                return None
            self._is_ours = False
            text = _text_of(path)
            self._is_ours = not text.strip() or (text[:1] == "[" and f'"{_RUN}"' in text)
            states = _states(json.loads(text))
        except (OSError, ValueError, RecursionError) as error:
            logger.warning(
                "%s does not say at which step to go on, and is ignored: expected a list of states "
                "as smdebug writes it, got: %s%s", path, error,
                "" if self._is_ours else "; it stays as it is, and the steps of checkpoints are "
                "not kept: use another checkpoint directory",
            )  # fmt: skip
            return None
        self._is_ours = True
        self._entries = [_entry(state) for state in states]
        if not states:
            return None
        last = max(states, key=lambda state: state.step)
        self._training_run = last.training_run + 1
        return last

    def look(
        self, step: int, last_saved_step: int | None, at_end: bool = False
    ) -> StepInterval | None:
        """Looks for a checkpoint, if it is time to; called before every step.

        Args:
            step: the step that is over now.
            last_saved_step: the last one at which something was saved.
            at_end: the job is over: look in any case.

        Returns:
            The step after which a checkpoint was written; None when there is no new one.
        """
        now = time.time_ns()
        self._marks.append(StepInterval(self._last_time, now, step, last_saved_step))
        self._last_time = now
        began = time.perf_counter()
        if at_end or began >= self._next_glance:
            self._take_a_glance(now)
            ended = time.perf_counter()
            self._glance_cost = min(ended - began, 2 * self._glance_cost)
            self._next_glance = ended + _PAUSE * self._glance_cost
            began = ended
        pause = _PAUSE if self._changes or self._look is not None else _PAUSE_UNCHANGED
        if began < max(self._looked + pause * self._look_cost, self._next_look) and not at_end:
            return None
        mark = self._go_on_looking(now)
        while at_end and self._look is not None:
            mark = self._go_on_looking(now)
        self._looked = time.perf_counter()
        self._look_cost = min(self._looked - began, 2 * self._look_cost)
        return mark if mark is not None and mark.step >= 0 else None

    def record(
        self,
        mark: StepInterval,
        mode_steps: Mapping[ModeKeys, int],
        publish: Callable[[], None],
        keep: bool = True,
    ) -> None:
        """Adds a checkpoint to `metadata.json`.

        Args:
            mark: the step it was written after.
            mode_steps: the counts of the modes at that step.
            publish: called first: what a job goes on behind must be in the run by then.
            keep: write it down; only one process of a job does.
        """
        began = time.perf_counter()
        publish()
        if self._is_ours and keep:
            state = CheckpointState(
                mark.step, dict(mode_steps), mark.last_saved_step, self._training_run
            )
            self._entries = [*self._entries, _entry(state)][-_MOST_ENTRIES:]
            self._write()
            # What was written just now is no checkpoint.
            self._glance = _glance(self._places)
        ended = time.perf_counter()
        # Something else may change in the directory at every step.
        self._next_look = ended + _PAUSE_AFTER_RECORD * (ended - began)

    def rewind(self, step: int) -> None:
        """Forgets what was behind a step: the job has gone back to it."""
        self._marks.clear()
        self._changes.clear()
        self._entries = [entry for entry in self._entries if entry[_SEEN] <= step]

    def _write(self) -> None:
        temporary = self._path / _TEMPORARY_NAME
        try:
            temporary.write_text(json.dumps(self._entries), encoding="utf-8")
            temporary.replace(self._path / METADATA_NAME)
        except OSError as error:
            self._complain(f"the step of a checkpoint cannot be kept: {error}")

    def _complain(self, message: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("%s: %s", self._path, message)

    # ---- looking

    def _take_a_glance(self, now: int) -> None:
        glance = _glance(self._places)
        if glance != self._glance:
            self._changes.append((self._glanced, now))
        self._glance, self._glanced = glance, now

    def _go_on_looking(self, now: int) -> StepInterval | None:
        """Looks at some files; when all were, returns the step of what has changed in them."""
        if self._look is None:
            self._look = _Look(self._path, self._unseen, now)
        if not self._look.go_on():
            return None
        look, self._look = self._look, None
        known, self._known = self._known, look.found
        mark = None
        if known is not None and look.found and look.found != known:
            times = [
                look.changed[path] for path in look.found if look.found[path] != known.get(path)
            ]
            mark = self._mark_at(max(times, default=now))
        # What was written before this look began, it has seen.
        while self._marks and self._marks[0].until <= look.began:
            self._marks.popleft()
        while self._changes and self._changes[0][1] <= look.began:
            self._changes.popleft()
        newest = max(look.changed, key=look.changed.__getitem__, default=None)
        places = (*look.directories[:_DIRECTORIES_AT_A_GLANCE], *([newest] if newest else ()))
        if places != self._places:
            self._places, self._glance = places, _glance(places)
        return mark

    def _mark_at(self, moment: int) -> StepInterval | None:
        """The step that was under way at a moment, by the clock of the files."""
        # Where a glance saw a change, it was between that glance and the one before.
        between = ((after, until) for after, until in self._changes if until >= moment)
        after, until = next(between, (0, self._last_time))
        possible = [
            mark
            for mark in self._marks
            if after < mark.until <= until and mark.since - _CLOCK_TICK <= moment <= mark.until
        ]
        if possible:
            # Of steps as short as a tick of that clock, the one with a checkpoint is the longest.
            return max(possible, key=lambda mark: mark.until - mark.since)
        return self._marks[-1] if self._marks else None


class _Look:
    """One look at all files, in several goes if there are many.

    Attributes:
        began: when, in nanoseconds since 1970.
        found: sizes and times of files by path.
        changed: when a file, or its name, was last changed.
        directories: those it has come to.
    """

    def __init__(self, path: Path, unseen: set[str], began: int) -> None:
        self.began = began
        self.found: dict[str, tuple[int, int]] = {}
        self.changed: dict[str, int] = {}
        self.directories: list[str] = []
        self._files = _files(str(path), unseen, self.directories)

    def go_on(self) -> bool:
        """Looks at the next files; returns whether those were all."""
        entries = list(itertools.islice(self._files, _FILES_AT_ONCE))
        for entry in entries:
            try:
                status = entry.stat()
            except OSError:
                # It is there no more, or leads nowhere.
                continue
            self.found[entry.path] = (status.st_size, status.st_mtime_ns)
            self.changed[entry.path] = max(status.st_ctime_ns, status.st_mtime_ns)
        return len(entries) < _FILES_AT_ONCE


def _glance(places: Sequence[str]) -> list[tuple[int, int]]:
    """Sizes and times of a few files and directories: a name that comes or goes changes one."""
    found = []
    for place in places:
        try:
            status = os.stat(place)  # noqa: PTH116 - every microsecond counts
        except OSError:
            found.append((-1, -1))
            continue
        found.append((status.st_size, status.st_mtime_ns))
    return found


def _files(path: str, unseen: set[str], directories: list[str]) -> Iterator[os.DirEntry[str]]:
    """The files of a directory and of those in it, without the ones that are not checkpoints."""
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        if unseen and os.path.realpath(directory) in unseen:
            continue
        directories.append(directory)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.name != METADATA_NAME and _UPLOADED not in entry.name:
                        yield entry
        except OSError:
            # Not there yet, there no more, or not ours to read.
            continue


def _entry(state: CheckpointState) -> dict[str, Any]:
    """A state as smdebug 1.0 writes it."""
    return {
        _RUN: state.training_run,
        _SAVED: state.last_saved_step,
        _SEEN: state.step,
        _MODE_STEPS: {mode.name: count for mode, count in state.mode_steps.items()},
    }


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    return data.decode()


def _states(data: object) -> list[CheckpointState]:
    if not isinstance(data, list):
        raise ValueError(f"the file holds a {type(data).__name__}")
    return [_state(number, entry) for number, entry in enumerate(data)]


def _state(number: int, entry: object) -> CheckpointState:
    if not isinstance(entry, dict):
        raise ValueError(f"entry {number} is a {type(entry).__name__}")
    mode_steps = entry.get(_MODE_STEPS)
    if not isinstance(mode_steps, dict) or not set(mode_steps) <= set(ModeKeys.__members__):
        raise ValueError(f"entry {number} has no steps of modes in {_MODE_STEPS}")
    saved = entry.get(_SAVED)
    return CheckpointState(
        _count(number, _SEEN, entry.get(_SEEN)),
        {ModeKeys[name]: _count(number, name, count) for name, count in mode_steps.items()},
        None if saved is None else _count(number, _SAVED, saved),
        _count(number, _RUN, entry.get(_RUN), least=0),
    )


def _count(number: int, key: str, value: object, least: int = -1) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= LAST_STEP:  # type: ignore[operator]
        raise ValueError(f"{key} of entry {number} is not a number of a step")
    return int(value)  # type: ignore[call-overload,no-any-return]
