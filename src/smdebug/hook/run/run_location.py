"""The directory or bucket a hook writes to: find it, check that it is free, open it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.config import environment
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.hook.run.output import RunOutput
from smdebug.hook.run.overwrite import overwrite_run
from smdebug.hook.sinks.sagemaker_metrics import SagemakerMetricsFile
from smdebug.hook.sinks.tensorboard import TensorboardSink
from smdebug.hook.worker import CHIEF_WORKER
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.format.keys import END_KEY, TENSORBOARD_FOLDER, collections_key
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.retrying import retrying
from smdebug.storage.writer_lock import WriterLock

if TYPE_CHECKING:
    from smdebug.config.options import HookOptions
    from smdebug.hook.sinks.base import StepSink
    from smdebug.hook.worker import Worker
    from smdebug.storage.stores.base import Store


def resolve_out_dir(options: HookOptions) -> str:
    """Return the directory or URL to save to.

    Raises:
        SMDebugRuntimeError: there is none.
    """
    if options.run_dir is None:
        raise SMDebugRuntimeError("out_dir is required: a directory or a URL to save to")
    return options.run_dir


def require_free(store: Store, options: HookOptions, out_dir: str, worker: Worker) -> bool:
    """Check that a worker may write to a store, and delete the run there if it is to be replaced.

    Args:
        store: the store of the run.
        options: the arguments of the hook.
        out_dir: the store's name in messages.
        worker: the worker that is to write.

    Returns:
        Whether there is an interrupted run, which has an end marker and can be continued.

    Raises:
        SMDebugRuntimeError: the worker has finished a run there, or a live process writes to it.
        StoreError: an object store does not exist, does not answer or denies access.
    """
    WriterLock(store, worker.name).check()
    if options.tensorboard_path is not None:
        next(open_store(options.tensorboard_path).list(END_KEY), None)
    if options.tensorboard_dir is None:
        # In a run of unknown origin the folder may be a link to another directory.
        store.path(f"{TENSORBOARD_FOLDER}/x")
    if options.overwrite:
        overwrite_run(store, out_dir, worker)
        return False
    if options.resume or not _holds(store, END_KEY):
        return False
    mark = EndMarker.of(store)
    if mark is not None and mark.interrupted:
        return True
    if any(_holds(store, collections_key(worker.name, v1)) for v1 in (False, True)):
        raise SMDebugRuntimeError(
            f"{out_dir} already contains a finished run. Use another out_dir, pass overwrite=True "
            "to replace it, or resume=True to continue it."
        )
    return False


def open_run(
    store: Store, options: HookOptions, worker: str, format: str, reopen: bool
) -> RunOutput:
    """Open the run for a worker, and take its writer lock.

    Args:
        store: the store of the run.
        options: the arguments of the hook.
        worker: the name of the worker.
        format: "v1" or "v2".
        reopen: as in `RunWriter`.

    Raises:
        SMDebugRuntimeError: another live process writes to the run as this worker.
    """
    return RunOutput(
        retrying(store, environment.store_retry_seconds()),
        worker,
        format,
        options.flush_seconds,
        options.queue_bytes,
        _exports(options, worker),
        reopen=reopen,
    )


def _exports(options: HookOptions, worker: str) -> list[StepSink]:
    """Return what receives the steps besides the run."""
    found: list[StepSink] = []
    directory = environment.metrics_directory()
    if directory is not None:
        found.append(SagemakerMetricsFile(directory))
    if options.tensorboard_path is not None:
        other = None if worker == CHIEF_WORKER else worker
        found.append(TensorboardSink(options.tensorboard_path, other))
    return found


def _holds(store: Store, key: str) -> bool:
    return next(iter(store.list(key)), None) is not None
