"""What there is to say about a run in one line, from what is known without its values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import IndexReaderException, SMDebugError, StoreError
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.findings import read_findings
from smdebug.storage.format.keys import END_KEY, INDEX_PREFIX, parse_index_key
from smdebug.storage.reader import RunReader
from smdebug.storage.writer_lock import is_written
from smdebug.trials.run_discovery import ListedStore
from smdebug.trials.wait import promised_workers

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store
    from smdebug.trials.run_discovery import FoundRun

FINISHED, LIVE, STOPPED, DAMAGED = "finished", "live", "stopped", "damaged"


@dataclass(frozen=True)
class RunSummary:
    """One run, in short.

    Attributes:
        path: from the place that was searched.
        state: `finished`, `live`, `stopped` (nobody writes it, and its job has not come to its
            end) or `damaged`.
        size: in bytes.
        modified: when it was last written, in seconds since 1970.
        format: "v2", "v1", or both; "" when there are no steps yet.
        workers: who wrote it.
        steps: how many.
        last_step: the last one; None when there is none.
        tensors: how many.
        findings: how often each rule found something.
        problem: what is damaged.
    """

    path: str
    state: str
    size: int
    modified: float
    format: str = ""
    workers: list[str] = field(default_factory=list)
    steps: int = 0
    last_step: int | None = None
    tensors: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    problem: str | None = None


def summarize(run: FoundRun) -> RunSummary:
    """Reads what is to be known of a run; one that is damaged is told by its state.

    Raises:
        StoreError: an object store gives no answer.
    """
    try:
        try:
            return _read(run)
        except IndexReaderException:
            if not isinstance(run.store, ListedStore):
                raise
            # A job that ended since it was listed has joined its index files.
            run.store.look_again()
            return _read(run)
    except StoreError:
        raise
    except (SMDebugError, OSError) as error:
        return RunSummary(run.path, DAMAGED, run.size, run.modified, problem=str(error))


def _read(run: FoundRun) -> RunSummary:
    reader = RunReader(run.store)
    # Asked before looking: a job that ends meanwhile is called live, with all its steps.
    state = state_of(run.store)
    collections = reader.collections()
    reader.refresh()
    steps = np.unique(np.concatenate([[], *(each.step for each in reader.steps().values())]))
    wanted = promised_workers(collections)
    missing = state == FINISHED and len(collections) < wanted
    return RunSummary(
        run.path,
        DAMAGED if missing else state,
        run.size,
        run.modified,
        format_of(run.store),
        sorted(collections),
        len(steps),
        int(steps[-1]) if len(steps) else None,
        len(reader.names()),
        dict(sorted(Counter(found.rule for found in read_findings(run.store)).items())),
        f"it has ended with {len(collections)} of {wanted} collections files" if missing else None,
    )


def state_of(store: Store) -> str:
    """Whether a run is `finished`, `live`, or `stopped` before its end."""
    # A listing is at hand for each of many runs; reading one that is not there is a request.
    mark = EndMarker.of(store) if END_KEY in store.list(END_KEY) else None
    if mark is not None and not mark.interrupted:
        return FINISHED
    written = is_written(store)
    # A job that goes on with an interrupted run takes the mark away at its first step.
    return STOPPED if written is False or (written is None and mark is not None) else LIVE


def format_of(store: Store) -> str:
    """The formats of a run's index files: "v1", "v2", or both."""
    names = (parse_index_key(key) for key in store.list(INDEX_PREFIX))
    return ", ".join(sorted({"v1" if each.seq is None else "v2" for each in names if each}))
