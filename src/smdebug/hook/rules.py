"""What may stop a job: its own rules, and requests that others leave in the run.

Both are looked after on threads of their own; training reads one attribute when a step begins.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from smdebug.config import environment
from smdebug.hook.fresh_run_store import FreshRunStore
from smdebug.hook.rule_thread import RuleThread
from smdebug.hook.stop_listener import StopListener
from smdebug.mode_keys import ModeKeys
from smdebug.storage.findings import write_findings
from smdebug.storage.stop_requests import StopRequest, write_stop
from smdebug.storage.stores.retrying import retrying

if TYPE_CHECKING:
    from smdebug.config.options import HookOptions
    from smdebug.hook.rule_thread import RuleSet
    from smdebug.hook.steps import StepCounter
    from smdebug.storage.findings import Finding
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")

# How many looks for requests fit into the time that other workers get to hear of one.
_LOOKS = 3
# Over how many looks the pace of training is remembered.
_REMEMBERED = 30


class HookRules:
    """Watches over a job.

    Args:
        rules: the rules of the hook; None when it has none.
        options: everything the hook was told.
        store: where the run is.
        steps: the steps of the job.

    Attributes:
        request: why training has to stop; None while it goes on.
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
        # For what must not be lost, on threads that may wait; the writer says when there is an
        # outage.
        self._patient = retrying(store, environment.store_retry_seconds(), quiet=True)
        self._own_run: FreshRunStore | None = None
        self._steps = steps
        self._workers, self._chief = 1, True
        # Steps in a second, between two looks for requests each.
        self._rates: deque[float] = deque(maxlen=_REMEMBERED)
        self._sampled = (time.monotonic(), 0)
        self._control: StopListener | None = None
        self._watch: RuleThread | None = None
        self._findings: list[Finding] = []

    def snapshot_existing(self) -> None:
        """Notes what an earlier job has left, so that `start` has nothing to ask of the store."""
        self._control = StopListener(self._store, self._asked, self._sample)
        if self._rules is not None:
            self._own_run = FreshRunStore(self._patient)

    def start(self, path: str, workers: int, chief: bool) -> None:
        """Begins to look for requests and, in the first of several workers, at the rules."""
        if self._control is None:
            self.snapshot_existing()
        assert self._control is not None
        self._workers, self._chief = workers, chief
        self._sampled = (time.monotonic(), self._steps.begun)
        self._control.start()
        if self._rules is not None and self._own_run is not None and chief and self._watch is None:
            self._watch = RuleThread(
                self._rules, path, self._own_run, self._found, self._flush_seconds
            )

    def findings(self) -> list[Finding]:
        """What was found so far."""
        return list(self._findings)

    def report(self) -> Any:
        """What became of each rule so far; None where no rules are evaluated."""
        return None if self._watch is None else self._watch.report()

    def due(self) -> bool:
        """Whether training has to stop before the step that is about to begin."""
        request = self.request
        if request is None:
            return False
        done = self._steps.mode_steps.get(ModeKeys[request.mode], -1)
        return request.at_step is None or done + 1 >= request.at_step

    def seen(self, finding: Finding) -> Finding:
        """Takes what the hook itself has seen at the present step, which has been published.

        Returns:
            What the rules say of the same step, if they do: they know what came first.
        """
        if self._watch is None:
            self._findings.append(finding)
            return finding
        self._watch.look()
        for known in self.findings():
            if (known.rule, known.step) == (finding.rule, finding.step):
                return known
        self._findings.append(finding)
        try:
            write_findings(self._patient, [finding])
        except Exception as error:
            logger.warning("%s does not keep what was found: %s", self._store.url, error)
        return finding

    @property
    def must_end_first(self) -> bool:
        """Whether it has to be closed before the run is, and not after it."""
        return self._watch is not None and self._watch.must_end_first

    def close(self) -> None:
        """Ends both threads; the rules look at the rest of the run first."""
        if self._control is not None:
            self._control.close()
        if self._watch is not None:
            self._watch.close()

    def _asked(self, request: StopRequest) -> bool:
        """Takes a request of others; returns whether it is obeyed."""
        if request.at_step is None and self._workers > 1:
            if not self._chief:
                # The first worker says when.
                return False
            request = self._with_common_step(request)
            write_stop(self._store, request)
        self.request = self.request or request
        return True

    def _found(self, finding: Finding) -> None:
        self._findings.append(finding)
        if not self._stops or self.request is not None:
            return
        request = request_of(finding)
        if self._workers > 1:
            request = self._with_common_step(request)
            # The others hear of it this way.
            write_stop(self._patient, request)
        self.request = request

    def _with_common_step(self, request: StopRequest) -> StopRequest:
        """Adds a step that no worker will have begun before it has heard of the request.

        Workers that train together wait for each other: one that stopped alone would leave the
        others waiting. What they do together is training: the first one may evaluate alone.
        """
        mode = ModeKeys.TRAIN if ModeKeys.TRAIN in self._steps.mode_steps else ModeKeys.GLOBAL
        self._sample()
        margin = math.ceil(_LOOKS * self._interval * max(self._rates))
        at_step = self._steps.mode_steps[mode] + 2 + margin
        return dataclasses.replace(request, at_step=at_step, mode=mode.name)

    @property
    def _interval(self) -> float:
        return 0.0 if self._control is None else self._control.interval

    def _sample(self) -> None:
        """Measures how fast training is: it may begin slowly, and pause."""
        # Steps that took place: their numbers may begin anywhere.
        now, step = time.monotonic(), self._steps.begun
        then, before = self._sampled
        # A moment after the last look says little.
        if not self._rates or now - then > self._interval / 2:
            self._sampled = (now, step)
            self._rates.append((step - before) / max(now - then, 1e-3))


def request_of(finding: Finding) -> StopRequest:
    """The request to stop because of a finding."""
    return StopRequest(finding.message, finding.rule, finding.step, finding.tensor)
