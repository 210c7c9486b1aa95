"""A run at a glance, or the course of its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from smdebug.cli.follow import changes
from smdebug.cli.live_series import Course
from smdebug.cli.render import overview
from smdebug.cli.render.line_plot import MOST_CURVES
from smdebug.cli.render.numbers import exact
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.series_table import draw_courses
from smdebug.cli.render.terminal import harmless, json_line, say
from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugValueError, TensorUnavailable
from smdebug.trials.choice import matching
from smdebug.trials.curves import PREFERRED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from smdebug.mode_keys import ModeKeys
    from smdebug.trials.curves import Curve
    from smdebug.trials.trial import Trial

# So many tensors that cannot be shown are named.
_NAMED = 10


class RunView:
    """What is shown of a run.

    Args:
        trial: the run.
        text: which tensors; None for all of it at a glance, with the losses.
        reduction: which of them; None to choose by what was saved.
        mode: of which steps.
        worker: whose.
        last: how many steps at the end.
        follows: it is drawn again and again, and has to fit onto a screen.
    """

    def __init__(
        self,
        trial: Trial,
        text: str | None,
        reduction: str | None,
        mode: ModeKeys,
        worker: str | None,
        last: int | None,
        follows: bool = False,
    ) -> None:
        self._trial, self._text, self._mode = trial, text, mode
        self._follows = follows
        self._options = (reduction, mode, worker, last)
        self._courses: dict[str, Course] = {}
        self._left_out = 0
        # By tensor, why it cannot be shown; and those of which that was said.
        self._unfit: dict[str, str] = {}
        self._said: set[str] = set()
        # By tensor and mode, the last step that was told.
        self._told: dict[tuple[str, ModeKeys], int] = {}

    def wait(self) -> None:
        """Waits until the job has saved what is to be followed.

        Raises:
            TensorUnavailable: it ended without.
        """
        said = False
        for _ in changes(self._trial):
            names = overview.tensor_names(self._trial, self._mode)
            if names and self._text is None:
                return
            try:
                matching(names, self._text or "")
                return
            except TensorUnavailable as error:
                missing = error
            # Before the first step nobody can say what is missing.
            if names and not said and not self._trial.loaded_all_steps:
                said = True
                say(f"waiting for what the job has not saved by now: {missing}")
        if self._text is not None:
            raise missing
        raise SMDebugValueError(f"{self._trial.path} has ended without a saved step")

    def series(self) -> list[Curve]:
        """The courses of the tensors, at most `MOST_CURVES`."""
        names = overview.tensor_names(self._trial, self._mode)
        if self._text is None:
            losses = self._trial.collections().get(CollectionKeys.LOSSES)
            names = [] if losses is None else losses.filter(names)
        else:
            names = matching(names, self._text)
        found = self._look_at(names, MOST_CURVES)
        shown = {each.name for each in found}
        self._left_out = len(names) - len(shown) - len(self._unfit)
        return found

    def _look_at(
        self, names: list[str], most: int | None = None, bar: Bar | None = None
    ) -> list[Curve]:
        """The courses of tensors; of those that cannot be shown it is said why.

        Raises:
            SMDebugValueError: none that was asked for can.
        """
        found: list[Curve] = []
        self._unfit = {}
        for count, name in enumerate(names, 1):
            found += self._look(name, alone=self._text is not None and len(names) == 1)
            if bar is not None:
                bar.tell(count, len(names))
            if most is not None and len(found) >= most:
                break
        if self._text is not None and not found:
            why = [*self._unfit.values()][:3] or ["nothing was saved of them"]
            raise SMDebugValueError(
                f"none of {len(names)} tensors has a course that can be shown: {'; '.join(why)}"
            )
        self._say_unfit()
        return self._alike(found[:most])[:most]

    def _look(self, name: str, alone: bool = False) -> list[Curve]:
        """The course of a tensor; none of one that cannot be shown, unless it is all there is."""
        course = self._courses.setdefault(name, Course(self._trial, name, *self._options))
        try:
            return course.look()
        except SMDebugValueError as error:
            if alone:
                raise
            self._unfit[name] = str(error)
            return []

    def _alike(self, found: list[Curve]) -> list[Curve]:
        """The same; single numbers beside reductions are reduced, too."""
        reductions = {each.reduction for each in found}
        if None not in reductions or len(reductions) == 1:
            return found
        common = next(each for each in PREFERRED if each in reductions)
        _, mode, worker, last = self._options
        for name in {each.name for each in found if each.reduction is None}:
            self._courses[name] = Course(self._trial, name, common, mode, worker, last)
        names = dict.fromkeys(each.name for each in found)
        return [each for name in names for each in self._look(name)]

    def _say_unfit(self) -> None:
        new = [name for name in self._unfit if name not in self._said]
        self._said.update(new)
        for name in new[:_NAMED]:
            say(f"left out: {self._unfit[name]}")
        if len(new) > _NAMED:
            say(f"left out: {len(new) - _NAMED} more tensors that cannot be shown")

    def draw(self, width: int) -> RenderableType:
        """The picture of it."""
        parts: list[RenderableType] = []
        if self._text is None and self._follows:
            parts += [overview.head(self._trial), Text("")]
        elif self._text is None:
            parts.append(overview.draw(self._trial, self._mode))
        found = self.series()
        brief = self._follows or self._text is None
        if found:
            parts.append(draw_courses(found, self._mode, width, brief, self._whose(found)))
        if self._left_out:
            parts.append(Text(_left_out(self._left_out), "dim"))
        return Group(*parts)

    def _whose(self, found: list[Curve]) -> str:
        """Whose numbers they are, where there are several workers and none was named."""
        workers = self._trial.workers()
        if len(workers) < 2 or self._options[2] is not None:
            return ""
        tensors = [self._trial.tensor(name) for name in {each.name for each in found}]
        first = {each.workers(each.steps()[-1])[0] for each in tensors}
        who = first.pop() if len(first) == 1 else "the first that has each"
        return f"{who} of {len(workers)} workers"

    def as_json(self) -> Any:
        """All of it, for other programs."""
        with Bar("tensors") as progress:
            if self._text is None:
                return overview.as_dict(self._trial, self._mode, progress)
            names = matching(overview.tensor_names(self._trial, self._mode), self._text)
            found = self._look_at(names, bar=progress)
        return [_as_dict(each) for each in found]

    def lines(self, as_json: bool) -> Iterator[str]:
        """What has come since they were last asked for: step, mode, tensor, value."""
        rows = []
        found = self.series()
        if self._left_out and not self._told:
            say(_left_out(self._left_out))
        for each in found:
            key = each.name, each.mode
            for step, value in zip(each.steps.tolist(), each.values.tolist(), strict=True):
                if step > self._told.get(key, -1):
                    rows.append((step, each.mode.name, each.name, value))
            if len(each.steps):
                self._told[key] = int(each.steps[-1])
        for row in sorted(rows, key=lambda row: row[0]):
            if as_json:
                yield json_line(dict(zip(("step", "mode", "tensor", "value"), row, strict=True)))
            else:
                step, mode, name, value = row
                yield f"{step}\t{mode.lower()}\t{harmless(name)}\t{exact(value)}"


def _left_out(count: int) -> str:
    what = "tensor is" if count == 1 else "tensors are"
    return f"{count} more {what} left out; name fewer, or use --json without --follow"


def _as_dict(series: Curve) -> dict[str, Any]:
    return {
        "tensor": series.name,
        "reduction": series.reduction,
        "mode": series.mode.name,
        "steps": series.steps,
        "values": series.values,
    }
