"""A reduction of every layer at some steps, as a table of colours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from smdebug.cli.follow import changes
from smdebug.cli.render.heatmap import Heat
from smdebug.cli.render.numbers import exact
from smdebug.cli.render.overview import tensor_names
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.terminal import console, harmless, json_line, say
from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugValueError
from smdebug.markup import cut_apart
from smdebug.mode_keys import ModeKeys
from smdebug.trials.choice import in_order, of_collection
from smdebug.trials.curves import present_reductions
from smdebug.trials.grid import common_steps, read_grid, single_steps, spread

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from rich.console import RenderableType

    from smdebug.trials.grid import Grid
    from smdebug.trials.trial import Trial

# What is shown when nothing is named.
_DEFAULTS = (CollectionKeys.GRADIENTS, CollectionKeys.WEIGHTS)
# A number and a space; wider where the number of a step is.
_CELL = 9
_NAME = 20
# So many tensors without a number are named.
_NAMED = 10
# So many steps fit beside names that are long.
_FEWEST_STEPS = 5
_STEPS_IN_JSON = 10
_ROWS = 50
# The lines above and below the rows.
_AROUND = 7


@dataclass
class LayerTable:
    """What is shown of a run.

    Attributes:
        trial: the run.
        reduction: as the index spells it.
        collection: whose tensors; see `_DEFAULTS` when neither it nor a pattern is given.
        pattern: found in the names of the tensors.
        mode: the numbering of the steps.
        worker: whose.
        steps: how many; as many as fit when None.
        rows: how many tensors.
        follows: it is drawn again and again, without a bar.
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
    _told: int = field(default=-1, init=False)
    _said: set[str] = field(default_factory=set, init=False)

    def wait(self) -> None:
        """Waits until the job has saved such tensors, or ends without."""
        said = False
        for _ in changes(self.trial):
            try:
                self._chosen()
                return
            except SMDebugValueError as error:
                missing = error
            # Before the first step there is nothing that could be chosen from.
            if not said and self.trial.steps() and not self.trial.loaded_all_steps:
                said = True
                say(f"waiting for what the job has not saved by now: {missing}")
        raise missing

    def _chosen(self) -> tuple[str, list[str]]:
        """What the tensors are, in a word, and their names.

        Raises:
            SMDebugValueError: there are none.
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
        found = names if what is None else of_collection(self.trial, what, names, "--collection")
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
        """The same, in the order in which training came across them."""
        what, names = self._chosen()
        return what, in_order(self.trial, names)

    def _has(self, collection: str, names: list[str]) -> bool:
        held = self.trial.collections().get(collection)
        return held is not None and any(map(held.matches, names))

    def grid(self, names: list[str], steps: list[int], rows: int | None) -> Grid:
        """The numbers.

        Raises:
            SMDebugValueError: there is not one.
        """
        with Bar(clock=not self.follows) as progress:
            grid = read_grid(
                self.trial, names, self.reduction, single_steps(self.trial, steps, self.mode),
                self.mode, self.worker, rows, None if self.follows else progress.tell,
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
        without = [name for name, has in zip(grid.names, there, strict=True) if not has]
        # Whoever follows sees single steps, and not every tensor was saved at each.
        self._say_without(without if self.follows else [*without, *grid.absent])
        return replace(
            grid, names=[name for name, has in zip(grid.names, there, strict=True) if has],
            values=grid.values[there], present=grid.present[there], bad=grid.bad[there],
        )  # fmt: skip

    def _say_without(self, names: list[str]) -> None:
        """Says once which tensors are not shown, because no number is there."""
        new = [name for name in names if name not in self._said]
        self._said.update(new)
        if new:
            more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            say(
                f"left out: {', '.join(new[:_NAMED])}{more}, of which {self.reduction} was not "
                "saved and cannot be computed at these steps"
            )

    def draw(self, width: int) -> RenderableType:
        """The table for a terminal of so many columns."""
        what, names = self._ordered()
        cell = max(_CELL, len(str(self.trial.steps(self.mode)[-1])) + 2)
        room = max(min(_NAME, width - 1 - cell), width - 1 - cell * _FEWEST_STEPS, 1)
        longest = min(max(len(harmless(name)) for name in ["tensor", *names]), room)
        fits = max((width - longest - 1) // cell, 1)
        count = min(self.steps or fits, fits)
        known = common_steps(self.trial, names, self.mode, self.steps or fits)
        steps = [known[place] for place in spread(len(known), count)]
        # What is drawn again and again has to fit onto a screen.
        fitting = min(max(console().height - _AROUND, 1), _ROWS) if self.follows else _ROWS
        grid = self.grid(names, steps, self.rows or fitting)
        title = Text.assemble((what, "bold"), f", {self.reduction}")
        title.append(" (computed)" if grid.computed else "")
        of = "" if self.mode is ModeKeys.GLOBAL else f" of mode {self.mode.name.lower()}"
        title.append(f", at {len(steps)} of {len(known)} steps{of}")
        asked = min(self.steps or 0, len(known))
        title.append(f" ({asked} do not fit)" if asked > fits else "")
        heat = Heat.of(grid.values[grid.present])
        parts = [title, _table(grid, heat, longest, cell), Text(""), heat.legend()]
        if grid.left_out:
            parts.append(_left_out(grid))
        return Group(*parts)

    def as_json(self) -> Any:
        """The same for other programs: all tensors, unless told otherwise."""
        _, names = self._ordered()
        count = self.steps or _STEPS_IN_JSON
        known = common_steps(self.trial, names, self.mode, count)
        steps = [known[place] for place in spread(len(known), count)]
        grid = self.grid(names, steps, self.rows)
        cells = zip(grid.values.tolist(), grid.present.tolist(), strict=True)
        return {
            "reduction": self.reduction,
            "mode": self.mode.name,
            "steps": grid.steps.tolist(),
            "tensors": grid.names,
            "values": [
                [value if there else None for value, there in zip(*row, strict=True)]
                for row in cells
            ],
        }

    def lines(self, as_json: bool) -> Iterator[str]:
        """What has come since they were last asked for: step, tensor, value."""
        _, names = self._ordered()
        for step in common_steps(self.trial, names, self.mode):
            if step <= self._told:
                continue
            self._told = step
            grid = self.grid(names, [step], self.rows)
            for name, (value,), (there,) in zip(
                grid.names, grid.values.tolist(), grid.present.tolist(), strict=True
            ):
                if there and as_json:
                    yield json_line({"step": step, "tensor": name, "value": value})
                elif there:
                    yield f"{step}\t{harmless(name)}\t{exact(value)}"


def _table(grid: Grid, heat: Heat, longest: int, cell: int) -> Table:
    table = Table(box=None, padding=0, pad_edge=False, header_style="dim")
    table.add_column("tensor", no_wrap=True, width=longest + 1)
    for step in grid.steps.tolist():
        table.add_column(f"{step:>{cell - 1}} ", min_width=cell, no_wrap=True)
    # The end of a name tells more than its beginning.
    names = cut_apart([harmless(name) for name in grid.names], longest, (longest - 1) // 3)
    rows = zip(names, grid.values.tolist(), grid.present.tolist(), strict=True)
    for name, values, present in rows:
        cells = [
            heat.cell(value if there else None, cell)
            for value, there in zip(values, present, strict=True)
        ]
        table.add_row(Text(name), *cells)
    return table


def _left_out(grid: Grid) -> Text:
    total = grid.left_out + len(grid.names)
    line = Text(f"{grid.left_out} of {total} tensors are left out; --rows N shows more", "dim")
    if grid.broken:
        has = "has" if grid.broken == 1 else "have"
        said = f"\n{grid.broken} of those {has} NaN or Inf saved at these steps"
        line.append(said, "bold bright_red")
    if grid.computed:
        line.append("; the rest" if grid.broken else "\nwhat was not saved of those")
        line.append(" is not computed")
    return line
