"""What a run holds when a job goes on with it: its steps, and the names of its tensors."""

from __future__ import annotations

import logging
import re
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import SMDebugError, SMDebugRuntimeError
from smdebug.hook.step_history import StepHistory
from smdebug.storage.format.collections_file import decode_collections
from smdebug.storage.format.keys import collections_key
from smdebug.storage.reader import RunReader
from smdebug.storage.segment_summary import StepArrays
from smdebug.storage.untrusted.limits import read_json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.hook")

_RANK = re.compile(r"^worker_(\d+)$")


class PreviousRun:
    """What earlier jobs saved; read when it is asked for, and kept until it is forgotten.

    Args:
        store: where the run is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def history(self, worker: str) -> StepHistory:
        """Which steps of a worker were of which mode.

        Raises:
            SMDebugRuntimeError: the run cannot be read.
        """
        return StepHistory.of_rows(self._of(worker))

    def last(self, worker: str, workers: int) -> int:
        """The step that a worker goes on behind; -1 when there is none.

        One of several workers may have been killed earlier than others: all go back to what every
        one of them has saved. They are compared mode by mode, because one may evaluate alone.

        Args:
            worker: its name.
            workers: how many the job has now.

        Raises:
            SMDebugRuntimeError: the run cannot be read.
        """
        own = self._of(worker)
        steps = own.step
        names = [name for name in self._rows if workers > 1 and _takes_part(name, workers)]
        for mode in np.unique(own.mode):
            reached = [_last_of(self._rows[name], mode) for name in names]
            if reached and None not in reached:
                common = min(each for each in reached if each is not None)
                beyond = own.step[(own.mode == mode) & (own.mode_step > common)]
                steps = steps[steps < beyond.min(initial=np.iinfo(np.int64).max)]
        return int(steps[-1]) if len(steps) else -1

    def last_saved(self, worker: str, step: int) -> int | None:
        """The last step up to this one at which a worker saved something."""
        steps = self._of(worker).step
        saved = steps[steps <= step]
        return int(saved[-1]) if len(saved) else None

    def format(self, worker: str) -> str | None:
        """The format in which a worker saved its last step; None when there is none."""
        rows = self._of(worker)
        # Steps of format v1 have no number of a segment.
        return None if not len(rows.seq) else "v2" if rows.seq.max() >= 0 else "v1"

    def forget(self) -> None:
        """Lets go of what was read: a long run of many workers is large."""
        self.__dict__.pop("_rows", None)

    def _of(self, worker: str) -> StepArrays:
        """The steps of a worker; one that saved none has made those of the others."""
        rows = self._rows
        known = worker if worker in rows else min(rows, default=None)
        return StepArrays.concatenate([]) if known is None else rows[known]

    @cached_property
    def _rows(self) -> dict[str, StepArrays]:
        reader = RunReader(self._store)
        try:
            reader.refresh()
        except SMDebugError as error:
            raise SMDebugRuntimeError(
                f"the steps of the run in {self._store.url} cannot be read, so the job cannot go "
                f"on with it: {error}; mend it or choose another out_dir"
            ) from error
        return {worker: _newest(rows) for worker, rows in reader.steps().items() if len(rows.step)}


def previous_tensor_names(store: Store, worker: str) -> Iterator[tuple[str, str]]:
    """The collections and tensors that an earlier job has saved, by its collections file.

    Args:
        store: where the run is.
        worker: who saved them.
    """
    for key in sorted({collections_key(worker, classic) for classic in (False, True)}):
        try:
            content = decode_collections(read_json_text(store, key), key).content
            earlier = CollectionManager.from_json_dict(content)
        except KeyError:
            continue
        except (ValueError, RecursionError, SMDebugError) as error:
            logger.warning("%s/%s cannot be read: %s", store.url, key, error)
            continue
        for name, collection in earlier.get_collections().items():
            yield from ((name, tensor) for tensor in collection.tensor_names)


def _newest(rows: StepArrays) -> StepArrays:
    """The steps in order, each once: as it was saved last."""
    order = np.lexsort((rows.seq, rows.step))
    order = order[np.append(np.diff(rows.step[order]) > 0, True)]
    return StepArrays(rows.step[order], rows.mode[order], rows.mode_step[order], rows.seq[order])


def _last_of(rows: StepArrays, mode: int) -> int | None:
    steps = rows.mode_step[rows.mode == mode]
    return int(steps.max()) if len(steps) else None


def _takes_part(name: str, workers: int) -> bool:
    """Whether the worker of a run may be one of the present job, which may have fewer."""
    rank = _RANK.match(name)
    return rank is None or int(rank[1]) < workers
