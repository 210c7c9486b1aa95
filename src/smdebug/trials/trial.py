"""A trial: everything that can be asked of a run, while it is written or afterwards."""

from __future__ import annotations

import difflib
import logging
import re
import time
from typing import TYPE_CHECKING, Any

from smdebug.config import environment
from smdebug.config.collection import Collection, CollectionKeys
from smdebug.config.validation import did_you_mean, short_repr, whole_number
from smdebug.exceptions import (
    NoMoreData,
    SMDebugRuntimeError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import from_numpy, to_numpy
from smdebug.storage.findings import Finding, read_findings
from smdebug.storage.format.keys import LAST_STEP
from smdebug.storage.raw_tensors import as_dtype, record_locations, value_in_index
from smdebug.storage.reader import RunReader
from smdebug.storage.segment_summary import mode_bit
from smdebug.storage.stop_requests import StopRequest, write_stop
from smdebug.storage.stores.base import Store, open_store
from smdebug.storage.stores.retrying import READING_SECONDS, retrying
from smdebug.storage.v2.index import SCHEMA
from smdebug.storage.writer_lock import is_written
from smdebug.trials.collections import RunCollections
from smdebug.trials.frame_reader import MAX_ROWS, FrameQuery
from smdebug.trials.refresh import Refresher
from smdebug.trials.row_times import row_times
from smdebug.trials.step_range import checked_range, in_range
from smdebug.trials.steps import StepState, StepTable
from smdebug.trials.tensor import Tensor
from smdebug.trials.wait import POLL_SECONDS, pause, require_place, wait_for_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from smdebug.reductions import Array
    from smdebug.storage.raw_tensors import RecordLocation
    from smdebug.trials.frame import Frame

logger = logging.getLogger("smdebug.trials")

# How long to wait before looking again for an event file that the index names.
_MISSING_FILE_PAUSE = 2.0
# How long nothing must come after the end of a job whose workers stopped at different steps; in an
# object store, where only time can tell, long enough for a last segment to go up.
_REST_SECONDS, _REST_SECONDS_REMOTE = 5.0, 20.0
# Workers close together: one whose end is marked for so long has no others that still write.
_LONG_AGO_SECONDS = 60.0


class Trial:
    """A run that is being written or has been.

    Made by `create_trial`. The class has more methods than most because it is the interface of
    smdebug 1.0; what they do lies in `StepTable`, `Refresher`, `Tensor` and the reader.

    Args:
        path: a local directory or a URL.
        name: how the trial calls itself; the last part of the path when None.
        range_steps: first global step (inclusive) and last one (exclusive); either may be None.
        check: verify every index file completely now, instead of piece by piece when it is read.
        cache: keep raw values that were read in memory.
        wait_seconds: how long to wait for a job that has not begun. None waits a minute where the
            place exists, and not at all where it does not.
        store: what to read the run from; what the path names when None.

    Raises:
        TrialNotFound: the path does not exist or holds something else.
        MissingCollectionFiles: no job began there in time.

    Attributes:
        name: see above.
        path: see above.
        dynamic_refresh: whether questions look for new steps first.
        loaded_all_steps: the job has ended and everything is known.
    """

    def __init__(
        self,
        path: str,
        name: str | None = None,
        range_steps: tuple[int | None, int | None] | None = None,
        check: bool = False,
        cache: bool = False,
        wait_seconds: float | None = None,
        store: Store | None = None,
    ) -> None:
        self.path = str(path).strip()
        self.name = name or self.path.rstrip("/").rpartition("/")[2]
        self.range_steps = checked_range(range_steps)
        self.dynamic_refresh = True
        self.loaded_all_steps = False
        place = open_store(self.path) if store is None else store
        require_place(place, wait_seconds)
        # Only now: a wrong URL is an error at once.
        self._store: Store = retrying(place, READING_SECONDS) if store is None else place
        self._reader = RunReader(self._store)
        self._refresher = Refresher(self._reader)
        self._cached: dict[Any, Array] | None = {} if cache else None
        self._tensors: dict[str, Tensor] = {}
        self._collections = RunCollections()
        self._steps = StepTable({})
        self._quiet_since: float | None = None
        self._taken_over = -1
        self._names: dict[str, int] = {}
        wait_for_job(self._reader, wait_seconds)
        self._collections.take(self._reader.collections())
        self.refresh_data()
        self._wait_for_rest()
        if check:
            self._reader.check_all()

    # ---- refreshing

    @property
    def version(self) -> int:
        """Grows when a refresh has found something new."""
        return self._reader.version

    def maybe_refresh(self, name: str | None = None) -> None:
        """Looks for new steps, unless that is switched off or there can be none."""
        if self.loaded_all_steps or not self.dynamic_refresh or not self._refresher.due():
            return
        self._refresh(full=False)

    def refresh_data(self) -> None:
        """Looks for new steps now, everywhere."""
        self._refresh(full=True)

    def _refresh(self, full: bool) -> None:
        if self.loaded_all_steps:
            return
        # Asked before looking: whatever is found afterwards is then all there is.
        finished = self._reader.finished()
        written = is_written(self._store) if finished else None
        self._refresher.run(self._safe_step(), full=full or finished)
        delay = environment.training_end_delay() if finished else 0.0
        if delay:
            pause(delay)
            self._refresher.run(None, full=True)
        # Not what the refresher says: the reader also looks by itself, when files have vanished.
        changed = self._taken_over != self.version
        if changed or finished:
            self._taken_over = self.version
            self._collections.take(self._reader.collections())
            self._names = self._names_in_range()
        if not finished:
            self._quiet_since = None
        at_rest = finished and self._nobody_writes(changed, written)
        if changed or finished:
            # Of a run that has no locks, such as those of smdebug 1.0, its mark alone is believed.
            believed = finished and written is None and not self._store.remote
            self._steps = StepTable(
                self._reader.steps(),
                self.num_workers,
                at_rest or believed,
                environment.incomplete_step_wait_window(),
                self.range_steps,
                self.last_complete_step,
            )
        self.loaded_all_steps = at_rest

    def _nobody_writes(self, changed: bool, written: bool | None) -> bool:
        """Whether a finished run is really at rest: the first worker to close marks the end.

        Args:
            changed: something new was found just now.
            written: what the locks of its workers said before that; None where there are none.
        """
        if self.num_workers == 1 or written is not None:
            return not written or self.num_workers == 1
        found = [steps.step for steps in self._reader.steps().values() if len(steps.step)]
        last = {int(steps.max()) for steps in found}
        if len(last) == 1 and len(found) == self.num_workers:
            return True
        if self._store.remote and self._reader.ended_before(time.time() - _LONG_AGO_SECONDS):
            return True
        if changed or self._quiet_since is None:
            self._quiet_since = time.monotonic()
        rest = _REST_SECONDS_REMOTE if self._store.remote else _REST_SECONDS
        return time.monotonic() - self._quiet_since >= rest

    def _wait_for_rest(self) -> None:
        """Waits for workers that may be writing their last steps, where only time can tell.

        Who asks once must not get less than there is a moment later.
        """
        while self._quiet_since is not None and self._store.remote and not self.loaded_all_steps:
            pause(POLL_SECONDS)
            self._refresh(full=True)

    def _names_in_range(self) -> dict[str, int]:
        begin, end = self.range_steps
        if begin is None and end is None:
            return self._reader.names()
        return self._reader.names_within(begin or 0, LAST_STEP + 1 if end is None else end)

    def _safe_step(self) -> int | None:
        """A step far enough back that nothing older is expected from any worker."""
        last = self.last_complete_step
        window = environment.incomplete_step_wait_window()
        return max(last - window, 0) if last > 0 else None

    # ---- steps and modes

    @property
    def last_complete_step(self) -> int:
        """The last global step that all workers have delivered; -1 when there is none."""
        return self._steps.last_complete_step

    def steps(
        self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False
    ) -> list[int]:
        """The sorted steps of a mode."""
        self.maybe_refresh()
        return self._steps.steps(mode, show_incomplete_steps)

    def step_after(self, step: int) -> int | None:
        """The first complete global step behind a step; None when there is none yet."""
        self.maybe_refresh()
        return self._steps.step_after(step)

    def modes(self) -> list[ModeKeys]:
        """The modes seen so far, GLOBAL left out."""
        self.maybe_refresh()
        return self._steps.modes()

    def mode(self, global_step: int) -> ModeKeys | None:
        """The mode of a global step; None when it is unknown."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """The step within its mode of a global step; None when it is unknown."""
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys | None, int | None]:
        """Mode and mode step of a global step."""
        self.maybe_refresh()
        return self._steps.mode_of(global_step) or (None, None)

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """The global step of a mode's step; None when it is unknown."""
        self.maybe_refresh()
        return self._steps.global_step(mode, mode_step)

    def has_passed_step(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> StepState:
        """Whether a step is there, may still come, or never will."""
        self.maybe_refresh()
        return self._steps.state(step, mode)

    def known_state(self, step: int, mode: ModeKeys) -> StepState:
        """What `has_passed_step` says, without looking for new steps first."""
        return self._steps.state(step, mode)

    def known_global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """What `global_step` says, without looking for new steps first."""
        return self._steps.global_step(mode, mode_step)

    def require_step(self, step: int, mode: ModeKeys) -> None:
        """Raise an error if a step is not there.

        Raises:
            StepUnavailable: it was not saved.
            StepNotYetAvailable: it may still come.
        """
        state = self._steps.state(step, mode)
        if state is StepState.UNAVAILABLE:
            raise StepUnavailable(step, mode, self._steps.nearest(step, mode))
        if state is StepState.NOT_YET_AVAILABLE:
            raise StepNotYetAvailable(step, mode)

    def wait_for_steps(
        self,
        required_steps: Iterable[int],
        mode: ModeKeys = ModeKeys.GLOBAL,
        timeout: float | None = None,
    ) -> None:
        """Waits until all the steps are there, looking for new ones whatever `no_refresh` says.

        Raises:
            StepUnavailable: a step was passed without being saved.
            NoMoreData: the job ended before a step.
            TimeoutError: `timeout` seconds are over.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for step in required_steps:
            self._wait_for_step(step, mode, deadline)

    def _wait_for_step(self, step: int, mode: ModeKeys, deadline: float | None) -> None:
        while True:
            state = self._steps.state(step, mode)
            if state is StepState.AVAILABLE:
                return
            if state is StepState.UNAVAILABLE:
                known = self._steps.steps(mode, incomplete=True)
                last = known[-1] if known else None
                if self.loaded_all_steps and (last is None or step > last):
                    raise NoMoreData(step, mode, last)
                raise StepUnavailable(step, mode, self._steps.nearest(step, mode))
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"step {step} of mode {mode.name} did not come in time")
            if not self._looked_with_news():
                pause(POLL_SECONDS)

    def _looked_with_news(self) -> bool:
        before = self.version, self.loaded_all_steps
        self._refresh(full=False)
        return before != (self.version, self.loaded_all_steps)

    # ---- tensors

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,
        *,
        step: int | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        regex: str | list[str] | None = None,
        collection: str | Collection | None = None,
    ) -> list[str]:
        """The sorted names of the tensors saved.

        Args:
            show_prefixed_tensors: has no effect; kept for old scripts.
            step: only those of this step, in the numbering of `mode`.
            mode: only those of this mode.
            regex: only those in which one of these patterns is found.
            collection: only those of this collection.

        Raises:
            ValueError: `regex` and `collection` are both given.
            TypeError: `collection` is neither a name nor a Collection.
            KeyError: the mode, or the step of a mode, is unknown.
        """
        if regex is not None and collection is not None:
            raise SMDebugValueError("regex and collection must not be given together")
        self.maybe_refresh()
        names = self._names_of(step, mode)
        if regex is not None:
            patterns = [regex] if isinstance(regex, str) else list(regex)
            compiled = [re.compile(pattern) for pattern in patterns]
            names = {name for name in names if any(each.search(name) for each in compiled)}
        if collection is not None:
            chosen = self._collection_of(collection)
            names = set(chosen.filter(names))
        if not names:
            logger.warning("no tensor of trial %s matches", self.name)
        return sorted(names)

    def _names_of(self, step: int | None, mode: ModeKeys) -> set[str]:
        if not self._steps.has_mode(mode):
            raise KeyError(mode)
        if step is None:
            if mode is ModeKeys.GLOBAL:
                return set(self._names)
            return {name for name, bits in self._names.items() if bits & mode_bit(mode)}
        global_step = self._steps.global_step(mode, step)
        if global_step is None:
            raise KeyError(step)
        if self._steps.mode_of(global_step) is None:
            return set()
        return self._reader.names_at(global_step)

    def tensor(self, tname: str) -> Tensor:
        """One tensor.

        Raises:
            TensorUnavailable: the trial has none of this name; the nearest names are offered.
        """
        if not self.has_tensor(tname):
            raise TensorUnavailable(tname, tuple(difflib.get_close_matches(tname, self._names, 3)))
        if tname not in self._tensors:
            self._tensors[tname] = Tensor(tname, self)
        return self._tensors[tname]

    def has_tensor(self, tname: str) -> bool:
        """Whether a tensor of this name was saved at any step."""
        if tname not in self._names:
            self.maybe_refresh()
        return tname in self._names

    def inputs(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[Array]:
        """The values of the collection `inputs` at a step."""
        return self._values_at(step, mode, collection="inputs")

    def labels(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[Array]:
        """The labels at a step."""
        return self._values_at(step, mode, regex="labels*")

    def predictions(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[Array]:
        """The predictions at a step."""
        return self._values_at(step, mode, regex="predictions*")

    def _values_at(self, step: int, mode: ModeKeys, **choice: str) -> list[Array]:
        names = self.tensor_names(step=step, mode=mode, **choice)  # type: ignore[arg-type]
        return [self.tensor(name).value(step, mode) for name in sorted(names, key=_trailing_number)]

    # ---- workers and collections

    @property
    def num_workers(self) -> int:
        """How many workers write to the run."""
        return self._collections.num_workers

    def workers(self) -> list[str]:
        """The sorted names of the workers."""
        self.maybe_refresh()
        return self.known_workers()

    def known_workers(self) -> list[str]:
        """What `workers` says, without looking for new ones first."""
        return self._collections.workers()

    def collections(self) -> dict[str, Collection]:
        """The collections by name, with the tensor names of all workers."""
        self.maybe_refresh()
        return self._collections.merged().get_collections()

    def collection_files(self) -> dict[str, dict[str, Any]]:
        """What the collections file of every worker says, as it was written."""
        self.maybe_refresh()
        return self._collections.files()

    def collection(self, coll_name: str) -> Collection:
        """A collection; an empty one when the run has none of this name."""
        self.maybe_refresh()
        return self._collections.merged().get(coll_name)

    def _collection_of(self, collection: str | Collection) -> Collection:
        if isinstance(collection, str):
            if collection == CollectionKeys.ALL:
                return Collection(collection, include_regex=[".*"])
            return self.collection(collection)
        if isinstance(collection, Collection):
            return collection
        raise TypeError(
            f"collection must be a name or a Collection, got {collection!r} "
            f"of type {type(collection).__name__}"
        )

    # ---- the index as a table

    def to_arrow(self, columns: list[str] | None = None) -> pa.Table:
        """The index as an Arrow table: a row per worker, step and tensor.

        Args:
            columns: which; those that hold anything when None.

        Raises:
            SMDebugValueError: the index has no such column.

        Example:
            >>> trial.to_arrow(["step", "tensor", "l2"])  # doctest: +SKIP
        """
        for name in columns or ():
            if name not in SCHEMA.names:
                raise SMDebugValueError(
                    f"Unknown column {short_repr(name)}.{did_you_mean(name, SCHEMA.names)} "
                    f"Columns of the index: {', '.join(SCHEMA.names)}."
                )
        self.maybe_refresh()
        begin, end = self.range_steps
        if begin is None and end is None:
            return self._reader.table(columns)
        table = self._reader.table(None if columns is None else list({*columns, "step"}))
        table = table.filter(from_numpy(in_range(to_numpy(table["step"]), begin, end)))
        return table if columns is None else table.select(columns)

    def to_pandas(self, columns: list[str] | None = None) -> Any:
        """The index as a pandas DataFrame; see `to_arrow`."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise SMDebugRuntimeError(
                "to_pandas needs pandas: pip install 'tornasole[sql]'"
            ) from error
        return self.to_arrow(columns).to_pandas()

    def sql(self, query: str) -> Any:
        """Runs a query over the index, the table `run`, and returns a pandas DataFrame.

        What rules found is the table `findings`.

        Example:
            >>> trial.sql("select step, l2 from run where tensor = 'fc.weight'")  # doctest: +SKIP
        """
        from smdebug.trials.sql import run_query

        self.maybe_refresh()
        return run_query(query, self._reader, self.range_steps)

    # ---- numbers

    def frame(
        self,
        tensors: str | Iterable[str] | None = None,
        reduction: str | Iterable[str] | None = None,
        *,
        collection: str | Collection | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        steps: Iterable[int] | slice | None = None,
        every: int | None = None,
        max_points: int | None = None,
    ) -> Frame:
        """Read a reduction of several tensors over the steps, as one array.

        Args:
            tensors: a name, a shell pattern, a regex that is searched in names, or several of
                them; all tensors when neither it nor `collection` is given.
            reduction: such as "l2" or "abs_mean", or several; computed from raw values where it
                was not saved. None reads the element of one-element tensors.
            collection: the tensors of a collection instead.
            mode: only steps of this mode, in its numbering.
            worker: of which worker; "all" gives each a column of its own, None takes the first
                that has a step.
            steps: a list of steps or a slice; all complete steps when None.
            every: keep every n-th step.
            max_points: keep at most so many steps, those with extremes and non-finite values.

        Raises:
            SMDebugValueError: the run has no such tensor, reduction or mode.
            StepUnavailable: a step that is listed was not saved.

        Example:
            >>> frame = trial.frame("gradient/*", "l2", steps=slice(0, 1000))  # doctest: +SKIP
            >>> frame.values.shape, frame.steps[:3], frame.tensors[0]  # doctest: +SKIP
            ((100, 77), array([ 0, 10, 20]), 'gradient/GPT_wte.weight')
        """
        self.maybe_refresh()
        query = FrameQuery.checked(
            self, tensors, reduction, collection=collection, mode=mode, worker=worker, steps=steps
        )
        frame = query.read()
        if every is not None:
            frame = frame.every(whole_number("every", every, 1))
        if max_points is not None:
            frame = frame.decimate(whole_number("max_points", max_points, 3))
        return frame

    def frames(
        self,
        tensors: str | Iterable[str] | None = None,
        reduction: str | Iterable[str] | None = None,
        *,
        collection: str | Collection | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        steps: Iterable[int] | slice | None = None,
        max_rows: int = MAX_ROWS,
    ) -> Iterator[Frame]:
        """Read frames of consecutive steps, so that a run of any size fits into memory.

        Args:
            tensors: see `frame`, as for the other arguments.
            reduction: see `frame`.
            collection: see `frame`.
            mode: see `frame`.
            worker: see `frame`.
            steps: see `frame`.
            max_rows: rows of the index in memory at a time: tensors x steps x workers of the run.

        Example:
            >>> for frame in trial.frames("*weight", "l2"):  # doctest: +SKIP
            ...     print(frame.steps[0], np.nanmax(frame.values))
        """
        self.maybe_refresh()
        query = FrameQuery.checked(
            self, tensors, reduction, collection=collection, mode=mode, worker=worker, steps=steps
        )
        return query.chunks(whole_number("max_rows", max_rows, 1))

    # ---- plots

    def plot(
        self,
        tensors: str | Iterable[str] | None = None,
        *,
        collection: str | Collection | None = None,
        reduction: str | None = None,
        step: int | Iterable[int] | None = None,
        kind: str = "lines",
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        ax: Any = None,
    ) -> Any:
        """Plots the losses, reductions of tensors over the steps, or histograms at steps.

        Args:
            tensors: a name, a shell pattern, a regex, or a list of them. Without it and without
                `collection`: the losses, or else the metrics or scalars, with what rules found.
            collection: the tensors of a collection instead.
            reduction: such as "l2"; needed for tensors of more than one number.
            step: a step or several, of which histograms of the raw values are drawn.
            kind: "lines", or "heat" for a row per tensor and a column per step.
            mode: the numbering of the steps; only what was saved in it.
            worker: whose values; the first one's when None.
            ax: the axes to draw on; new ones when None.

        Returns:
            The axes of matplotlib, which the extra `plot` installs.

        Example:
            >>> trial.plot(collection="gradients", reduction="l2")  # doctest: +SKIP
            >>> trial.plot("fc.weight", step=[0, 40])  # doctest: +SKIP
        """
        from smdebug.trials.plot.trial_plot import PlotOptions, plot

        how = PlotOptions(reduction, step, kind, mode, worker, ax)
        return plot(self, tensors, collection, how)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from smdebug.trials.notebook.html import trial_html

        return trial_html(self)

    # ---- what rules found

    def findings(self) -> list[Finding]:
        """What rules found in this run so far, by step.

        Example:
            >>> for finding in trial.findings():  # doctest: +SKIP
            ...     print(finding)
        """
        return read_findings(self.store)

    def request_stop(self, reason: str, finding: Finding | None = None) -> None:
        """Asks the job that writes this run to stop; its hook obeys when its next step begins.

        Args:
            reason: a sentence for the job's log.
            finding: what it is about.

        Example:
            >>> trial.request_stop("the loss will not come down any more")  # doctest: +SKIP
        """
        about = {} if finding is None else {"rule": finding.rule, "step": finding.step}
        tensor = None if finding is None else finding.tensor
        write_stop(self.store, StopRequest(reason, tensor=tensor, **about))  # type: ignore[arg-type]

    # ---- for Tensor and rules

    @property
    def store(self) -> Store:
        """Where the run is kept."""
        return self._store

    def rows_between(self, begin: int, end: int, columns: list[str]) -> pa.Table:
        """The rows of the global steps `begin <= step < end`, within the range of the trial."""
        first, last = self.range_steps
        begin = max(begin, first or 0)
        end = end if last is None else min(end, last)
        return self._reader.table_within(begin, end, columns)

    def present_columns(self) -> list[str]:
        """The columns of the index that hold anything."""
        return self._reader.present_columns()

    def original_name(self, tensor: str) -> str:
        """The name a tensor had in the framework's graph."""
        return self._reader.original_name(tensor)

    def rows(self, tensor: str, columns: list[str], steps: set[int] | None = None) -> pa.Table:
        """The rows of one tensor within the range of the trial."""
        begin, end = self.range_steps
        if begin is None and end is None:
            return self._reader.rows(tensor, columns, steps)
        needed = list(dict.fromkeys([*columns, "step"]))
        table = self._reader.rows(tensor, needed, steps)
        return table.filter(from_numpy(in_range(to_numpy(table["step"]), begin, end))).select(
            columns
        )

    def evict_until(self, step: int) -> None:
        """Lets go of the rows up to a step, which will not be asked for again."""
        self._reader.evict_until(step)

    def row_values(self, table: pa.Table, tensor: str | None = None) -> list[Array | None]:
        """The raw values of rows; None where only reductions were saved.

        Args:
            table: rows with the columns `VALUE_COLUMNS`.
            tensor: the tensor they are of; None when the rows say it themselves.
        """
        places = record_locations(table, tensor)
        raw = iter(self.read_values([place for place in places if place is not None]))
        columns = [table[name].to_pylist() for name in ("value", "dtype", "shape")]
        values: list[Array | None] = []
        for place, value, dtype, shape in zip(places, *columns, strict=True):
            if place is not None:
                values.append(as_dtype(next(raw), dtype))
            else:
                values.append(value_in_index(value, dtype, shape))
        return values

    def row_times(self, table: pa.Table) -> list[float | None]:
        """When what rows hold was taken, in seconds since 1970; None where nothing says it.

        Args:
            table: rows with the columns `VALUE_COLUMNS`, `time`, `worker` and `tensor`.
        """
        return row_times(table, self._reader)

    def read_values(self, places: list[RecordLocation]) -> list[Array]:
        """Reads records, waiting for an event file that is late."""
        if self._cached is None:
            return self._read_patiently(places)
        missing = [place for place in places if place not in self._cached]
        self._cached.update(zip(missing, self._read_patiently(missing), strict=True))
        return [self._cached[place] for place in places]

    def _read_patiently(self, places: list[RecordLocation]) -> list[Array]:
        tries = environment.missing_event_file_retry_limit()
        while True:
            try:
                return self._reader.read_values(places)
            except KeyError as error:
                # Event files are published before the index, but not every store shows them so.
                missing = str(error.args[0])
                self._refresh(full=False)
                never = self.loaded_all_steps or self._reader.has_later_events(missing)
                if never or tries <= 0:
                    place = next((p for p in places if p.event_file == missing), places[0])
                    raise TensorUnavailableForStep(place.tensor, place.step) from error
                tries -= 1
                logger.warning("%s is indexed but not there yet", missing)
                pause(_MISSING_FILE_PAUSE)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trial):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return self.name, self.path, self.range_steps

    def __repr__(self) -> str:
        size = f"{len(self._names)} tensors, {len(self._steps.steps(incomplete=True))} steps"
        state = "finished" if self.loaded_all_steps else "live"
        return f"<Trial {self.name!r} {self.path}: {size}, {state}>"


def _trailing_number(name: str) -> tuple[int, str]:
    match = re.search(r"_(\d{1,4000})$", name)
    return (int(match[1]) if match else -1), name
