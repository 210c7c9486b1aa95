"""A model on several devices: the workers they are, and what each of them writes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from smdebug.hook.stats import CollectionStats, HookStats
from smdebug.hook.worker import CHIEF_WORKER, Worker
from smdebug.tensorflow.backend import keras_backend, tf
from smdebug.tensorflow.functions import replicas_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.config.options import HookOptions
    from smdebug.hook.capture import Capture
    from smdebug.hook.output import Output
    from smdebug.hook.plan import SaveRequest
    from smdebug.hook.steps import Step
    from smdebug.storage.batch import StepBatch


def worker_of(model: Any, strategy: Any, options: HookOptions) -> Worker:
    """Returns this process among those of the job, and its devices among those of the model.

    Args:
        model: the model that Keras trains, if it does.
        strategy: the one that a tape was wrapped under, if any was.
        options: what the hook was told.
    """
    if options.worker is not None or tf is None or keras_backend() != "tensorflow":
        return Worker(options.worker or CHIEF_WORKER)
    if model is not None:
        strategy = model.distribute_strategy
    elif strategy is None:
        strategy = tf.distribute.get_strategy()
    task = _task_of(strategy)
    if task is not None:
        return task
    if model is None or replicas_of(model) is None:
        return Worker(CHIEF_WORKER)
    names = worker_names(strategy)
    if options.include_workers == "all":
        return Worker(names[0], len(names))
    on_host = all("CPU" in name for name in names)
    return Worker(CHIEF_WORKER if on_host else names[0])


def _task_of(strategy: Any) -> Worker | None:
    """This process, where several of them train one model."""
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_id is None:
        return None
    count = sum(len(tasks) for tasks in resolver.cluster_spec().as_dict().values())
    if count < 2:
        return None
    return Worker(f"worker_{resolver.task_id}", count, resolver.task_id == 0)


def local_replicas(strategy: Any) -> int:
    """Returns how many replicas of a model this process has."""
    if strategy.num_replicas_in_sync == 1:
        return 1
    return len(strategy.extended.worker_devices)


def worker_names(strategy: Any) -> list[str]:
    """Returns the workers that the devices of a strategy are, the first of them first.

    Example:
        `/job:localhost/replica:0/task:0/device:GPU:0` is `_job-localhost_replica-0_task-0_device-
        GPU-0`, which can be part of a file's name.
    """
    # In the order in which the strategy gives their values.
    devices = strategy.extended.worker_devices
    return [device.replace("/", "_").replace(":", "-") for device in devices]


class OfReplica:
    """Tensors of one replica of a model.

    Args:
        taken: the tensors.
        replica: its number; the first one's are not marked.
    """

    def __init__(self, taken: Capture, replica: int) -> None:
        self.nbytes, self.tensors, self.needs_release = (
            taken.nbytes,
            taken.tensors,
            taken.needs_release,
        )
        self.replica = replica
        self._taken = taken

    def finish(self, batch: StepBatch) -> None:
        self._taken.finish(batch)

    def release(self) -> None:
        self._taken.release()

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        return self._taken.items()

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        return self._taken.totals()


class ReplicatedOutput:
    """Writes a worker for each replica: what all have in common goes to all of them.

    Args:
        outputs: the output of each.
    """

    def __init__(self, outputs: list[Output | None]) -> None:
        self._outputs = [output for output in outputs if output is not None]

    def submit(self, step: Step, time: float, taken: list[Capture], finish: bool = False) -> None:
        others = {each.replica: set[str]() for each in taken if isinstance(each, OfReplica)}
        for each in taken:
            if isinstance(each, OfReplica):
                others[each.replica].update(name for name, _, _ in each.items())
        for replica, output in enumerate(self._outputs):
            own = others.get(replica, set())
            output.submit(step, time, [t for t in taken if _is_for(t, replica, own)], finish)

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
        # From the last to the first, which says that the run has ended; all of them in any case.
        with ExitStack() as stack:
            for output in self._outputs:
                stack.callback(output.close, end and output is self._outputs[0], interrupted)

    def leave(self) -> None:
        for output in self._outputs:
            output.leave()

    def lost_steps(self) -> tuple[int, ...]:
        """The steps of which one of them could not be published."""
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


def _is_for(taken: Capture, replica: int, own: set[str]) -> bool:
    if isinstance(taken, OfReplica):
        return taken.replica == replica
    # A tensor that the replica has of its own is not the first one's.
    return not own or not any(name in own for name, _, _ in taken.items())
