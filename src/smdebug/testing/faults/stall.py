"""A training whose loop hangs until somebody who watches the run from outside notices."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from smdebug.pytorch import Hook, SaveConfig
from smdebug.rules import RuleRunner
from smdebug.testing.faults.training import Training
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.storage.findings import Finding
    from smdebug.testing.faults.job import Job

# A machine may be busy; a rule that has not noticed by then does not notice.
LIMIT_SECONDS = 60.0
STALLED = "StalledTrainingRule"


@dataclass(frozen=True)
class StalledTraining(Training):
    """A training that hangs before a step; its losses are saved, and watched from outside.

    Attributes:
        step: the step that does not come before the rules have found something.
    """

    step: int = 60

    def train(self, out_dir: str | os.PathLike[str], rules: Sequence[Any]) -> Job:
        """Trains, hangs until a rule has found something, and goes on."""
        noticed, ended = threading.Event(), threading.Event()
        watching: list[Future[None]] = []

        def hang() -> None:
            watcher = pool.submit(_watch, os.fspath(out_dir), list(rules), noticed, ended)
            # Also when it fails: nobody would notice then.
            watcher.add_done_callback(lambda _: noticed.set())
            watching.append(watcher)
            noticed.wait(LIMIT_SECONDS)

        with ThreadPoolExecutor(1) as pool, torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            job = self.make()
            job.before[self.step] = hang
            try:
                with Hook(out_dir, save_config=SaveConfig(save_interval=1)) as hook:
                    job.run(hook)
            finally:
                ended.set()
        watching[0].result()
        return job


def _watch(path: str, rules: list[Any], noticed: threading.Event, ended: threading.Event) -> None:
    def tell(finding: Finding) -> None:
        if finding.rule == STALLED:
            noticed.set()

    # The hook may not have written anything yet.
    trial = create_trial(path, wait_seconds=LIMIT_SECONDS)
    RuleRunner(trial, rules, tell).run(stop=ended)
