"""A model on several devices: the workers they are, and what each of them writes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from smdebug.hook.stats import CollectionStats, HookStats
from smdebug.hook.worker import CHIEF_WORKER, Worker
from smdebug.tensorflow.backend import keras_backend, tf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.config.options import HookOptions
    from smdebug.hook.capture import Capture
    from smdebug.hook.plan import SaveRequest
    from smdebug.hook.run.output import Output
    from smdebug.hook.steps import Step
    from smdebug.storage.batch import StepBatch


def replicating_strategy(model: Any) -> Any:
    """Return the strategy that runs a model on several devices; None if it runs on one."""
    if keras_backend() != "tensorflow":
        return None
    strategy = model.distribute_strategy
    return strategy if strategy.num_replicas_in_sync > 1 else None


def worker_of(model: Any, strategy: Any, options: HookOptions) -> Worker:
    """Return which worker of the job this process is, and how many its devices are.

    Args:
        model: the model that Keras trains, or None.
        strategy: the strategy in whose scope a tape was wrapped, or None.
        options: the hook's options.
    """
    if options.worker is not None or tf is None or keras_backend() != "tensorflow":
        return Worker(options.worker or CHIEF_WORKER)
    if model is not None:
        strategy = model.distribute_strategy
    elif strategy is None:
        strategy = tf.distribute.get_strategy()
    resolver = strategy.cluster_resolver
    if resolver is not None and resolver.task_id is not None:
        tasks = sum(len(tasks) for tasks in resolver.cluster_spec().as_dict().values())
        if tasks > 1:
            return Worker(f"worker_{resolver.task_id}", tasks, resolver.task_id == 0)
    if model is None or replicating_strategy(model) is None:
        return Worker(CHIEF_WORKER)
    names = worker_names(strategy)
    if options.include_workers == "all":
        return Worker(names[0], len(names))
    on_host = all("CPU" in name for name in names)
    return Worker(CHIEF_WORKER if on_host else names[0])


def local_replicas(strategy: Any) -> int:
    """Return how many replicas of a model this process has."""
    if strategy.num_replicas_in_sync == 1:
        return 1
    return len(strategy.extended.worker_devices)


def worker_names(strategy: Any) -> list[str]:
    """Return the names of the workers that the devices of a strategy are.

    Example:
        `/job:localhost/replica:0/task:0/device:GPU:0` is `_job-localhost_replica-0_task-0_device-
        GPU-0`, which can be part of a file name.
    """
    # In the order in which the strategy returns their values.
    devices = strategy.extended.worker_devices
    return [device.replace("/", "_").replace(":", "-") for device in devices]


class ReplicaCapture:
    """Tensors of a replica of a model other than the first.

    Args:
        capture: the tensors.
        replica: the number of the replica.
    """

    def __init__(self, capture: Capture, replica: int) -> None:
        self.nbytes, self.tensors = capture.nbytes, capture.tensors
        self.needs_release = capture.needs_release
        self.replica = replica
        self._capture = capture

    def finish(self, batch: StepBatch) -> None:
        self._capture.finish(batch)

    def release(self) -> None:
        self._capture.release()

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        return self._capture.items()

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        return self._capture.totals()


class ReplicatedOutput:
    """Writes one worker for each replica; tensors that exist once are written for all of them.

    Args:
        outputs: the output of each replica.
    """

    def __init__(self, outputs: list[Output | None]) -> None:
        self._outputs = [output for output in outputs if output is not None]

    def submit(self, step: Step, time: float, pending: list[Capture], finish: bool = False) -> None:
        names: dict[int, set[str]] = {}
        for each in pending:
            if isinstance(each, ReplicaCapture):
                names.setdefault(each.replica, set()).update(name for name, _, _ in each.items())
        for replica, output in enumerate(self._outputs):
            own = names.get(replica, set())
            output.submit(step, time, [c for c in pending if _is_for(c, replica, own)], finish)

    def finish_step(self) -> None:
        for output in self._outputs:
            output.finish_step()

    def write_collections(self, text: str) -> None:
        for output in self._outputs:
            output.write_collections(text)

    def flush(self) -> None:
        for output in self._outputs:
            output.flush()

    def close(self, end: bool, interrupted: bool = False) -> None:
        # The stack closes the first one, which marks the end of the run, last; and all of them even
        # if one fails.
        with ExitStack() as stack:
            for output in self._outputs:
                stack.callback(output.close, end and output is self._outputs[0], interrupted)

    def leave(self) -> None:
        for output in self._outputs:
            output.leave()

    def lost_steps(self) -> tuple[int, ...]:
        """Return the steps that at least one of them could not publish."""
        return tuple(sorted({step for each in self._outputs for step in each.lost_steps()}))

    def update(self, stats: HookStats) -> None:
        stats.collections = {}
        for output in self._outputs:
            own = HookStats()
            output.update(own)
            stats.bytes += own.bytes
            stats.segments += own.segments
            stats.seconds_waited += own.seconds_waited
            for name, each in own.collections.items():
                total = stats.collections.setdefault(name, CollectionStats())
                total.tensors += each.tensors
                total.bytes += each.bytes


def _is_for(capture: Capture, replica: int, own: set[str]) -> bool:
    if isinstance(capture, ReplicaCapture):
        return capture.replica == replica
    # Where the replica has a tensor of this name, that is written instead.
    return not own or not any(name in own for name, _, _ in capture.items())
