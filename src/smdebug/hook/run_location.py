"""The place a hook saves to: which it is, whether it is free, and opening it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.config import environment
from smdebug.config.json_config import DEFAULT_SAGEMAKER_OUTDIR
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.hook.output import RunOutput
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
    from smdebug.storage.stores.base import Store


def resolve_out_dir(options: HookOptions) -> str:
    """Returns the directory or URL to save to.

    Raises:
        SMDebugRuntimeError: there is none.
    """
    if options.out_dir is not None:
        return options.out_dir
    if environment.in_sagemaker():
        return DEFAULT_SAGEMAKER_OUTDIR
    raise SMDebugRuntimeError(
        "out_dir must be a directory or a URL to save to, got None; give the hook an out_dir"
    )


def require_free(store: Store, options: HookOptions, out_dir: str, worker: str) -> bool:
    """Refuses a directory in which this worker has finished, or another process is at work.

    Args:
        store: where the run is.
        options: everything the hook was told.
        out_dir: what the place is called.
        worker: who is to write.

    Returns:
        Whether there is a run that was interrupted, with the mark of an end that is none.

    Raises:
        SMDebugRuntimeError: the place is taken.
        StoreError: an object store is not there, gives no answer, or says no.
    """
    WriterLock(store, worker).check()
    if options.tensorboard_path is not None:
        next(open_store(options.tensorboard_path).list(END_KEY), None)
    if options.tensorboard_dir is None:
        # In a run that somebody else began, it may be a link to somewhere else.
        store.path(f"{TENSORBOARD_FOLDER}/x")
    if options.resume or not _holds(store, END_KEY):
        return False
    mark = EndMarker.of(store)
    if mark is not None and mark.interrupted:
        return True
    if any(_holds(store, collections_key(worker, classic)) for classic in (False, True)):
        raise SMDebugRuntimeError(
            f"out_dir must be a directory without a finished run, got {out_dir}, which "
            f"has one ({END_KEY}); choose another directory, remove that one, or give "
            "resume=True to go on with it"
        )
    return False


def open_run(
    store: Store, options: HookOptions, worker: str, format: str, reopen: bool
) -> RunOutput:
    """Opens the run for a worker, and takes the claim on it.

    Args:
        store: where the run is.
        options: everything the hook was told.
        worker: who writes.
        format: "v1" or "v2".
        reopen: as `RunWriter` takes it.

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
    """What is told of the steps besides the run."""
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
