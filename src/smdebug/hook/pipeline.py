"""From a tensor that a framework offers to the writer: plan, step, capture, hand-over.

    adapter -> begin_step / offer -> StepCapture -> hand_over -> RunSession.output -> writer thread

Everything the training thread does at a step is here. The overhead of a step that saves nothing is
one comparison: `_idle_until` is the next step of the current mode that needs more.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugValueError
from smdebug.hook.collections import HookCollections
from smdebug.hook.errors import ErrorPolicy, GuardedSection
from smdebug.hook.lifecycle import Lifecycle
from smdebug.hook.nan_trigger import observe
from smdebug.hook.plan import StepCache
from smdebug.hook.rules.hook_rules import HookRules, stop_request_for
from smdebug.hook.rules.rule_thread import RuleSet
from smdebug.hook.run.run_session import RunSession
from smdebug.hook.run.saved_steps import SavedSteps
from smdebug.hook.stats import HookStats
from smdebug.hook.step_captures import StepCaptures
from smdebug.hook.steps import StepCounter
from smdebug.hook.user_saves import UserSaves
from smdebug.storage.writer_lock import WriterLocked

if TYPE_CHECKING:
    from smdebug.config.collection_manager import CollectionManager
    from smdebug.config.options import HookOptions
    from smdebug.hook.adapter import Adapter
    from smdebug.hook.capture import Capture, StepCapture
    from smdebug.hook.plan import SavePlan
    from smdebug.hook.steps import Step
    from smdebug.mode_keys import ModeKeys
    from smdebug.storage.findings import Finding
    from smdebug.storage.stores.base import Store

_NOW = -1


class Pipeline:
    """Saves the tensors of one process.

    Args:
        adapter: the class of the framework's adapter.
        options: the hook's options.
        store: where the run is.
        out_dir: the same, as a string.
        prepared: collections that module-level functions made before there was a hook.

    Attributes:
        adapter: the adapter.
        active: whether training may still save something: not closed, and not a forked child.
        collections: the collections and the plan.
        steps: the step counter.
        captures: the steps that are being captured.
        user_saves: what the user saves.
        guarded: the context for everything an adapter does in a callback.
        errors: handles failures.
        run: the run that is written.
        rules: the rules of this job, and requests to stop it.
        lifecycle: closes everything.
        saved: the steps that were saved, and those that were lost.
    """

    def __init__(
        self,
        adapter: type[Adapter],
        options: HookOptions,
        store: Store,
        out_dir: str,
        prepared: CollectionManager,
    ) -> None:
        self.options = options
        self.active = True
        self.steps = StepCounter()
        self.errors = ErrorPolicy(options.on_error)
        self.guarded = GuardedSection(self.errors)
        self.captures = StepCaptures(self.steps)
        self.user_saves = UserSaves(self)
        self.saved = SavedSteps()
        self._idle_until = _NOW
        self._caches: list[StepCache[Any]] = []
        self.rule_set = rules = RuleSet.from_options(options, adapter)
        needs = [] if rules is None else rules.needs
        self.collections = HookCollections(adapter, options, prepared, needs, self._wake)
        self.run = RunSession(store, out_dir, options, self.steps)
        self.rules = HookRules(rules, options, store, self.steps)
        self.lifecycle = Lifecycle(self)
        self.adapter = adapter(self)

    def start(self) -> None:
        """Check the run and restore an earlier job's steps, or raise an SMDebugRuntimeError."""
        self.saved.last = self.run.check(self.adapter.worker())
        if not self.options.dry_run:
            self.rules.snapshot_existing()
        self.lifecycle.close_at_exit()

    @property
    def plan(self) -> SavePlan:
        """The present plan."""
        return self.collections.plan

    @property
    def current(self) -> StepCapture | None:
        """The step that is being captured; None at a step that saves nothing."""
        return self.captures.current

    def new_cache(self) -> StepCache[Any]:
        """Return a cache for what an adapter computes once per kind of step."""
        cache: StepCache[Any] = StepCache()
        self._caches.append(cache)
        return cache

    def invalidate(self) -> None:
        """Clear all caches of the adapter: the plan or the model has changed."""
        for cache in self._caches:
            cache.clear()

    # ---- steps

    def begin_step(self, number: int | None = None) -> StepCapture | None:
        """End the previous step and begin the next one.

        Args:
            number: the step's number, where the framework counts.

        Returns:
            The capture of the step; None when nothing is saved at it.
        """
        with self.guarded.lock:
            idle = number is None and self.steps.mode_step + 1 < self._idle_until
            if idle and self.errors.failure is None:
                self.steps.skip()
                return None
        self.errors.raise_pending()
        # Not guarded: an invalid configuration always raises.
        self.make_ready()
        # The lock is held throughout: what another thread saves in between would have no step.
        with self.guarded.lock:
            resume = self.run.resume
            if self.current is not None or resume.has_checkpoints:
                with self.guarded:
                    self._end_step()
                    resume.record_checkpoint(self.saved.last, self.run.publish)
            with self.guarded:
                return self._begin_step(self.steps.advance(number))
        return None

    def _begin_step(self, step: Step) -> StepCapture | None:
        if self.saving():
            plan = self.plan.at(step.mode, step.mode_step)
            if plan is not None or self.captures.has_early:
                return self.captures.begin(step, plan)
        if self.errors.failure is None:
            self._set_idle(step)
        else:
            self._lose(step)
        return None

    def _set_idle(self, step: Step) -> None:
        """Have begin_step return at once until the next step of this mode that saves something."""
        if not self.run.resume.has_checkpoints:
            following = self.plan.next_step(step.mode, step.mode_step) if self.run.writes else None
            self._idle_until = sys.maxsize if following is None else following

    def _wake(self) -> None:
        """Have begin_step check everything again."""
        self._idle_until = _NOW

    def cancel_step(self) -> None:
        """Undo a step that began and did not run, unless something is saved."""
        if self.current is None or not self.current.pending:
            self.captures.current = None
            self.steps.cancel()

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of the steps to come."""
        if mode is not self.steps.mode:
            self.steps.set_mode(mode)
            self._wake()

    def go_to_step(self, number: int) -> None:
        """Make a step the last one, as the user sets `hook.step`."""
        with self.guarded:
            self._end_step()
            # Steps that are made again replace what has been published before.
            self.run.publish()
        with self.guarded.lock:
            earlier = self.run.resume.go_to(number, self.adapter.worker().name)
            self.saved.go_to(number, earlier)
            self._wake()
        self.errors.raise_pending()

    def _end_step(self) -> None:
        """Hand over the previous step; a failure does not keep it."""
        capture = self.current
        try:
            if capture is not None and self.errors.failure is None:
                self.hand_over(capture, finish=True)
                self.run.write_collections(self.collections)
        except Exception:
            self.captures.current = None
            raise
        if self.errors.failure is not None:
            self.saved.lose_rest(capture)
        # Not after Ctrl-C: `close` or the next step hands it over once more.
        self.captures.current = None

    # ---- tensors

    def offer(self, name: str, tensor: Any, target: StepCapture | None = None) -> None:
        """Capture a tensor, if it is saved at its step.

        Args:
            name: the tensor's name.
            tensor: a tensor of the framework.
            target: its step; None for the current one. An earlier step must be handed over again.
        """
        current = self.captures.current if target is None else target
        if current is None or current.plan is None:
            return
        request = current.plan.request(name)
        if request is not None:
            capture = self.adapter.capture(name, tensor, request, current.last)
            if capture is not None:
                current.pending.append(capture)
        if current.plan.armed:
            observe(self, current, name, tensor)

    def user_step(self) -> StepCapture:
        """Return the capture of the step that something the user saves now belongs to."""
        self._wake()
        return self.captures.of_user()

    def put(self, captures: list[Capture], step: StepCapture | None = None) -> None:
        """Save captures, whatever the save schedule, at a `user_step`; that of now when None."""
        step = self.user_step() if step is None else step
        # It may have been closed by another thread, meanwhile.
        if self.active:
            step.pending.extend(captures)
            if not self.captures.is_open(step):
                self.hand_over(step, finish=True)

    # ---- the hand-over

    def hand_over(self, capture: StepCapture, finish: bool = False) -> None:
        """Give what was captured at a step to the writer: the only way into the run.

        Args:
            capture: the step, the current one or another.
            finish: whether the step is complete.
        """
        output = self.run.output
        if output is None or self.errors.failure is not None:
            return
        try:
            self.adapter.complete(capture)
            if capture.pending:
                # First: without collections no trial opens, and the process may be killed.
                self.run.write_collections(self.collections)
                output.submit(capture.step, capture.time, capture.pending, finish)
                self.saved.add(capture.step)
                capture.handed_over()
            elif finish:
                output.finish_step()
        except Exception:
            self.saved.lose(capture.step.number)
            raise

    def flush(self) -> None:
        """Publish everything saved so far, the current step included, and wait for it."""
        if self.saving():
            with self.guarded:
                for capture in self.captures.drain():
                    self.hand_over(capture)
                self.run.write_collections(self.collections, now=True)
                self.run.publish()
        self.errors.raise_pending()

    # ---- the run

    def make_ready(self) -> None:
        """Make the plan if collections have changed, and open the run on first use.

        Raises:
            InvalidCollectionConfiguration: a collection names no tensor at all.
            SMDebugRuntimeError: another live process writes to the run as this worker.
        """
        if self.collections.refresh(self.adapter.resolve):
            self.invalidate()
        self._open_run()

    def _open_run(self) -> None:
        run = self.run
        if run.ready or not self.active:
            return
        # Two threads may come at once, and would meet each other's lock; or one of them closes.
        with self.guarded.lock:
            if run.ready or not self.active:
                return
            worker = self.adapter.worker()
            try:
                run.open(worker, self.adapter.open_output, self.collections, self.saved)
                if not self.options.dry_run:
                    self.rules.start(run.out_dir, worker.workers, worker.chief)
            except (WriterLocked, SMDebugValueError):
                # Raised, because training has not begun.
                raise
            except Exception as error:
                self.errors.caught(error)
            run.set_ready(worker)

    def saving(self) -> bool:
        """Return whether there is a run to save to; opens it on first use."""
        if not self.active or self.errors.failure is not None:
            return False
        self._open_run()
        return self.run.writes and self.errors.failure is None

    def write_collections(self) -> None:
        """Write the collections file now."""
        if self.saving():
            with self.guarded:
                self.run.write_collections(self.collections, always=True)
        self.errors.raise_pending()

    def stats(self) -> HookStats:
        """Return what was saved so far and the overhead."""
        stats = HookStats(steps=self.steps.begun, seconds=self.guarded.seconds)
        self.saved.update(stats, self.run.last_output, self.errors.failure is not None)
        return stats

    def _lose(self, step: Step) -> None:
        """Count a step that begins after a failure, if it was to be saved."""
        if self.run.writes:
            plan = self.plan.at(step.mode, step.mode_step)
            if self.captures.has_early or (plan is not None and plan.saving):
                self.saved.lose(step.number)
        self.captures.clear()
        # Nothing is saved anymore: what is cached for steps to come is of no use.
        self.invalidate()

    def lose_user_step(self) -> None:
        """Count the current step, if the user's value is not saved because of a failure."""
        if self.errors.failure is not None and self.active and self.run.writes:
            self.saved.lose(self.steps.current().number)

    # ---- stopping

    def stop_if_requested(self) -> bool:
        """Stop training if that was requested; called before a step. Return whether it was."""
        if self.rules.request is None or not self.active or not self.rules.due():
            return False
        self.lifecycle.stop(self.rules.request)
        return True

    def stop_now(self, finding: Finding) -> None:
        """Stop in the middle of a step because of something the hook itself has found."""
        self.flush()
        # Not with the lock: a rule that is being evaluated may save something itself.
        self.lifecycle.stop(stop_request_for(self.rules.record_finding(finding)))

    # ---- the end; called by the lifecycle

    def end(self) -> None:
        """Hand over everything; nothing is saved from now on."""
        with self.guarded.lock:
            # Also when Ctrl-C came before the run was ready: there is no run without collections.
            unfinished = self.run.output is not None and self.active
            if unfinished and self.run.writes and self.errors.failure is None:
                with self.guarded:
                    for capture in self.captures.drain():
                        self.hand_over(capture)
                    self.run.write_collections(self.collections, always=True)
                    self.run.resume.record_checkpoint(
                        self.saved.last, self.run.publish, at_end=True
                    )
            if self.errors.failure is not None:
                self.saved.lose_rest(self.current)
            self.active = False
            self.captures.clear()
            self.run.finish()

    def leave(self) -> None:
        """Leave the run to the parent, in a forked child."""
        self.active = False
        self.guarded.after_fork()
        self.captures.clear()
        self.run.resume.stop()
        if self.run.output is not None:
            self.run.output.leave()
        self.adapter.after_fork()
