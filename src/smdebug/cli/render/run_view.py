"""The output of `smdebug show`: the overview of a run, or time series of its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from smdebug.cli.follow import changes
from smdebug.cli.live_series import LiveSeries
from smdebug.cli.render import overview
from smdebug.cli.render.line_plot import MOST_CURVES
from smdebug.cli.render.numbers import exact
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.series_table import draw_series
from smdebug.cli.render.terminal import harmless, json_line, print_message
from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugValueError, TensorUnavailable
from smdebug.trials.curves import PREFERRED
from smdebug.trials.select import resolve_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from smdebug.mode_keys import ModeKeys
    from smdebug.trials.curves import Curve
    from smdebug.trials.trial import Trial

# How many skipped tensors are named.
_LISTED = 10


class RunView:
    """The tensors and steps to show.

    Args:
        trial: the run.
        pattern: which tensors; None for the overview, with the losses.
        reduction: None to choose by what was saved.
        mode: the numbering of the steps.
        worker: the first worker when None.
        last: how many steps at the end.
        follows: the view is redrawn, and has to fit on the screen.
    """

    def __init__(
        self,
        trial: Trial,
        pattern: str | None,
        reduction: str | None,
        mode: ModeKeys,
        worker: str | None,
        last: int | None,
        follows: bool = False,
    ) -> None:
        self._trial, self._pattern, self._mode = trial, pattern, mode
        self._follows = follows
        self._options = (reduction, mode, worker, last)
        self._series: dict[str, LiveSeries] = {}
        self._hidden = 0
        # The reasons why tensors are skipped, and those that are already printed.
        self._skipped: dict[str, str] = {}
        self._reported: set[str] = set()
        # The last printed step by tensor and mode.
        self._printed_step: dict[tuple[str, ModeKeys], int] = {}

    def wait(self) -> None:
        """Wait until the job has saved the tensors.

        Raises:
            TensorUnavailable: it ended without them.
        """
        reported = False
        for _ in changes(self._trial):
            names = overview.tensor_names(self._trial, self._mode)
            if names and self._pattern is None:
                return
            try:
                resolve_pattern(names, self._pattern or "")
                return
            except TensorUnavailable as error:
                missing = error
            # Before the first step all tensors are missing.
            if names and not reported and not self._trial.loaded_all_steps:
                reported = True
                print_message(f"waiting for the job to save it: {missing}")
        if self._pattern is not None:
            raise missing
        raise SMDebugValueError(f"{self._trial.path} ended without a saved step")

    def series(self) -> list[Curve]:
        """Return the curves of the tensors, at most `MOST_CURVES`."""
        names = overview.tensor_names(self._trial, self._mode)
        if self._pattern is None:
            losses = self._trial.collections().get(CollectionKeys.LOSSES)
            names = [] if losses is None else losses.filter(names)
        else:
            names = resolve_pattern(names, self._pattern)
        found = self._read_all(names, MOST_CURVES)
        shown = {each.name for each in found}
        self._hidden = len(names) - len(shown) - len(self._skipped)
        return found

    def _read_all(
        self, names: list[str], most: int | None = None, bar: Bar | None = None
    ) -> list[Curve]:
        """Return the curves of tensors; print why others are skipped.

        Raises:
            SMDebugValueError: none can be plotted.
        """
        found: list[Curve] = []
        self._skipped = {}
        for count, name in enumerate(names, 1):
            found += self._read_one(name, alone=self._pattern is not None and len(names) == 1)
            if bar is not None:
                bar.update(count, len(names))
            if most is not None and len(found) >= most:
                break
        if self._pattern is not None and not found:
            why = [*self._skipped.values()][:3] or ["nothing was saved for them"]
            raise SMDebugValueError(
                f"none of {len(names)} tensors can be plotted: {'; '.join(why)}"
            )
        self._report_skipped()
        return self._with_common_reduction(found[:most])[:most]

    def _read_one(self, name: str, alone: bool = False) -> list[Curve]:
        """Return the curves of a tensor; `alone` raises if it cannot be plotted."""
        series = self._series.setdefault(name, LiveSeries(self._trial, name, *self._options))
        try:
            return series.read()
        except SMDebugValueError as error:
            if alone:
                raise
            self._skipped[name] = str(error)
            return []

    def _with_common_reduction(self, found: list[Curve]) -> list[Curve]:
        """Return the curves with scalars reduced, too, if any other tensor is."""
        reductions = {each.reduction for each in found}
        if None not in reductions or len(reductions) == 1:
            return found
        common = next(each for each in PREFERRED if each in reductions)
        _, mode, worker, last = self._options
        for name in {each.name for each in found if each.reduction is None}:
            self._series[name] = LiveSeries(self._trial, name, common, mode, worker, last)
        names = dict.fromkeys(each.name for each in found)
        return [each for name in names for each in self._read_one(name)]

    def _report_skipped(self) -> None:
        new = [name for name in self._skipped if name not in self._reported]
        self._reported.update(new)
        for name in new[:_LISTED]:
            print_message(f"skipped: {self._skipped[name]}")
        if len(new) > _LISTED:
            print_message(f"skipped: {len(new) - _LISTED} more tensors that cannot be plotted")

    def draw(self, width: int) -> RenderableType:
        """Return the output for a terminal of this many columns."""
        parts: list[RenderableType] = []
        if self._pattern is None and self._follows:
            parts += [overview.head(self._trial), Text("")]
        elif self._pattern is None:
            parts.append(overview.draw(self._trial, self._mode))
        found = self.series()
        brief = self._follows or self._pattern is None
        if found:
            parts.append(draw_series(found, self._mode, width, brief, self._worker_label(found)))
        if self._hidden:
            parts.append(Text(_format_hidden(self._hidden), "dim"))
        return Group(*parts)

    def _worker_label(self, found: list[Curve]) -> str:
        """Return the worker that is shown, if there are several and none was named."""
        workers = self._trial.workers()
        if len(workers) < 2 or self._options[2] is not None:
            return ""
        tensors = [self._trial.tensor(name) for name in {each.name for each in found}]
        first = {each.workers(each.steps()[-1])[0] for each in tensors}
        who = first.pop() if len(first) == 1 else "the first that saved each"
        return f"{who} of {len(workers)} workers"

    def as_json(self) -> Any:
        """Return everything for JSON."""
        with Bar("tensors") as progress:
            if self._pattern is None:
                return overview.as_dict(self._trial, self._mode, progress)
            names = resolve_pattern(overview.tensor_names(self._trial, self._mode), self._pattern)
            found = self._read_all(names, bar=progress)
        return [_as_dict(each) for each in found]

    def lines(self, as_json: bool) -> Iterator[str]:
        """Yield a line of step, mode, tensor and value for every value since the last call."""
        rows = []
        found = self.series()
        if self._hidden and not self._printed_step:
            print_message(_format_hidden(self._hidden))
        for each in found:
            key = each.name, each.mode
            for step, value in zip(each.steps.tolist(), each.values.tolist(), strict=True):
                if step > self._printed_step.get(key, -1):
                    rows.append((step, each.mode.name, each.name, value))
            if len(each.steps):
                self._printed_step[key] = int(each.steps[-1])
        for row in sorted(rows, key=lambda row: row[0]):
            if as_json:
                yield json_line(dict(zip(("step", "mode", "tensor", "value"), row, strict=True)))
            else:
                step, mode, name, value = row
                yield f"{step}\t{mode.lower()}\t{harmless(name)}\t{exact(value)}"


def _format_hidden(count: int) -> str:
    what = "tensor is" if count == 1 else "tensors are"
    return f"{count} more {what} not shown; name fewer, or use --json without --follow"


def _as_dict(series: Curve) -> dict[str, Any]:
    return {
        "tensor": series.name,
        "reduction": series.reduction,
        "mode": series.mode.name,
        "steps": series.steps,
        "values": series.values,
    }
