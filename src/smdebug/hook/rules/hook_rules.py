"""The two reasons to stop a job: findings of its own rules, and requests of other processes.

Background threads watch for both; training only reads an attribute when a step begins.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from smdebug.config import environment
from smdebug.hook.rules.fresh_run_store import FreshRunStore
from smdebug.hook.rules.rule_thread import RuleThread
from smdebug.hook.rules.stop_listener import StopListener
from smdebug.mode_keys import ModeKeys
from smdebug.storage.findings import write_findings
from smdebug.storage.stop_requests import StopRequest, write_stop
from smdebug.storage.stores.retrying import retrying

if TYPE_CHECKING:
    from smdebug.config.options import HookOptions
    from smdebug.hook.rules.rule_thread import RuleSet
    from smdebug.hook.steps import StepCounter
    from smdebug.storage.findings import Finding
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")

# How many polls for requests fit into the time that other workers get to receive one.
_POLLS = 3
# Over how many polls the rate of training is remembered.
_MAX_RATES = 30


class HookRules:
    """The rules of a hook and its listener for stop requests.

    Args:
        rules: the rules of the hook; None when it has none.
        options: the options of the hook.
        store: where the run is.
        steps: the steps of the job.

    Attributes:
        request: why training has to stop; None while it continues.
    """

    def __init__(
        self,
        rules: RuleSet | None,
        options: HookOptions,
        store: Store,
        steps: StepCounter,
    ) -> None:
        self.request: StopRequest | None = None
        self._rules = rules
        self._stops = options.on_finding == "stop"
        self._flush_seconds = options.flush_seconds
        self._store = store
        # For background threads, which may wait; the writer is the one to log an outage.
        self._retrying_store = retrying(store, environment.store_retry_seconds(), quiet=True)
        self._fresh_store: FreshRunStore | None = None
        self._steps = steps
        self._workers, self._chief = 1, True
        # Steps per second between two polls.
        self._rates: deque[float] = deque(maxlen=_MAX_RATES)
        self._measured = (time.monotonic(), 0)
        self._listener: StopListener | None = None
        self._thread: RuleThread | None = None
        self._findings: list[Finding] = []

    def snapshot_existing(self) -> None:
        """List what an earlier job has left, so that `start` need not wait for the store."""
        self._listener = StopListener(self._store, self._on_request, self._measure_rate)
        if self._rules is not None:
            self._fresh_store = FreshRunStore(self._retrying_store)

    def start(self, path: str, workers: int, chief: bool) -> None:
        """Start to listen for requests and, in the first of several workers, the rules."""
        if self._listener is None:
            self.snapshot_existing()
        assert self._listener is not None
        self._workers, self._chief = workers, chief
        self._measured = (time.monotonic(), self._steps.begun)
        self._listener.start()
        rules, store = self._rules, self._fresh_store
        if rules is not None and store is not None and chief and self._thread is None:
            self._thread = RuleThread(rules, path, store, self._on_finding, self._flush_seconds)

    def findings(self) -> list[Finding]:
        """Return the findings so far."""
        return list(self._findings)

    def report(self) -> Any:
        """Return the state of each rule so far; None where no rules are evaluated."""
        return None if self._thread is None else self._thread.report()

    def due(self) -> bool:
        """Whether training has to stop before the step that is about to begin."""
        request = self.request
        if request is None:
            return False
        done = self._steps.mode_steps.get(ModeKeys[request.mode], -1)
        return request.at_step is None or done + 1 >= request.at_step

    def record_finding(self, finding: Finding) -> Finding:
        """Record a finding of the hook itself at the present step, which has been published.

        Returns:
            What the rules find at the same step, if they do: they also say what came first.
        """
        if self._thread is None:
            self._findings.append(finding)
            return finding
        self._thread.evaluate()
        for known in self.findings():
            if (known.rule, known.step) == (finding.rule, finding.step):
                return known
        self._findings.append(finding)
        try:
            write_findings(self._retrying_store, [finding])
        except Exception as error:
            logger.warning("Cannot save a finding to %s: %s", self._store.url, error)
        return finding

    @property
    def closes_before_run(self) -> bool:
        """Whether to close the rules before the run, and not after it.

        Closing the run compacts its index files, those of an earlier job included, which the rules
        must not evaluate.
        """
        store = self._fresh_store
        return self._thread is not None and store is not None and store.has_previous

    def close(self) -> None:
        """End both threads; the rules first evaluate the rest of the run."""
        if self._listener is not None:
            self._listener.close()
        if self._thread is not None:
            self._thread.close()

    def _on_request(self, request: StopRequest) -> bool:
        """Accept the request of another process; return whether this worker stops for it."""
        if request.at_step is None and self._workers > 1:
            if not self._chief:
                # The first worker chooses the step.
                return False
            request = self._with_common_step(request)
            write_stop(self._store, request)
        self.request = self.request or request
        return True

    def _on_finding(self, finding: Finding) -> None:
        self._findings.append(finding)
        if not self._stops or self.request is not None:
            return
        request = stop_request_for(finding)
        if self._workers > 1:
            request = self._with_common_step(request)
            # The other workers receive it this way.
            write_stop(self._retrying_store, request)
        self.request = request

    def _with_common_step(self, request: StopRequest) -> StopRequest:
        """Add a step that no worker will have begun before it has received the request.

        Workers that train together wait for each other: one that stopped alone would leave the
        others waiting. Only training counts, because the first worker may evaluate alone.
        """
        mode = ModeKeys.TRAIN if ModeKeys.TRAIN in self._steps.mode_steps else ModeKeys.GLOBAL
        self._measure_rate()
        margin = math.ceil(_POLLS * self._interval * max(self._rates))
        at_step = self._steps.mode_steps[mode] + 2 + margin
        return dataclasses.replace(request, at_step=at_step, mode=mode.name)

    @property
    def _interval(self) -> float:
        return 0.0 if self._listener is None else self._listener.interval

    def _measure_rate(self) -> None:
        """Measure the steps per second: training may begin slowly, and pause."""
        # Counts steps, because their numbers may start anywhere.
        now, begun = time.monotonic(), self._steps.begun
        then, before = self._measured
        # Too short a time says little.
        if not self._rates or now - then > self._interval / 2:
            self._measured = (now, begun)
            self._rates.append((begun - before) / max(now - then, 1e-3))


def stop_request_for(finding: Finding) -> StopRequest:
    """Return the request to stop because of a finding."""
    return StopRequest(finding.message, finding.rule, finding.step, finding.tensor)
