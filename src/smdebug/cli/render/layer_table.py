"""A heatmap of a reduction: tensors down, steps across."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smdebug.cli.follow import changes
from smdebug.cli.render.heatmap import Heatmap
from smdebug.cli.render.numbers import exact
from smdebug.cli.render.overview import tensor_names
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.terminal import console, harmless, json_line, print_message
from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugValueError
from smdebug.markup import cut_apart
from smdebug.mode_keys import ModeKeys
from smdebug.trials.curves import present_reductions
from smdebug.trials.plot.heatmap import common_steps, listed_steps, read_heatmap, spread
from smdebug.trials.select import filter_by_collection, in_order

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from rich.console import RenderableType

    from smdebug.trials.plot.heatmap import HeatmapData
    from smdebug.trials.trial import Trial

# The first of these that a run has is the default.
_DEFAULTS = (CollectionKeys.GRADIENTS, CollectionKeys.WEIGHTS)
# A number and a space; wider for long step numbers.
_CELL = 9
_NAME = 20
# How many skipped tensors a message names.
_LISTED = 10
# Names are cut so that this many steps fit.
_FEWEST_STEPS = 5
_STEPS_IN_JSON = 10
_ROWS = 50
# The lines above and below the rows.
_AROUND = 7


@dataclass
class LayerTable:
    """The tensors, steps and reduction to show.

    Attributes:
        trial: the run.
        reduction: the name in the index.
        collection: the tensors; `_DEFAULTS` if neither it nor a pattern is given.
        pattern: searched for in the names of tensors.
        mode: the numbering of the steps.
        worker: the first worker when None.
        steps: how many; as many as fit when None.
        rows: how many tensors.
        follows: the table is redrawn, without a progress bar.
    """

    trial: Trial
    reduction: str
    collection: str | None
    pattern: re.Pattern[str] | None
    mode: ModeKeys
    worker: str | None
    steps: int | None
    rows: int | None
    follows: bool = False
    _printed_step: int = field(default=-1, init=False)
    _reported: set[str] = field(default_factory=set, init=False)

    def wait(self) -> None:
        """Wait until the job has saved such tensors, or has ended."""
        reported = False
        for _ in changes(self.trial):
            try:
                self._select()
                return
            except SMDebugValueError as error:
                missing = error
            # Before the first step no tensor exists.
            if not reported and self.trial.steps() and not self.trial.loaded_all_steps:
                reported = True
                print_message(f"waiting for the job to save it: {missing}")
        raise missing

    def _select(self) -> tuple[str, list[str]]:
        """Return a title for the tensors, and their names.

        Raises:
            SMDebugValueError: no tensor matches.
        """
        names = tensor_names(self.trial, self.mode)
        what = self.collection
        if what is None and self.pattern is None:
            what = next((key for key in _DEFAULTS if self._has(key, names)), None)
            if what is None:
                raise SMDebugValueError(
                    f"the run has neither {' nor '.join(_DEFAULTS)}; name a --collection of "
                    f"{', '.join(sorted(self.trial.collections())) or 'none'}, or a --regex"
                )
        found = (
            names if what is None else filter_by_collection(self.trial, what, names, "--collection")
        )
        if self.pattern is not None:
            found = [name for name in found if self.pattern.search(name)]
        if not found:
            asked = [] if what is None else [f"of collection {what!r}"]
            asked += [] if self.pattern is None else [f"whose name has {self.pattern.pattern!r}"]
            raise SMDebugValueError(
                f"the run has no tensors {' '.join(asked)}; smdebug show lists what it has"
            )
        return what or "tensors", found

    def _ordered(self) -> tuple[str, list[str]]:
        """Return the same, in execution order."""
        what, names = self._select()
        return what, in_order(self.trial, names)

    def _has(self, collection: str, names: list[str]) -> bool:
        held = self.trial.collections().get(collection)
        return held is not None and any(map(held.matches, names))

    def grid(self, names: list[str], steps: list[int], rows: int | None) -> HeatmapData:
        """Read the values.

        Raises:
            SMDebugValueError: there are none.
        """
        with Bar(timer=not self.follows) as progress:
            grid = read_heatmap(
                self.trial, names, self.reduction, listed_steps(self.trial, steps, self.mode),
                self.mode, self.worker, rows, None if self.follows else progress.update,
            )  # fmt: skip
        if not grid.present.any():
            saved = present_reductions(self.trial)
            rest = (
                f"saved were {', '.join(saved)}: choose one of them with --reduction"
                if saved
                else "no reductions were saved in this run"
            )
            raise SMDebugValueError(
                f"none of {len(names)} tensors was saved with {self.reduction}, or with the "
                f"values to compute it from, at these steps; {rest}"
            )
        there = [any(row) for row in grid.present.tolist()]
        without = [name for name, has in zip(grid.tensors, there, strict=True) if not has]
        # With --follow these are single steps, at which not every tensor is saved.
        self._report_skipped(without if self.follows else [*without, *grid.absent])
        return replace(
            grid, tensors=[name for name, has in zip(grid.tensors, there, strict=True) if has],
            values=grid.values[there], present=grid.present[there],
            non_finite=grid.non_finite[there],
        )  # fmt: skip

    def _report_skipped(self, names: list[str]) -> None:
        """Print once which tensors are skipped because they have no value."""
        new = [name for name in names if name not in self._reported]
        self._reported.update(new)
        if new:
            more = f" and {len(new) - _LISTED} more" if len(new) > _LISTED else ""
            print_message(
                f"skipped: {', '.join(new[:_LISTED])}{more}: {self.reduction} was not saved and "
                "cannot be computed at these steps"
            )

    def draw(self, width: int) -> RenderableType:
        """Return the table for a terminal of this many columns."""
        what, names = self._ordered()
        cell = max(_CELL, len(str(self.trial.steps(self.mode)[-1])) + 2)
        room = max(min(_NAME, width - 1 - cell), width - 1 - cell * _FEWEST_STEPS, 1)
        longest = min(max(len(harmless(name)) for name in ["tensor", *names]), room)
        fits = max((width - longest - 1) // cell, 1)
        count = min(self.steps or fits, fits)
        known = common_steps(self.trial, names, self.mode, self.steps or fits)
        steps = [known[index] for index in spread(len(known), count)]
        # A table that is redrawn has to fit on the screen.
        fitting = min(max(console().height - _AROUND, 1), _ROWS) if self.follows else _ROWS
        grid = self.grid(names, steps, self.rows or fitting)
        title = Text.assemble((what, "bold"), f", {self.reduction}")
        title.append(" (computed)" if grid.computed else "")
        of = "" if self.mode is ModeKeys.GLOBAL else f" of mode {self.mode.name.lower()}"
        title.append(f", at {len(steps)} of {len(known)} steps{of}")
        asked = min(self.steps or 0, len(known))
        title.append(f" ({asked} do not fit)" if asked > fits else "")
        heatmap = Heatmap.of(grid.values[grid.present])
        parts = [title, _table(grid, heatmap, longest, cell), Text(""), heatmap.legend()]
        if grid.hidden:
            parts.append(_format_hidden(grid))
        return Group(*parts)

    def as_json(self) -> Any:
        """Return the values for JSON; all tensors unless `rows` is set."""
        _, names = self._ordered()
        count = self.steps or _STEPS_IN_JSON
        known = common_steps(self.trial, names, self.mode, count)
        steps = [known[index] for index in spread(len(known), count)]
        grid = self.grid(names, steps, self.rows)
        cells = zip(grid.values.tolist(), grid.present.tolist(), strict=True)
        return {
            "reduction": self.reduction,
            "mode": self.mode.name,
            "steps": grid.steps.tolist(),
            "tensors": grid.tensors,
            "values": [
                [value if there else None for value, there in zip(*row, strict=True)]
                for row in cells
            ],
        }

    def lines(self, as_json: bool) -> Iterator[str]:
        """Yield a line of step, tensor and value for every value since the last call."""
        _, names = self._ordered()
        for step in common_steps(self.trial, names, self.mode):
            if step <= self._printed_step:
                continue
            self._printed_step = step
            grid = self.grid(names, [step], self.rows)
            for name, (value,), (there,) in zip(
                grid.tensors, grid.values.tolist(), grid.present.tolist(), strict=True
            ):
                if there and as_json:
                    yield json_line({"step": step, "tensor": name, "value": value})
                elif there:
                    yield f"{step}\t{harmless(name)}\t{exact(value)}"


def _table(grid: HeatmapData, heatmap: Heatmap, longest: int, cell: int) -> Table:
    table = Table(box=None, padding=0, pad_edge=False, header_style="dim")
    table.add_column("tensor", no_wrap=True, width=longest + 1)
    for step in grid.steps.tolist():
        table.add_column(f"{step:>{cell - 1}} ", min_width=cell, no_wrap=True)
    # Keep the end of a name, which is more specific than its beginning.
    names = cut_apart([harmless(name) for name in grid.tensors], longest, (longest - 1) // 3)
    rows = zip(names, grid.values.tolist(), grid.present.tolist(), strict=True)
    for name, values, present in rows:
        cells = [
            heatmap.cell(value if there else None, cell)
            for value, there in zip(values, present, strict=True)
        ]
        table.add_row(Text(name), *cells)
    return table


def _format_hidden(grid: HeatmapData) -> Text:
    total = grid.hidden + len(grid.tensors)
    line = Text(f"{grid.hidden} of {total} tensors are not shown; --rows N shows more", "dim")
    if grid.hidden_non_finite:
        has = "has" if grid.hidden_non_finite == 1 else "have"
        non_finite = f"\n{grid.hidden_non_finite} of those {has} NaN or Inf saved at these steps"
        line.append(non_finite, "bold bright_red")
    if grid.computed:
        line.append("; " if grid.hidden_non_finite else "\n")
        line.append("reductions that were not saved are not computed for hidden tensors")
    return line
