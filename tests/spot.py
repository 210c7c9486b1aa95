"""A job on a machine that is taken away: killed at random moments and started again."""

from __future__ import annotations

import fcntl
import os
import random
import select
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEADLINE_SECONDS = 100.0
# A pipe holds one message, so that no process gets far ahead of whoever listens.
MESSAGE = b"." * 4096


class Attempts:
    """Processes that train, each a fork of this one, until one of them comes to its end.

    Args:
        train: trains from where it can to the end; is given a function to call now and then.
        kills: how many of them are killed, with SIGKILL.
        calls: a process is killed after at most so many calls of that function.
        seed: of the moments.
        processes: how many train together; `train` is given the number of each, too.
    """

    def __init__(
        self, train: Callable[..., None], kills: int, calls: int, seed: int, processes: int = 1
    ) -> None:
        self._train = train
        self._random = random.Random(seed)
        self._calls = calls
        self._processes = processes
        self.killed = 0
        self._wanted = kills

    def run(self) -> None:
        """Starts, kills and starts again."""
        while not self._attempt():
            pass

    def _attempt(self) -> bool:
        """Runs the job once; returns whether it came to its end."""
        last = self.killed >= self._wanted
        calls = None if last else self._random.randint(1, self._calls)
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, len(MESSAGE))
        children = [self._start(rank, read, write) for rank in range(self._processes)]
        os.close(write)
        try:
            _read_calls(read, calls)
            # All of them at once: none must notice that another is gone.
            for name in (signal.SIGSTOP, signal.SIGKILL):
                for child in children if calls is not None else ():
                    os.kill(child, name)
        finally:
            os.close(read)
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if -signal.SIGKILL in codes:
            self.killed += 1
        assert set(codes) <= {0, -signal.SIGKILL}, codes
        return codes == [0] * self._processes

    def _start(self, rank: int, read: int, write: int) -> int:
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            os.close(read)

            def tell() -> None:
                os.write(write, MESSAGE)

            self._train(tell, rank) if self._processes > 1 else self._train(tell)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Not the end of the process this is a copy of.
            os._exit(code)


def _read_calls(read: int, calls: int | None) -> None:
    """Waits until so many calls were made, or until the processes have ended."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while calls is None or calls > 0:
        ready, _, _ = select.select([read], [], [], max(deadline - time.monotonic(), 0.0))
        assert ready, f"nothing was heard from the job for {DEADLINE_SECONDS} s"
        if not os.read(read, len(MESSAGE)):
            return
        calls = None if calls is None else calls - 1


def contents(path: Path) -> dict[str, Any]:
    """Everything that a trial says of a run: steps, modes, and every byte of every tensor."""
    trial = create_trial(str(path))
    # Every row once.
    table = trial.to_arrow(["worker", "step", "tensor"])
    rows = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    assert len(rows) == len(set(rows))
    found: dict[str, Any] = {
        "steps": {mode.name: trial.steps(mode) for mode in ModeKeys},
        "modes": {step: trial.mode_modestep(step) for step in trial.steps()},
        "workers": trial.workers(),
        "collections": {
            name: sorted(trial.tensor_names(collection=name)) for name in trial.collections()
        },
        "finished": trial.loaded_all_steps,
    }
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        for worker in trial.workers():
            for step, value in tensor.values(worker=worker).items():
                array = np.asarray(value)
                found[f"{worker} {name} {step}"] = (array.dtype, array.shape, array.tobytes())
    return found
