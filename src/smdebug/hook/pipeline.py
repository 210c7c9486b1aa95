"""From a tensor that a framework offers to the writer: plan, step, capture, hand-over.

    adapter -> begin_step / offer -> StepCapture -> hand_over -> RunSession.output -> writer thread

Everything the training thread does at a step is here, in one piece. A step that saves nothing costs
one comparison: `_idle_until` is the next step of the current mode that needs more.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugValueError
from smdebug.hook.capture import ArrayCapture, StepCapture
from smdebug.hook.collections import HookCollections
from smdebug.hook.errors import ErrorPolicy, GuardedSection
from smdebug.hook.lifecycle import Lifecycle
from smdebug.hook.missing import Missing
from smdebug.hook.nan_trigger import observe
from smdebug.hook.plan import SaveRequest, StepCache
from smdebug.hook.rule_thread import RuleSet
from smdebug.hook.rules import HookRules, request_of
from smdebug.hook.run_session import RunSession
from smdebug.hook.sigterm import TERMINATION
from smdebug.hook.stats import HookStats
from smdebug.hook.steps import StepCounter
from smdebug.mode_keys import ModeKeys
from smdebug.storage.writer_lock import WriterLocked

if TYPE_CHECKING:
    from smdebug.config.collection_manager import CollectionManager
    from smdebug.config.options import HookOptions
    from smdebug.hook.adapter import Adapter
    from smdebug.hook.capture import Capture
    from smdebug.hook.plan import SavePlan
    from smdebug.hook.step_history import Step
    from smdebug.storage.findings import Finding
    from smdebug.storage.stop_requests import StopRequest
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")

# The collections file takes longer to make the more names there are: it is written at most one part
# in so many of the time.
_COLLECTIONS_SHARE = 20
_SCALAR = SaveRequest(raw=True, reductions=(), collections=(CollectionKeys.SCALARS,))
_METRIC = SaveRequest(
    raw=True, reductions=(), collections=(CollectionKeys.SCALARS, CollectionKeys.SM_METRICS)
)
_NOW = -1


class Pipeline:
    """Saves the tensors of one process.

    Args:
        adapter: the class of the framework's adapter.
        options: the hook's options.
        store: where the run is.
        out_dir: the same as the user wrote it.
        prepared: collections that module-level functions made before there was a hook.

    Attributes:
        adapter: the adapter.
        options: the hook's options.
        active: whether training may still save something: not closed, and not a forked child.
        collections: the collections and the plan.
        steps: the step counter.
        current: the step that is being captured; None at a step that saves nothing.
        guarded: the context for everything an adapter does in a callback.
        errors: what becomes of failures.
        run: the run that is written.
        rules: the rules of this job, and requests to stop it.
        lifecycle: closes everything.
        last_saved_step: the last step at which something was saved, of those up to the current one;
            None without one.
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
        self._stats = HookStats()
        self.guarded = GuardedSection(self._stats, self.errors)
        self.current: StepCapture | None = None
        # What the user saved before the step it belongs to began, by the mode at that time.
        self._early: dict[ModeKeys, StepCapture] = {}
        self._saved: dict[ModeKeys, int] = {}
        self._missing = Missing()
        self._collections_pause = 0.0
        self._idle_until = _NOW
        self._caches: list[StepCache[Any]] = []
        self.last_saved_step: int | None = None
        rules = RuleSet(options.rules, options.actions) if options.rules else None
        if options.before_update and rules is not None:
            if not adapter.can_stop_before_update:
                refuse_before_update(adapter)
            rules.before_update_rule()
        self.rule_set = rules
        self.collections = HookCollections(
            adapter, options, prepared, [] if rules is None else rules.needs, self._wake
        )
        self.run = RunSession(store, out_dir, options, self.steps)
        self.rules = HookRules(rules, options, store, self.steps)
        self.lifecycle = Lifecycle(self)
        self.adapter = adapter(self)

    def start(self) -> None:
        """Check the run and restore an earlier job's steps; the last wait for the store.

        Raises:
            SMDebugRuntimeError: the run cannot be written.
        """
        self.last_saved_step = self.run.check(self.adapter.worker())
        if not self.options.dry_run:
            self.rules.snapshot_existing()
        self.lifecycle.close_at_exit()

    @property
    def plan(self) -> SavePlan:
        """The present plan."""
        return self.collections.plan

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
            idle = number is None and self.steps.next_mode_step < self._idle_until
            if idle and self.errors.failure is None:
                self.steps.advance()
                return None
        self.errors.raise_pending()
        # Not guarded: an invalid configuration always raises.
        self.make_ready()
        # The lock is held throughout: what another thread saves in between would have no step.
        with self.guarded.lock:
            if self.current is not None or self.run.resume.watches:
                with self.guarded:
                    self._end_step()
                    if self.run.resume.watches:
                        self.run.resume.look(self.last_saved_step, self._publish)
            with self.guarded:
                return self._begin_step(self.steps.advance(number))
        return None

    def _begin_step(self, step: Step) -> StepCapture | None:
        if not self.saving():
            if self.errors.failure is not None:
                self._lose(step)
            else:
                self._set_idle(step)
            return None
        plan = self.plan.at(step.mode, step.mode_step)
        if plan is None and not self._early:
            self._set_idle(step)
            return None
        capture = StepCapture(step, plan)
        # A value saved before any mode was set belongs to the next step of whatever mode.
        for mode in (step.mode, ModeKeys.GLOBAL):
            early = self._early.get(mode)
            if early is not None:
                # The list itself, first: nothing is in two lists, whenever Ctrl-C comes.
                early.pending.extend(capture.pending)
                capture.pending = early.pending
                self.current = capture
                del self._early[mode]
        if plan is None:
            return None
        self.current = capture
        return capture

    def _set_idle(self, step: Step) -> None:
        """Have begin_step return at once until the next step of this mode that saves something."""
        if not self._early and not self.run.resume.watches:
            following = self.plan.next_step(step.mode, step.mode_step) if self.run.writes else None
            self._idle_until = sys.maxsize if following is None else following

    def _wake(self) -> None:
        """Have begin_step look at everything again."""
        self._idle_until = _NOW

    def cancel_step(self) -> None:
        """Take back a step that began and did not take place, unless something is saved."""
        if self.current is None or not self.current.pending:
            self.current = None
            self.steps.take_back()

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of the steps to come."""
        if mode is not self.steps.mode:
            self.steps.set_mode(mode)
            self._wake()

    def go_to_step(self, number: int) -> None:
        """Make a step the last one, as the user sets `hook.step`."""
        with self.guarded:
            self._end_step()
        with self.guarded.lock:
            saved = self.run.resume.go_to(number, self.adapter.worker().name)
            self._saved = {mode: step for mode, step in self._saved.items() if step <= number}
            known = [saved, self.last_saved_step, *self._saved.values()]
            self.last_saved_step = max(
                (step for step in known if step is not None and step <= number), default=None
            )
            self._wake()
        self.errors.raise_pending()

    def _end_step(self) -> None:
        """Hand over the previous step; a failure does not keep it."""
        capture = self.current
        try:
            if capture is not None and self.errors.failure is None:
                self.hand_over(capture, finish=True)
                self._write_changed_collections()
        except Exception:
            self.current = None
            raise
        if self.errors.failure is not None:
            self._missing.add_rest(capture)
        # Not after Ctrl-C: `close` or the next step hands it over once more.
        self.current = None

    # ---- tensors

    def offer(self, name: str, tensor: Any, target: StepCapture | None = None) -> None:
        """Capture a tensor, if it is saved at its step.

        Args:
            name: the tensor's name.
            tensor: a tensor of the framework.
            target: its step; None for the current one. An earlier step must be handed over again.
        """
        current = self.current if target is None else target
        if current is None or current.plan is None:
            return
        request = current.plan.request(name)
        if request is not None:
            capture = self.adapter.capture(name, tensor, request, current.last)
            if capture is not None:
                current.pending.append(capture)
        if current.plan.armed:
            observe(self, current, name, tensor)

    def save_scalar(self, name: str, value: Any, metric: bool, time: float) -> None:
        """Save a number at the current step and mode, whatever the save schedule.

        Args:
            name: its name, as it is saved.
            value: a tensor of the framework with one element, or an array.
            metric: the number also belongs to the collection `sm_metrics`.
            time: seconds since 1970.
        """
        self.adapter.begin_user_step()
        if self.saving():
            with self.guarded:
                request = _METRIC if metric else _SCALAR
                self.collections.remember(name, request.collections)
                self._save_by_user(name, value, request, time)
        else:
            self._lose_user_saved()
        self.errors.raise_pending()

    def save_tensor(self, name: str, tensor: Any, collections: list[str]) -> None:
        """Save a tensor at the current step, if one of the collections is saved at it.

        Args:
            name: its name.
            tensor: a tensor of the framework, or an array.
            collections: the names of the collections; those that do not exist are created.
        """
        self.adapter.begin_user_step()
        if self.saving():
            with self.guarded:
                names = [self.collections.name_of(each) for each in collections]
                self.collections.remember(name, names)
                step = self.steps.current()
                due = self.plan.collections_at(names, step.mode, step.mode_step)
                request = self.plan.request_for([self.plan.collections[each] for each in due])
                if request is not None:
                    self._save_by_user(name, tensor, request)
        else:
            self._lose_user_saved()
        self.errors.raise_pending()

    def _save_by_user(
        self, name: str, tensor: Any, request: SaveRequest, time: float | None = None
    ) -> None:
        target = self._user_step()
        if self.adapter.is_tensor(tensor):
            capture = self.adapter.capture(name, tensor, request, target.last, time)
        else:
            capture = ArrayCapture(name, tensor, request, time)
        if capture is not None:
            self._put([capture], target)

    def put(self, captures: list[Capture]) -> None:
        """Save captures at the current step, whatever the save schedule, all of them at once."""
        self._put(captures, self._user_step())

    def _put(self, captures: list[Capture], target: StepCapture) -> None:
        if not self.active:
            # Closed by another thread, meanwhile.
            return
        target.pending.extend(captures)
        if target is not self.current and target not in self._early.values():
            self.hand_over(target, finish=True)

    def _user_step(self) -> StepCapture:
        """Return the capture of the step that something the user saves now belongs to.

        That is the last step of the present mode; before its first step, the step to come.
        """
        step = self.steps.current()
        if step.number > self.steps.step:
            self._wake()
            return self._early.setdefault(step.mode, StepCapture(step, None))
        if self.current is None and step.number == self.steps.step:
            self._wake()
            self.current = StepCapture(step, None)
        if self.current is not None and self.current.step == step:
            return self.current
        # An older step, of a mode that is current again: it is handed over at once.
        return StepCapture(step, None)

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
                self._write_changed_collections()
                output.submit(capture.step, capture.time, capture.pending, finish)
                self._note_saved(capture.step)
                capture.handed_over()
            elif finish:
                output.finish_step()
        except Exception:
            self._missing.add(capture.step.number)
            raise

    def _note_saved(self, step: Step) -> None:
        if self._saved.get(step.mode) != step.number:
            self._saved[step.mode] = step.number
            self._stats.saved_steps += 1
        self.last_saved_step = max(step.number, self.last_saved_step or 0)

    def _hand_over_all(self) -> None:
        """Hand over the current step so far, and what was saved for steps to come."""
        if self.current is not None:
            self.hand_over(self.current)
        for mode, early in list(self._early.items()):
            early.step = self.steps.to_come(mode)
            try:
                self.hand_over(early)
            finally:
                self._early.pop(mode, None)

    def flush(self) -> None:
        """Publish everything saved so far, the current step included, and wait for it."""
        if self.saving():
            with self.guarded:
                self._hand_over_all()
                self._write_changed_collections(now=True)
                self._publish()
        self.errors.raise_pending()

    def _publish(self) -> None:
        """Publish everything that was handed over, and wait for it."""
        if self.run.output is not None and self.errors.failure is None:
            self.run.output.finish_step()
            self.run.output.flush()

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
            run.prepare(worker)
            workers = worker.workers if self.options.include_workers == "all" else 1
            self.collections.manager.set_num_workers(workers)
            try:
                if not run.resume.is_restored_as(worker.name, worker.workers):
                    self.last_saved_step = run.resume.restore(worker.name, worker.workers)
                if run.output is None:
                    run.output = self.adapter.open_output(worker.name)
                if not self.options.dry_run:
                    TERMINATION.listen()
                    self.rules.start(run.out_dir, worker.workers, worker.chief)
                for collection, tensor in run.previous_names(worker.name):
                    self.collections.remember(tensor, (collection,))
            except (WriterLocked, SMDebugValueError):
                # The user must know, and training has not begun.
                raise
            except Exception as error:
                self.errors.caught(error)
            run.resume.ready(run.writes and not self.options.dry_run, keeps=worker.chief)
            run.ready = True

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
                self._write_collections()
        self.errors.raise_pending()

    def _write_changed_collections(self, now: bool = False) -> None:
        """Write the collections file if there are new names.

        Args:
            now: otherwise it waits where there are new names at every step, so that writing all of
                them again takes a small share of the time.
        """
        if self.plan.changed and (now or time.perf_counter() >= self._collections_pause):
            self._write_collections()

    def _write_collections(self) -> None:
        if self.run.output is not None:
            started = time.perf_counter()
            self.run.output.write_collections(self.collections.to_json())
            self.plan.changed = False
            ended = time.perf_counter()
            self._collections_pause = ended + _COLLECTIONS_SHARE * (ended - started)

    # ---- failures

    def _lose(self, step: Step) -> None:
        """Count a step that begins after a failure, if it would have been saved."""
        if self._early:
            self._missing.add(step.number)
            self._early.clear()
        elif self.run.writes:
            self._missing.add_planned(step, self.plan)
        # Nothing is saved anymore: what is cached for steps to come is of no use.
        self.invalidate()

    def _lose_user_saved(self) -> None:
        """Count the current step, at which the user saves something after a failure."""
        if self.errors.failure is not None and self.run.writes and self.active:
            self._missing.add(self.steps.current().number)

    def stats(self) -> HookStats:
        """Return what was saved so far and the overhead."""
        stats = dataclasses.replace(self._stats, steps=self.steps.begun)
        output = self.run.output or self.run.last_output
        if output is not None:
            output.update(stats)
        if self.errors.failure is not None:
            self._missing.correct(stats, output)
        return stats

    def add_overhead(self, seconds: float) -> None:
        """Count time that was not spent in `guarded`, such as that of closing."""
        self._stats.seconds += seconds

    def log_summary(self) -> None:
        """Log what was saved and the overhead, and what is missing after a failure."""
        output = self.run.output or self.run.last_output
        if self.run.last_output is not None:
            logger.info("%s: %s", self.run.out_dir, self.stats())
        if self.errors.failure is not None:
            self._missing.say(self.run.out_dir, output, self.errors.failure)

    # ---- stopping

    def stop_if_requested(self) -> bool:
        """Stop training if a rule or another process requested it; called before a step.

        Returns:
            Whether the run was closed; where the adapter's `stop_training` raises, it does not
            return then.
        """
        if self.rules.request is None or not self.active or not self.rules.due():
            return False
        self._stop(self.rules.request)
        return True

    def stop_now(self, finding: Finding) -> None:
        """Stop in the middle of a step because of something the hook itself has found."""
        self.flush()
        # Not with the lock: a rule that is being evaluated may save something itself.
        self._stop(request_of(self.rules.seen(finding)))

    def _stop(self, request: StopRequest) -> None:
        logger.warning("training stops after step %d: %s", self.steps.step, request.reason)
        self.lifecycle.close()
        self.adapter.stop_training(request)

    # ---- the end; called by the lifecycle

    def end(self) -> None:
        """Hand over everything; nothing is saved from now on."""
        with self.guarded.lock:
            # Also when Ctrl-C came before the run was ready: there is no run without collections.
            unfinished = self.run.output is not None and self.active
            if unfinished and self.run.writes and self.errors.failure is None:
                with self.guarded:
                    self._hand_over_all()
                    self._write_collections()
                    self.run.resume.look(self.last_saved_step, self._publish, at_end=True)
            if self.errors.failure is not None:
                self._missing.add_rest(self.current)
            self.active = False
            self.current = None
            self._early.clear()
            self.run.finish()

    def leave(self) -> None:
        """Leave the run to the parent, in a forked child."""
        self.active = False
        self.guarded.after_fork()
        self.current = None
        self._early.clear()
        self.run.resume.stop()
        if self.run.output is not None:
            self.run.output.leave()
        self.adapter.after_fork()


def refuse_before_update(adapter: type[Adapter]) -> None:
    """Raise an error: the framework does not support `before_update`."""
    raise SMDebugValueError(
        f"before_update must be False for {adapter.framework}, got True: gradients are not visible "
        'before they are used; on_finding="stop" stops after the step'
    )
