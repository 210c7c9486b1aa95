"""Training jobs in separate processes, and what must hold for each in any case."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.programs.unharmed import EXIT_CODE, Answer, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parent.parent.parent
_LOST = re.compile(r"is not complete \(lost: (no step|.*?)\): ")
_GONE = re.compile(r"was removed during the job\. The steps up to (\d+) are lost")
_PART = re.compile(r"(\d+)(?: to (\d+)(?: by (\d+))?)?$")


class TrainingJobs:
    """Run training jobs, one after the other.

    Args:
        folder: where they get directories of their own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._next = folder / "0"
        self._errors = (folder / "errors").open("wb")
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.programs.unharmed"], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._known: dict[str, Answer] = {}

    def run(
        self,
        happens: Mapping[str, Callable[[], object]] | None = None,
        prepare: Callable[[Path], object] = lambda work: None,
        **fields: Any,
    ) -> Answer:
        """Has one training done.

        Args:
            happens: what to do when the job requests it, by its message.
            prepare: is given the directory of the job, to put something into it.
            fields: those of a `Job`.
        """
        work, self._next = self._next, self._folder / str(next(self._numbers))
        prepare(work)
        job = Job(str(work), **fields)
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(vars(job)).encode() + b"\n")
        self._program.stdin.flush()
        while True:
            line = self._program.stdout.readline()
            assert line, (self._folder / "errors").read_text()
            said = json.loads(line)
            if "event" not in said:
                return Answer(**said)
            (happens or {}).get(said["event"], lambda: None)()
            self._program.stdin.write(b"\n")
            self._program.stdin.flush()

    def next_place(self) -> Path:
        """The directory that the next training will have."""
        return self._next

    def undisturbed(self, hook: bool, **fields: Any) -> Answer:
        """The same training without a fault, with or without a hook; done once."""
        names = ("width", "steps", "large", "reduces")
        kept = {name: fields[name] for name in names if name in fields}
        format = fields.get("options", {}).get("format", "v2")
        # What a format holds may differ, as the type of a bfloat16.
        kept["options"] = {"format": format}
        key = f"{hook} {kept}"
        if key not in self._known:
            self._known[key] = self.run(hook=hook, **kept)
        return self._known[key]

    def close(self) -> None:
        """Ends the program."""
        assert self._program.stdin is not None
        self._program.stdin.close()
        assert self._program.wait() == 0
        assert self._program.stdout is not None
        self._program.stdout.close()
        self._errors.close()


def lost_steps(log: str) -> set[int]:
    """The steps that a log says are lost."""
    (said,) = _LOST.findall(log)
    if said == "no step":
        return set()
    count, *parts = said.split(", ")
    found: set[int] = set()
    for part in parts:
        match = _PART.match(part)
        assert match is not None, said
        first, last, by = (None if each is None else int(each) for each in match.groups())
        assert first is not None
        found |= set(range(first, (first if last is None else last) + 1, by or 1))
    assert count in (f"{len(found)} steps", f"{len(found)} step"), said
    return found


def wrongs(
    trainings: TrainingJobs,
    answer: Answer,
    *,
    gone: bool = False,
    twice: bool = False,
    **fields: Any,
) -> list[str]:
    """Return what is wrong with a training job and its run; nothing if all guarantees hold.

    Args:
        trainings: has the expected results.
        answer: how it was.
        gone: another process has removed steps from the run.
        twice: steps that are said to be lost may be there.
        fields: those of its `Job`.
    """
    bare = trainings.undisturbed(False, **fields)
    truth = trainings.undisturbed(True, **fields)
    found = []
    if answer.hung:
        return ["it did not end"]
    if answer.exit_code != EXIT_CODE:
        found.append(f"exit code {answer.exit_code}: {answer.log[-2000:]}")
    if answer.weights != bare.weights or answer.generators != bare.generators:
        found.append("training went another way")
    if answer.raised and fields.get("options", {}).get("on_error") != "raise":
        found.append(f"training has met {answer.raised}")
    return found + _wrongs_of_run(answer, truth, gone, twice)


def _wrongs_of_run(answer: Answer, truth: Answer, gone: bool, twice: bool) -> list[str]:
    published = {int(step) for step in answer.steps}
    failed = "is not complete" in answer.log
    lost = lost_steps(answer.log) if failed else set()
    every = {int(step) for step in truth.steps}
    found = []
    # A run of which nothing was published cannot be read, and that is that.
    if answer.unreadable and lost != every and not gone:
        found.append(f"it cannot be read: {answer.unreadable}")
    removed = {step for last in _GONE.findall(answer.log) for step in range(int(last) + 1)}
    if not lost <= every or published | lost | removed != every or bool(removed) != gone:
        found.append(f"published {sorted(published)}, lost {sorted(lost)}")
    if published & lost and not twice:
        found.append(f"both published and lost: {sorted(published & lost)}")
    for step, tensors in answer.steps.items():
        right = truth.steps.get(step, {})
        whole = right if int(step) not in lost else {name: right.get(name) for name in tensors}
        if tensors != whole:
            found.append(f"step {step} holds something else")
    if answer.stats:
        counted = answer.stats["saved_steps"], answer.stats["lost_steps"]
        if counted[1] != len(lost) or (not twice and counted[0] != len(every - lost)):
            found.append(f"the hook counts {counted}, not {len(every - lost)} and {len(lost)}")
    # Memory for one step may be kept.
    if answer.held > truth.held + 20_000 + truth.stats["bytes"] // len(every) // 2:
        found.append(f"{answer.held} bytes of tensors are held, usually {truth.held}")
    return found
