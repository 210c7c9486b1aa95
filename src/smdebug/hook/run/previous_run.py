"""The steps and tensor names that earlier jobs saved to the run that a job resumes."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import numpy as np

from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import SMDebugError, SMDebugRuntimeError
from smdebug.hook.steps import Step, StepHistory
from smdebug.mode_keys import ModeKeys
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
    """The steps that earlier jobs saved, as one worker sees them.

    Args:
        store: where the run is; it is read once.
        worker: the worker. One that has saved nothing takes the steps of the first one.

    Attributes:
        worker: the worker.
        format: the format of its last step; None without steps.

    Raises:
        SMDebugRuntimeError: the run cannot be read.
    """

    def __init__(self, store: Store, worker: str) -> None:
        reader = RunReader(store)
        try:
            reader.refresh()
        except SMDebugError as error:
            raise SMDebugRuntimeError(
                f"Cannot resume the run in {store.url}, because its steps cannot be read: {error}; "
                "repair it or use another out_dir"
            ) from error
        self.worker = worker
        self._rows = {
            name: _newest(rows) for name, rows in reader.steps().items() if len(rows.step)
        }
        known = worker if worker in self._rows else min(self._rows, default=None)
        self._own = StepArrays.concatenate([]) if known is None else self._rows[known]
        # Steps of format v1 have no segment number.
        self.format = None if known is None else "v2" if self._own.seq.max() >= 0 else "v1"

    def history(self) -> StepHistory:
        """Return the mode of each step, as the saved ones tell."""
        return history_of(self._own)

    def last_step(self, workers: int) -> int:
        """Return the step to resume after; -1 without one.

        One of several workers may have been killed earlier than others: all go back to what every
        one of them has saved. They are compared mode by mode, because one may evaluate alone.

        Args:
            workers: how many the job has now. Workers of a larger job do not count.
        """
        own, steps = self._own, self._own.step
        ranks = {name: _RANK.match(name) for name in self._rows if workers > 1}
        others = [
            self._rows[name] for name, rank in ranks.items() if not rank or int(rank[1]) < workers
        ]
        for mode in np.unique(own.mode):
            reached = [rows.mode_step[rows.mode == mode].max(initial=-1) for rows in others]
            # A mode that one of them has no steps of is not made by all of them together.
            if reached and min(reached) >= 0:
                beyond = own.step[(own.mode == mode) & (own.mode_step > min(reached))]
                steps = steps[steps < beyond.min(initial=np.iinfo(np.int64).max)]
        return int(steps[-1]) if len(steps) else -1

    def last_saved_step(self, step: int) -> int | None:
        """Return the last saved step up to a step; None without one."""
        place = int(np.searchsorted(self._own.step, step, side="right"))
        return int(self._own.step[place - 1]) if place else None


def history_of(rows: StepArrays) -> StepHistory:
    """Return the mode of each step from those that were saved.

    Args:
        rows: the saved steps, in order. Of the steps between two of them, those that the mode of
            the second lacks came right before it, as when only every tenth step of an evaluation
            is saved; the others continued the mode of the first.
    """
    firsts: list[Step] = []
    reached: dict[ModeKeys, int] = {}
    before = Step(-1, ModeKeys.GLOBAL, -1)
    continued = (np.diff(rows.mode) == 0) & (np.diff(rows.mode_step) == np.diff(rows.step))
    places = [0, *(np.flatnonzero(~continued) + 1).tolist()] if len(rows.step) else []
    for place in places:
        if place:
            before = _step(rows, place - 1)
            reached[before.mode] = before.mode_step
        step, unsaved = _step(rows, place), 0
        if step.mode is not before.mode:
            between = step.number - before.number - 1
            if step.mode is not ModeKeys.GLOBAL:
                unsaved = min(max(step.mode_step - reached.get(step.mode, -1) - 1, 0), between)
            reached[before.mode] = before.mode_step + between - unsaved
        firsts.append(Step(step.number - unsaved, step.mode, step.mode_step - unsaved))
    return StepHistory(firsts)


def previous_tensor_names(store: Store, worker: str) -> Iterator[tuple[str, str]]:
    """Yield the collections and tensors that an earlier job has saved, by its collections file.

    Args:
        store: where the run is.
        worker: the worker that saved them.
    """
    for key in sorted({collections_key(worker, v1) for v1 in (False, True)}):
        try:
            content = decode_collections(read_json_text(store, key), key).content
            earlier = CollectionManager.from_json_dict(content)
        except KeyError:
            continue
        except (ValueError, RecursionError, SMDebugError) as error:
            logger.warning("Cannot read %s/%s: %s", store.url, key, error)
            continue
        for name, collection in earlier.get_collections().items():
            yield from ((name, tensor) for tensor in collection.tensor_names)


def _newest(rows: StepArrays) -> StepArrays:
    """Return the steps in order, each once: as it was saved last."""
    order = np.lexsort((rows.seq, rows.step))
    order = order[np.append(np.diff(rows.step[order]) > 0, True)]
    return StepArrays(rows.step[order], rows.mode[order], rows.mode_step[order], rows.seq[order])


def _step(rows: StepArrays, place: int) -> Step:
    mode = ModeKeys(int(rows.mode[place]))
    return Step(int(rows.step[place]), mode, int(rows.mode_step[place]))
