"""A run in the other format: what smdebug 1.0 reads, or what it wrote."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.findings import FINDINGS_PREFIX, copy_findings
from smdebug.storage.format.dtypes import dtype_name, is_extended
from smdebug.storage.format.keys import COLLECTIONS_PREFIX, END_KEY, EVENTS_PREFIX, INDEX_PREFIX
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.stop_requests import CONTROL_PREFIX
from smdebug.storage.writer import RunWriter
from smdebug.storage.writer_lock import WriterLock, WriterLocked, locked_workers
from smdebug.trials.export.target import ExportResult, target_directory
from smdebug.trials.run_discovery import is_run
from smdebug.trials.selection import groups, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from smdebug.storage.stores.base import Store
    from smdebug.trials.selection import Selection, Tell
    from smdebug.trials.trial import Trial

_QUEUE_BYTES = 256 << 20
# Nobody waits for a step: a segment is published when it is large enough.
_FLUSH_SECONDS = 3600.0
# The mark of the end goes first: whoever looks meanwhile sees a run that is not finished. Locks
# stay, and are held meanwhile.
_PARTS = (
    END_KEY, COLLECTIONS_PREFIX, INDEX_PREFIX, EVENTS_PREFIX, FINDINGS_PREFIX, CONTROL_PREFIX,
    "claim.smd",
)  # fmt: skip


def convert_run(
    selection: Selection,
    out: str,
    format: str,
    *,
    force: bool = False,
    tell: Tell | None = None,
) -> ExportResult:
    """Writes a run, or a part of it, as a run of one of the two formats.

    Steps, modes, workers, times, reductions, collections and values stay what they are; format v1
    has no bfloat16 and no float8, which become float32. What rules found goes with a whole run. A
    job that has not ended has not ended in the copy, either.

    Args:
        selection: what of the run.
        out: a directory or a URL.
        format: "v1" or "v2".
        force: replace a run that is there.
        tell: is told how many steps of how many are done.

    Raises:
        SMDebugValueError: there is something already, or it is the run itself.
        SMDebugRuntimeError: a live process writes to the run that is there, or may.

    Example:
        >>> convert_run(Selection(trial), "runs/old.v2", "v2")  # doctest: +SKIP
        ExportResult(out='runs/old.v2', files=4, steps=100, rows=2000, left_out={}, widened={})
    """
    trial = selection.trial
    store = target_directory(trial.path, out, force, replaces_run=True)
    with ExitStack() as claims:
        _claim(store, claims)
        _remove(store)
        return _copy(selection, store, ExportResult(out), format, tell)


def _copy(
    selection: Selection, store: Store, done: ExportResult, format: str, tell: Tell | None
) -> ExportResult:
    trial, steps = selection.trial, set[int]()
    for place, worker in enumerate(selection.workers):
        writer = RunWriter(store, worker, format, _FLUSH_SECONDS, _QUEUE_BYTES)
        with ExitStack() as stack:
            # A copy that was broken off must not look like a finished run.
            stack.callback(writer.close, end=False)
            writer.write_collections(_collections(trial, worker, len(selection.workers)))
            total = len(selection.workers)
            for batch in _batches(selection.of_worker(worker), _share(tell, place, total)):
                writer.submit(batch)
                steps.add(batch.step)
                done.rows += len(batch.entries)
                if format == "v1":
                    _note_widened(batch, done)
    if selection.whole:
        copy_findings(trial.store, store)
    if selection.finished:
        store.write(END_KEY, [])
    done.steps, done.files = len(steps), sum(1 for _ in store.list())
    return done


def _claim(store: Store, claims: ExitStack) -> None:
    """Keeps those away who could write to the run that is replaced.

    Raises:
        SMDebugRuntimeError: a live process writes to it, or may.
    """
    if store.remote and is_run(store) and next(store.list(END_KEY), None) is None:
        raise SMDebugRuntimeError(
            f"{store.url} is a run that is not finished, and a store without locks cannot tell "
            "whether a job still writes to it, so nothing was done; choose another OUT, or remove "
            "the run"
        )
    for worker in locked_workers(store):
        claim = WriterLock(store, worker)
        try:
            claim.take()
        except WriterLocked as error:
            raise SMDebugRuntimeError(
                f"a live process (number {error.process}) writes to {store.url} as {worker}, so "
                "the run is left alone; choose another OUT, or replace it when the job has ended"
            ) from error
        claims.callback(claim.release)


def _remove(store: Store) -> None:
    for part in _PARTS:
        for key in list(store.list(part)):
            store.delete(key)


def _batches(selection: Selection, tell: Tell | None) -> Iterator[StepBatch]:
    trial = selection.trial
    present = trial.present_columns()
    reductions = [name for name in REDUCTION_NAMES if name in present]
    for table in selection.tables([*VALUE_COLUMNS, "time", *reductions], tell):
        for group in groups(table, ("step", "mode")):
            for piece in pieces(group):
                yield _batch(trial, piece, reductions)


def _batch(trial: Trial, table: pa.Table, reductions: list[str]) -> StepBatch:
    times = [time or 0.0 for time in trial.row_times(table)]
    columns = ["step", "mode", "mode_step", "tensor", "shape", "dtype", *reductions]
    rows = table.select(columns).to_pylist()
    entries = []
    for row, value, time in zip(rows, trial.row_values(table), times, strict=True):
        saved = {name: row[name] for name in reductions if row[name] is not None}
        shape = None if row["shape"] is None else tuple(row["shape"])
        name = row["tensor"]
        original = trial.original_name(name)
        entries.append(Entry(name, value, saved, shape, row["dtype"], time, original))
    first = rows[0]
    mode = ModeKeys[first["mode"]]
    return StepBatch(first["step"], mode, first["mode_step"], entries, times[0])


def _collections(trial: Trial, worker: str, num_workers: int) -> str:
    """The collections file of a worker; it promises as many workers as there are in the copy."""
    content: dict[str, Any] = dict(trial.collection_files()[worker])
    meta = content.get("_meta")
    content["_meta"] = {**(meta if isinstance(meta, dict) else {}), "num_workers": num_workers}
    return json.dumps(content)


def _note_widened(batch: StepBatch, done: ExportResult) -> None:
    for entry in batch.entries:
        if entry.value is not None and is_extended(entry.value.dtype):
            done.widened[entry.name] = dtype_name(entry.value.dtype)


def _share(tell: Tell | None, place: int, total: int) -> Tell | None:
    """Tells the steps of one worker of several."""
    if tell is None:
        return None
    return lambda done, steps: tell(place * steps + done, total * steps)
