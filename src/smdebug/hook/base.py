"""The hook of every framework: collections, modes, scalars, and the life of a run.

It has more methods than most because they are the interface of smdebug 1.0; what a method does is
elsewhere: the plan decides, the capture holds, the output writes, the guard meets failures, the
place is opened and the hook closed in modules of their own. What happens at every step is here, in
one piece: a further object in between would cost every step.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from smdebug.config import environment, validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.json_config import read_json_config, read_tensorboard_dir
from smdebug.config.save_config import DEFAULT_SAVE_CONFIG_INTERVAL
from smdebug.exceptions import (
    RuleEvaluationConditionMet,
    SMDebugTypeError,
    SMDebugValueError,
)
from smdebug.hook.capture import ArrayCapture, StepCapture
from smdebug.hook.collections import HookCollections
from smdebug.hook.current import set_hook
from smdebug.hook.errors import Entered, ErrorPolicy
from smdebug.hook.lifecycle import Closing, close_at_exit
from smdebug.hook.missing import Missing
from smdebug.hook.nan_trigger import watch
from smdebug.hook.output import DryOutput
from smdebug.hook.plan import SaveRequest
from smdebug.hook.previous_run import previous_tensor_names
from smdebug.hook.resume import Resume
from smdebug.hook.rules import HookRules, request_of
from smdebug.hook.run_location import open_run, require_free, resolve_out_dir
from smdebug.hook.sigterm import TERMINATION
from smdebug.hook.stats import HookStats
from smdebug.hook.steps import StepCounter, step_number
from smdebug.hook.worker import CHIEF_WORKER, Worker
from smdebug.storage.arrow import warm_up
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer_lock import WriterLocked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from smdebug.config.json_config import JsonConfigSource
    from smdebug.config.options import HookOptions
    from smdebug.hook.capture import Capture
    from smdebug.hook.output import Output
    from smdebug.hook.step_history import Step
    from smdebug.mode_keys import ModeKeys
    from smdebug.reductions import Array
    from smdebug.storage.findings import Finding
    from smdebug.storage.stop_requests import StopRequest

_Hook = TypeVar("_Hook", bound="BaseHook")

logger = logging.getLogger("smdebug.hook")

# Making the collections file, which takes longer the more names there are, is at most one part in
# so many of the time.
_COLLECTIONS_SHARE = 20
_SCALAR = SaveRequest(raw=True, reductions=(), collections=(CollectionKeys.SCALARS,))
_METRIC = SaveRequest(
    raw=True, reductions=(), collections=(CollectionKeys.SCALARS, CollectionKeys.SM_METRICS)
)


class BaseHook(HookCollections):
    """Saves what happens inside of a training job; an adapter makes one for its framework.

    An adapter sets the class attributes, calls `_stop_if_asked`, `_begin_step` and `_offer`, and
    says how to turn a tensor of its framework into what is saved of it.

    Args:
        options: everything the hook was told.

    Attributes:
        last_saved_step: the number of the last step at which something was saved, of those up to
            `step`; None when there was none, and where `step` was set back and it is not known.
    """

    # What an adapter sets, beside what HookCollections asks for.
    default_save_interval: ClassVar[int] = DEFAULT_SAVE_CONFIG_INTERVAL
    chief_worker = CHIEF_WORKER

    def __init__(self, options: HookOptions) -> None:
        options = options.saving_every(self.default_save_interval)
        if environment.in_sagemaker():
            # The platform's own setting comes first: it copies what is there, and nothing else.
            options = options.with_tensorboard(read_tensorboard_dir())
        super().__init__(options)
        self.out_dir = resolve_out_dir(options)
        self._store = open_store(self.out_dir)
        self._steps = StepCounter()
        self._guard = ErrorPolicy(options.on_error)
        self._stats = HookStats()
        self._lock = threading.RLock()
        self._closing = Closing()
        self._output: Output | None = None
        # Where the steps went, once the hook is closed.
        self._last_output: Output | None = None
        self._capture: StepCapture | None = None
        # What a user saved before the step it is for began.
        self._early: StepCapture | None = None
        self._saved: dict[ModeKeys, int] = {}
        self._missing = Missing()
        self._collections_wait = 0.0
        self._writes = True
        # An earlier job has left a run here that was interrupted.
        self._follows = False
        self._closed = self._ready = False
        self._supervisor = HookRules(self._rules, options, self._store, self._steps)
        worker = self._worker()
        if not options.dry_run and self._is_writer(worker):
            self._follows = require_free(self._store, options, self.out_dir, worker)
        self._resume = Resume(options, self._store, self._steps)
        self.last_saved_step = self._resume.restore(worker.name, worker.workers)
        if not options.dry_run and self._is_writer(worker):
            # Here, and not in the middle of the first steps.
            warm_up()
        if not options.dry_run:
            # The last time that the training thread waits for the store.
            self._supervisor.snapshot_existing()
        close_at_exit(self)
        set_hook(self)

    @classmethod
    def create_from_json_file(
        cls: type[_Hook], json_file_path: JsonConfigSource | None = None
    ) -> _Hook:
        """Makes the hook that a job file describes.

        Args:
            json_file_path: the file, or a dict with what would be in it, such as the request that
                the SageMaker SDK makes; `SMDEBUG_CONFIG_FILE_PATH`, or SageMaker's place for it,
                when None.

        Raises:
            FileNotFoundError: there is no such file.
            SMDebugValueError: something in it makes no sense.
        """
        job = read_json_config(json_file_path, default_save_interval=cls.default_save_interval)
        fields = dataclasses.fields(job.options)
        # The adapter's own constructor, which takes at least the fields of HookOptions.
        arguments: Any = {field.name: getattr(job.options, field.name) for field in fields}
        hook = cls(**arguments)
        for collection in job.collections:
            hook.collection_manager.overlay(collection)
        return hook

    # ---- what was asked for

    @property
    def tensorboard_dir(self) -> str | None:
        """Where TensorBoard files go; None when there are none."""
        return self._options.tensorboard_path

    @property
    def dry_run(self) -> bool:
        """Whether nothing is written."""
        return self._options.dry_run

    @property
    def save_all_workers(self) -> bool:
        """Whether every worker writes, not only the first."""
        return self._options.include_workers == "all"

    @property
    def worker(self) -> str:
        """The name of this worker."""
        return self._worker().name

    @property
    def step(self) -> int:
        """The number of the last step over all modes; -1 before the first.

        Setting it goes back, or on, to a step: the next one is the one behind it, in every mode as
        far as its count at that step is known. Steps that are saved again replace those saved
        before.

        Example:
            >>> hook.step = checkpoint["step"]  # doctest: +SKIP
        """
        return self._steps.step

    @step.setter
    def step(self, value: int) -> None:
        number = step_number(value)
        with self._entered():
            self._end_step()
        with self._lock:
            saved = self._resume.go_to(number, self._worker().name)
            self._saved = {mode: step for mode, step in self._saved.items() if step <= number}
            known = [saved, self.last_saved_step, *self._saved.values()]
            self.last_saved_step = max(
                (step for step in known if step is not None and step <= number), default=None
            )
        self._guard.raise_if_asked()

    @property
    def mode(self) -> ModeKeys:
        """The mode of the steps to come."""
        return self._steps.mode

    @property
    def closed(self) -> bool:
        """Whether the hook was closed."""
        return self._closed

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """The number of the last step of each mode that was used."""
        return self._steps.mode_steps

    def export_collections(self) -> None:
        """Writes the collections file now; it is also kept up to date without this."""
        if self._saves():
            with self._entered():
                self._write_collections()
        self._guard.raise_if_asked()

    def should_save_tensor_or_collection(self, tensor_name: str, collection_name: str) -> bool:
        """Whether a tensor, or a collection, is saved at the present step."""
        if self._capture is None or self._capture.plan is None:
            return False
        saving = {collection.name for collection in self._capture.plan.saving}
        return collection_name in saving or self._capture.plan.want(tensor_name) is not None

    # ---- saving

    def set_mode(self, mode: ModeKeys) -> None:
        """Sets the mode of the steps to come: `modes.TRAIN`, `EVAL`, `PREDICT` or `GLOBAL`."""
        self._steps.set_mode(mode)

    def save_scalar(
        self,
        name: str,
        value: Any,
        sm_metric: bool = False,
        timestamp: float | None = None,
    ) -> None:
        """Saves a number as `scalar/<name>` at the present step and mode, whatever the schedule.

        Args:
            name: its name.
            value: a number, or an array or tensor with one element.
            sm_metric: the number also belongs to the collection `sm_metrics`.
            timestamp: seconds since 1970; now when None.

        Raises:
            SMDebugTypeError: the value is not one number.

        Example:
            >>> hook.save_scalar("learning_rate", 0.1)  # doctest: +SKIP
        """
        validation.text("name", name)
        array = self._as_array("value", value)
        if array.size != 1 or array.dtype.kind in "USO":
            raise SMDebugTypeError(
                f"scalar {name!r}: value must be one number, got {validation.short_repr(value)}"
            )
        moment = None if timestamp is None else validation.seconds("timestamp", timestamp)
        self._begin_user_step()
        if self._saves():
            with self._entered():
                full = f"scalar/{name}"
                want = _METRIC if sm_metric else _SCALAR
                self._remember_name(full, want.collections)
                # A number by itself has always been stored as an array of one.
                array = array.reshape(1) if not hasattr(value, "shape") else array
                self._put(
                    ArrayCapture(full, array, want, time.time() if moment is None else moment)
                )
        else:
            self._lose_saved()
        self._guard.raise_if_asked()

    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Any = "default"
    ) -> None:
        """Saves a tensor at the present step, if the schedule of a collection it goes to says so.

        Args:
            tensor_name: its name.
            tensor_value: a tensor of the framework, a numpy array, or lists of numbers.
            collections_to_write: the collection, or a list of them, to write it to. They need not
                be among `include_collections`; those that do not exist are made.

        Raises:
            SMDebugTypeError: the value is no tensor.

        Example:
            >>> hook.save_tensor("batch", images, ["inputs"])  # doctest: +SKIP
        """
        validation.text("tensor_name", tensor_name)
        names = validation.names("collections_to_write", collections_to_write) or ["default"]
        tensor = self._as_tensor(tensor_name, tensor_value)
        self._begin_user_step()
        if self._saves():
            with self._entered():
                self._save_tensor(tensor_name, tensor, names)
        else:
            self._lose_saved()
        self._guard.raise_if_asked()

    def _save_tensor(self, tensor_name: str, value: Any, names: list[str]) -> None:
        names = [self.collection_manager.get(name).name for name in names]
        step = self._steps.current()
        self._remember_name(tensor_name, tuple(names))
        due = self._plan.collections_at(names, step.mode, step.mode_step)
        want = self._plan.want_of(due) if due else None
        taken = None if want is None else self._take(tensor_name, value, want)
        if taken is not None:
            self._put(taken)

    def flush(self) -> None:
        """Publishes everything saved so far, the present step included, and waits for it."""
        if self._saves():
            with self._entered():
                self._hand_over()
                self._hand_over_early()
                self._write_changed_collections(now=True)
                self._publish()
        self._guard.raise_if_asked()

    def findings(self) -> list[Finding]:
        """Returns what the rules of this hook have found so far, in the order they found it."""
        return self._supervisor.findings()

    def rule_report(self) -> Any:
        """Returns what became of each rule so far, a `RuleReport`; final once the hook is closed.

        None when this process evaluates no rules: the hook has none, or it is not the first worker.
        """
        return self._supervisor.report()

    def stats(self) -> HookStats:
        """Returns what the hook did and what it cost so far."""
        stats = dataclasses.replace(self._stats, steps=self._steps.begun)
        output = self._output or self._last_output
        if output is not None:
            output.update(stats)
        if self._guard.failed is not None:
            self._missing.correct(stats, output)
        return stats

    def close(self) -> None:
        """Publishes everything, marks the run as finished, takes the hook off what it watches.

        Also runs when the interpreter ends. A second call does nothing, or waits for the first, or
        completes one that Ctrl-C has interrupted; steps that training makes afterwards are not
        saved. It may be called from any thread.
        """
        self._close()

    def _close(self, interrupted: bool = False) -> None:
        """Closes the hook.

        Args:
            interrupted: the process is about to end, and a thread of its own closes the hook while
                training goes on: what it watches is left as it is.
        """
        # In this order: a hook that came from another process has no end of its own.
        if not (self._forked or self._closing.done):
            self._closing.close(self, interrupted)

    def _end_run(self) -> None:
        """Hands over what was saved; from then on nothing is saved any more."""
        with self._lock:
            # Also when Ctrl-C came before the hook was ready: there is no run without collections.
            unfinished = self._output is not None and not self._closed
            if unfinished and self._writes and self._guard.failed is None:
                with self._entered():
                    self._hand_over()
                    self._hand_over_early()
                    self._write_collections()
                    self._resume.look(self.last_saved_step, self._publish, at_end=True)
            if self._guard.failed is not None:
                self._missing.add_rest(self._capture)
            self._closed = True
            self._capture = self._early = None
            if self._output is not None:
                self._last_output, self._output = self._output, None

    def __enter__(self: _Hook) -> _Hook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        try:
            self.close()
        except Exception:
            if kind is None:
                raise
            # The script's own exception is the one to show.
            logger.exception("the run in %s is not complete", self.out_dir)

    def __getstate__(self) -> dict[str, Any]:
        # What holds a hook can be pickled; the hook itself stays in its process.
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._closed = self._forked = True
        self._guard = ErrorPolicy("warn")

    def __deepcopy__(self: _Hook, memo: dict[int, Any]) -> _Hook:
        return self

    # ---- what an adapter uses

    def _stop_if_asked(self) -> bool:
        """Stops training if a rule or somebody else asked for it; an adapter asks before a step.

        Returns:
            Whether the run was closed; where `_stop_training` raises, it does not return then.
        """
        # In this order: a hook that came from another process has no supervisor.
        if self._closed or self._supervisor.request is None or not self._supervisor.due():
            return False
        self._obey(self._supervisor.request)
        return True

    def _begin_step(self, number: int | None = None) -> StepCapture | None:
        """Ends the step before and begins the next; None when nothing is saved at it.

        Args:
            number: the step's number, where the framework counts itself.
        """
        self._guard.raise_if_asked()
        # Outside of the guard: a configuration that makes no sense always raises.
        self._make_plan()
        self._make_ready()
        # All at once: what another thread saves in between would be of no step.
        with self._lock:
            if self._capture is not None or self._resume.watches:
                with self._entered():
                    self._end_step()
                    if self._resume.watches:
                        self._resume.look(self.last_saved_step, self._publish)
            with self._entered():
                step = self._steps.advance(number)
                if self._saves():
                    plan = self._plan.at(step.mode, step.mode_step)
                    if plan is not None or self._early is not None:
                        self._capture = StepCapture(step, plan)
                    if self._early is not None and self._capture is not None:
                        self._capture.go_on_from(self._early)
                        self._early = None
                    return self._capture if plan is not None else None
                if self._guard.failed is not None:
                    self._lose(step)
        return None

    def _cancel_step(self) -> None:
        """Takes back a step that was begun and did not take place, unless something is saved."""
        if self._capture is not None and self._capture.holds_anything:
            return
        self._capture = None
        self._steps.take_back()

    def _end_step(self) -> None:
        """Gives the step before to the writer, if there is one; a failure does not keep it."""
        try:
            if self._capture is not None and self._guard.failed is None:
                self._hand_over(finish=True)
                self._write_changed_collections()
        except Exception:
            self._capture = None
            raise
        if self._guard.failed is not None:
            self._missing.add_rest(self._capture)
        # Not after Ctrl-C: it is handed over once more, by `close` or by the next step.
        self._capture = None

    def _offer(self, name: str, tensor: Any) -> None:
        """Takes a tensor of the present step, if it is wanted."""
        capture = self._capture
        if capture is None or capture.plan is None:
            return
        want = capture.plan.want(name)
        taken = None if want is None else self._take(name, tensor, want)
        if taken is not None:
            capture.add(taken)
        if capture.plan.armed:
            watch(self, capture, name, tensor)

    def _lose(self, step: Step) -> None:
        """Notes, after a failure, that a step is not saved, if it would have been."""
        if self._early is not None:
            self._missing.add(step.number)
        elif self._writes:
            self._missing.add_planned(step, self._plan)
        self._early = None
        self._missing.let_go(self._plan)

    def _lose_saved(self) -> None:
        """Notes, after a failure, that what a user saves at the present step is not."""
        if self._guard.failed is not None and self._writes and not (self._closed or self._forked):
            self._missing.add(self._steps.current().number)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Does something for which others may need the lock; a failure goes to the guard."""
        try:
            work()
        except Exception as error:
            self._guard.caught(error)

    def _saves(self) -> bool:
        """Whether there is anything to save to; makes it ready on first use."""
        if self._closed or self._forked or self._guard.failed is not None:
            return False
        self._make_ready()
        return self._writes and self._guard.failed is None

    def _entered(self) -> Entered:
        """Around everything the hook does in the training thread: time, lock, failures."""
        return Entered(self._lock, self._stats, self._guard)

    # ---- what an adapter answers

    def _begin_user_step(self) -> None:
        """Begins a step for what a user saves, where nothing else would begin one."""

    def _worker(self) -> Worker:
        """This process among those of the job."""
        return Worker(self._options.worker or CHIEF_WORKER)

    def _as_tensor(self, key: str, value: Any) -> Any:
        """Turns what a user gave as a tensor into what `_take` takes, or raises."""
        return self._as_array(key, value)

    def _as_array(self, key: str, value: Any) -> Array:
        """Turns what a user gave as a number or a tensor into an array of its own."""
        try:
            array = np.array(value)
        except (TypeError, ValueError) as error:
            raise SMDebugTypeError(
                f"{key} must be a number, an array or a tensor, "
                f"got {validation.short_repr(value)}: {error}"
            ) from error
        if array.dtype.kind == "O":
            raise SMDebugTypeError(
                f"{key} must be a number, an array or a tensor, "
                f"got {validation.short_repr(value)} of type {type(value).__name__}"
            )
        return array

    def _take(self, name: str, tensor: Any, want: SaveRequest) -> Capture | None:
        """Takes a copy of a tensor, to be finished on the writer's thread; None if it has none."""
        return ArrayCapture(name, self._as_array(name, tensor), want)

    def _is_finite(self, tensor: Any) -> bool:
        """Whether all of a tensor is finite."""
        array = self._as_array("tensor", tensor)
        return array.dtype.kind not in "fcV" or bool(np.isfinite(array).all())

    def _hold(self, tensor: Any) -> Any:
        """What is kept of a tensor that may have to be saved later in the step."""
        return tensor

    def _version(self, tensor: Any) -> object:
        """Something that changes when the tensor's memory is written to."""
        return None

    def _detach(self) -> None:
        """Takes the hook off everything it watches."""

    # ---- rules and requests

    def _obey(self, request: StopRequest) -> None:
        """Closes the run and stops training."""
        logger.warning("training stops after step %d: %s", self._steps.step, request.reason)
        self.close()
        self._stop_training(request)

    def _stop_training(self, request: StopRequest) -> None:
        """Ends training; the run is closed. A framework that can be asked to end overrides it."""
        raise RuleEvaluationConditionMet(
            request.rule, request.step, tensor=request.tensor, message=request.reason
        )

    def _stop_now(self, finding: Finding) -> None:
        """Stops in the middle of a step because of something the hook itself has seen."""
        self.flush()
        # Not under the lock: a rule that is at work may save something itself.
        finding = self._supervisor.seen(finding)
        self._obey(request_of(finding))

    # ---- inside

    def _put(self, *taken: Capture) -> None:
        """Puts what a user saved to the step it belongs to, all of it at once."""
        if self._closed:
            # By another thread, meanwhile.
            return
        step = self._steps.current()
        if step.number > self._steps.step:
            # The mode of a step that has not begun is not known for sure.
            self._early = self._early or StepCapture(step, None)
            for each in taken:
                self._early.add(each)
            return
        if self._capture is None and step.number == self._steps.step:
            self._capture = StepCapture(step, None)
        if self._capture is not None and self._capture.step == step:
            for each in taken:
                self._capture.add(each)
            return
        # An older step: the last one of a mode that is current again.
        self._submit(step, time.time(), list(taken), finish=True)

    def _hand_over(self, finish: bool = False) -> None:
        """Gives what was taken at the present step to the writer."""
        if self._capture is None or self._output is None or self._guard.failed is not None:
            return
        try:
            taken = self._finish_taking(self._capture)
            if taken:
                self._submit(self._capture.step, self._capture.time, taken, finish)
                self._capture.handed_over()
            elif finish:
                self._output.finish_step()
        except Exception:
            self._missing.add(self._capture.step.number)
            raise

    def _hand_over_early(self) -> None:
        """Gives what was put before a step began to the writer, if that step did not come."""
        early = self._early
        if early is not None and self._output is not None:
            try:
                self._submit(early.step, early.time, early.taken, finish=False)
            except Exception:
                self._missing.add(early.step.number)
                self._early = None
                raise
        self._early = None

    def _submit(self, step: Step, moment: float, taken: list[Capture], finish: bool) -> None:
        assert self._output is not None
        # Before the step: without collections no trial opens, and the process may be killed.
        self._write_changed_collections()
        self._output.submit(step, moment, taken, finish)
        if self._saved.get(step.mode) != step.number:
            self._saved[step.mode] = step.number
            self._stats.saved_steps += 1
        self.last_saved_step = max(step.number, self.last_saved_step or 0)

    def _publish(self) -> None:
        """Publishes everything that was handed over, and waits for it."""
        if self._output is not None and self._guard.failed is None:
            self._output.finish_step()
            self._output.flush()

    def _finish_taking(self, capture: StepCapture) -> list[Capture]:
        return capture.taken

    def _make_ready(self) -> None:
        """Opens what the hook writes to, once.

        Raises:
            SMDebugRuntimeError: another live process writes to it as this worker.
        """
        if self._ready or self._closed or self._forked:
            return
        # Two threads may come at once, and would meet each other's claim; or one of them closes.
        with self._lock:
            if self._ready or self._closed:
                return
            worker = self._worker()
            self._writes = self._is_writer(worker)
            self.collection_manager.set_num_workers(worker.workers if self.save_all_workers else 1)
            try:
                if not self._resume.is_restored_as(worker.name, worker.workers):
                    self.last_saved_step = self._resume.restore(worker.name, worker.workers)
                if self._output is None:
                    self._output = self._open_output(worker.name)
                if not self.dry_run:
                    TERMINATION.listen()
                    self._supervisor.start(self.out_dir, worker.workers, worker.chief)
                if self._resume.continues and self._writes and not self.dry_run:
                    for collection, tensor in previous_tensor_names(self._store, worker.name):
                        self._remember_name(tensor, (collection,))
            except (WriterLocked, SMDebugValueError):
                # Whoever set the job up must know, and training has not begun.
                raise
            except Exception as error:
                self._guard.caught(error)
            self._resume.ready(self._writes and not self.dry_run, keeps=worker.chief)
            self._ready = True

    def _open_output(self, worker: str) -> Output | None:
        if self.dry_run:
            return DryOutput()
        if not self._writes:
            return None
        return open_run(
            self._store,
            self._options,
            worker,
            self._options.format or self._resume.format(worker) or environment.storage_format(),
            reopen=(self._options.resume or self._follows) and self._worker().chief,
        )

    def _is_writer(self, worker: Worker) -> bool:
        return worker.chief or self.save_all_workers

    def _write_changed_collections(self, now: bool = False) -> None:
        """Writes the collections file if there are new names.

        Args:
            now: otherwise it waits where there are new ones at every step, so that writing all of
                them again takes a small share of the time, however many they are.
        """
        if self._plan.changed and (now or time.perf_counter() >= self._collections_wait):
            self._write_collections()

    def _write_collections(self) -> None:
        if self._output is not None:
            began = time.perf_counter()
            self._output.write_collections(self._collections_json())
            self._plan.changed = False
            ended = time.perf_counter()
            self._collections_wait = ended + _COLLECTIONS_SHARE * (ended - began)

    _forked = False

    def _at_exit(self) -> None:
        self.close()

    def _after_fork(self) -> None:
        # The writer's thread and the claim are the parent's.
        self._forked = True
        # The threads that held their locks are not here.
        self._lock, self._closing = threading.RLock(), Closing()
        self._capture = self._early = None
        self._resume.stop()
        if self._output is not None:
            self._output.leave()
