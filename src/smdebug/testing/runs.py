"""Writing a small run for tests, without a framework and without a hook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from smdebug.storage.stores.base import Store

    Data = Mapping[tuple[str, int], StepBatch] | Callable[[str, int], StepBatch | None]
    Written = dict[tuple[str, int], StepBatch]


def make_run(
    path: str | os.PathLike[str] | Store,
    steps: Iterable[int] = range(3),
    workers: Sequence[str] = ("worker_0",),
    format: str = "v2",
    data: Data | None = None,
    *,
    collections: CollectionManager | None = None,
    num_workers: int | None = None,
    flush_every: int | None = None,
    end: bool = True,
) -> Written:
    """Writes a run as a hook would, worker after worker, and returns what was written.

    Args:
        path: a directory, a URL or a store.
        steps: the global steps to save.
        workers: the names of the workers.
        format: "v2" or "v1".
        data: for a worker and a global step the batch to save: a mapping or a function. A worker
            that has none for a step does not save it. None gives `default_batch`.
        collections: what the collections files hold; `default_collections` when None.
        num_workers: how many workers the collections files promise; as many as there are when
            None.
        flush_every: publish after this many steps; all at the end when None.
        end: mark the run as finished.

    Returns:
        What every worker saved at every step, to compare with.

    Example:
        >>> from smdebug.storage.stores.memory import MemoryStore
        >>> sorted(make_run(MemoryStore(), steps=[0, 5]))
        [('worker_0', 0), ('worker_0', 5)]
    """
    store = open_store(str(path)) if isinstance(path, str) or hasattr(path, "__fspath__") else path
    manager = collections or default_collections()
    manager.set_num_workers(num_workers or len(workers))
    wanted = list(steps)
    written: Written = {}
    for place, worker in enumerate(workers):
        writer = RunWriter(store, worker, format)
        writer.write_collections(manager.to_json())
        saved = [step for step in wanted if _take(data, worker, step, written)]
        for count, step in enumerate(saved, 1):
            writer.submit(written[worker, step])
            if flush_every is not None and count % flush_every == 0:
                writer.finish_step()
                writer.flush()
        writer.close(end=end and place == len(workers) - 1)
    return written


def default_batch(worker: str, step: int) -> StepBatch:
    """A loss and a 2x3 weight of the mode TRAIN, different for every worker and step."""
    random = np.random.default_rng([step, *worker.encode()])
    loss = np.float32(random.random())
    weight = random.standard_normal((2, 3)).astype(np.float32)
    entries = [Entry("loss", np.asarray(loss)), Entry("fc.weight", weight)]
    return StepBatch(step, ModeKeys.TRAIN, step, entries)


def default_collections() -> CollectionManager:
    """The collections `losses` and `weights`."""
    return CollectionManager(
        [
            Collection("losses", include_regex="loss"),
            Collection("weights", include_regex="weight$"),
        ]
    )


def _take(data: Data | None, worker: str, step: int, written: Written) -> bool:
    if data is None:
        batch: StepBatch | None = default_batch(worker, step)
    elif isinstance(data, Mapping):
        batch = data.get((worker, step))
    else:
        batch = data(worker, step)
    if batch is not None:
        written[worker, step] = batch
    return batch is not None
