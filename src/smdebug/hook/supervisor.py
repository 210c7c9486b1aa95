"""What may stop a job: its own rules, and requests that others leave in the run.

Both are looked after on threads of their own; training reads one attribute when a step begins.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from smdebug.hook.control import Control
from smdebug.hook.watch import Watch
from smdebug.storage.control import StopRequest, write_stop
from smdebug.storage.findings import write_findings

if TYPE_CHECKING:
    from smdebug.config.options import HookOptions
    from smdebug.hook.steps import StepCounter
    from smdebug.hook.watch import WatchedRules
    from smdebug.storage.findings import Finding
    from smdebug.storage.store import Store

# How many looks for requests fit into the time that other workers get to hear of one.
_LOOKS = 3


class Supervisor:
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
        rules: WatchedRules | None,
        options: HookOptions,
        store: Store,
        steps: StepCounter,
    ) -> None:
        self.request: StopRequest | None = None
        self._rules = rules
        self._stops = options.on_finding == "stop"
        self._flush_seconds = options.flush_seconds
        self._store = store
        self._steps = steps
        self._workers, self._chief = 1, True
        self._began = time.monotonic()
        self._control: Control | None = None
        self._watch: Watch | None = None
        self._findings: list[Finding] = []

    def start(self, path: str, workers: int, chief: bool) -> None:
        """Begins to look for requests and, in the first of several workers, at the rules."""
        self._workers, self._chief = workers, chief
        self._began = time.monotonic()
        self._control = Control(self._store, self._asked)
        if self._rules is not None and chief:
            self._watch = Watch(self._rules, path, self._found, self._flush_seconds)

    def findings(self) -> list[Finding]:
        """What was found so far."""
        return list(self._findings)

    def report(self) -> Any:
        """What became of each rule so far; None where no rules are evaluated."""
        return None if self._watch is None else self._watch.report()

    def due(self) -> bool:
        """Whether training has to stop before the step that is about to begin."""
        if self.request is None:
            return False
        return self.request.at_step is None or self._steps.step + 1 >= self.request.at_step

    def seen(self, finding: Finding) -> Finding:
        """Takes what the hook itself has seen at the present step, which has been published.

        Returns:
            What the rules say of the same step, if they do: they know what came first.
        """
        found = [] if self._watch is None else self._watch.look()
        for known in found:
            if (known.rule, known.step) == (finding.rule, finding.step):
                return known
        self._findings.append(finding)
        if self._watch is not None:
            write_findings(self._store, [finding])
        return finding

    def close(self) -> None:
        """Ends both threads; the rules look at the rest of the run first, which has been closed."""
        if self._control is not None:
            self._control.close()
        if self._watch is not None:
            self._watch.close()

    def _asked(self, request: StopRequest) -> None:
        self.request = self.request or request

    def _found(self, finding: Finding) -> None:
        self._findings.append(finding)
        if not self._stops or self.request is not None:
            return
        request = request_of(finding, self._common_step())
        if request.at_step is not None:
            # The others hear of it this way.
            write_stop(self._store, request)
        self.request = request

    def _common_step(self) -> int | None:
        """A step that no worker will have begun before it has heard of a request; None when alone.

        Workers that train together wait for each other: one that stopped alone would leave the
        others waiting.
        """
        if self._workers == 1 or self._control is None:
            return None
        rate = (self._steps.step + 1) / max(time.monotonic() - self._began, 1e-3)
        return self._steps.step + 2 + math.ceil(_LOOKS * self._control.interval * rate)


def request_of(finding: Finding, at_step: int | None = None) -> StopRequest:
    """The request to stop because of a finding."""
    return StopRequest(finding.message, finding.rule, finding.step, finding.tensor, at_step)
