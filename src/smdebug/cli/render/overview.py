"""The overview of a run: its state, its tensors, its findings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from smdebug.cli.render.numbers import exact
from smdebug.cli.render.terminal import harmless
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import to_numpy
from smdebug.trials.curves import present_reductions
from smdebug.trials.run_summary import FINISHED, format_of, state_of
from smdebug.trials.select import natural

if TYPE_CHECKING:
    from rich.console import RenderableType

    from smdebug.cli.render.progress import Bar
    from smdebug.storage.findings import Finding
    from smdebug.trials.trial import Trial

MOST_TENSORS, MOST_FINDINGS, MOST_WORKERS = 30, 10, 4


@dataclass(frozen=True)
class TensorSummary:
    """A summary of one tensor.

    Attributes:
        name: its name.
        dtype: None if it was not saved.
        shape: at its last step; None if it was not saved.
        steps: how many it was saved at.
        last_step: the last of them.
        value: its value at that step, if it has one element.
        has_values: whether its values were saved.
        reductions: the reductions that were saved.
    """

    name: str
    dtype: str | None
    shape: list[int] | None
    steps: int
    last_step: int
    value: float | None
    has_values: bool
    reductions: list[str] = field(default_factory=list)


def tensor_names(trial: Trial, mode: ModeKeys) -> list[str]:
    """Return the sorted names of all tensors of a mode; none before the first step."""
    names = trial.tensor_names(mode=mode) if trial.steps(mode) else []
    return sorted(names, key=natural)


def summarize_tensor(trial: Trial, name: str, present: list[str]) -> TensorSummary:
    """Summarize a tensor without reading its values.

    Args:
        trial: the run.
        name: the tensor.
        present: the reductions that were saved for any tensor.
    """
    steps = np.unique(to_numpy(trial.rows(name, ["step"])["step"]))
    step = int(steps[-1])
    table = trial.rows(
        name, ["step", "dtype", "shape", "value", "event_file", *present], steps={step}
    )
    row_index = int(np.flatnonzero(to_numpy(table["step"]) == step)[0])
    row = table.slice(row_index, 1).to_pylist()[0]
    return TensorSummary(
        name,
        row["dtype"],
        row["shape"],
        len(steps),
        step,
        row["value"],
        row["value"] is not None or row["event_file"] is not None,
        [each for each in present if row[each] is not None],
    )


def as_dict(trial: Trial, mode: ModeKeys, progress: Bar) -> dict[str, Any]:
    """Return the whole overview for JSON."""
    names = tensor_names(trial, mode)
    present = present_reductions(trial)
    tensors = []
    for name in names:
        tensors.append(vars(summarize_tensor(trial, name, present)))
        progress.update(len(tensors), len(names))
    return {
        "path": trial.path,
        "format": format_of(trial.store),
        "state": state_of(trial.store),
        "workers": trial.workers(),
        "steps": {
            name: {"count": len(steps), "first": steps[0], "last": steps[-1]}
            for name, steps in _steps(trial).items()
        },
        "collections": _collections(trial, names),
        "tensors": tensors,
        "findings": [finding.to_dict() for finding in trial.findings()],
    }


def draw(trial: Trial, mode: ModeKeys) -> RenderableType:
    """Return the overview for a terminal, with at most `MOST_TENSORS` tensors."""
    names = tensor_names(trial, mode)
    parts: list[RenderableType] = [head(trial), Text("")]
    collections = _collections(trial, names)
    if collections:
        parts += [_counts("collection", collections), Text("")]
    if names:
        present = present_reductions(trial)
        some = [summarize_tensor(trial, name, present) for name in names[:MOST_TENSORS]]
        parts.append(_tensors(some))
        if len(names) > MOST_TENSORS:
            more = f"... and {len(names) - MOST_TENSORS} more; name some, or use --json"
            parts.append(Text(more, "dim"))
        parts.append(Text(""))
    findings = trial.findings()
    if findings:
        parts += [*_findings(findings), Text("")]
    return Group(*parts)


def head(trial: Trial) -> Table:
    """Return the first lines: path, format, state, workers, steps."""
    workers = trial.workers()
    named = ", ".join(workers[:MOST_WORKERS])
    more = f" and {len(workers) - MOST_WORKERS} more" if len(workers) > MOST_WORKERS else ""
    steps = {
        name: f"{len(each)} {name.lower()} ({each[0]} to {each[-1]})"
        for name, each in _steps(trial).items()
    }
    state = state_of(trial.store)
    table = Table.grid(padding=(0, 2))
    for name, text in (
        ("run", trial.path),
        ("format", format_of(trial.store) or "-"),
        ("state", state),
        ("workers" if len(workers) > 1 else "worker", named + more),
        ("steps", ", ".join(steps.values()) or ("none" if state == FINISHED else "none yet")),
    ):
        table.add_row(Text(name, "dim"), Text(harmless(text), overflow="fold"))
    return table


def _steps(trial: Trial) -> dict[str, list[int]]:
    """Return the steps by mode; global steps if the job has set no mode."""
    found = {mode.name: trial.steps(mode) for mode in trial.modes() or [ModeKeys.GLOBAL]}
    return {name: steps for name, steps in found.items() if steps}


def _collections(trial: Trial, names: list[str]) -> dict[str, int]:
    """Return the number of tensors by collection, without empty ones."""
    counts = {
        name: sum(map(collection.matches, names))
        for name, collection in sorted(trial.collections().items())
    }
    return {name: count for name, count in counts.items() if count}


def _counts(title: str, counts: dict[str, int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(title, overflow="fold")
    table.add_column("tensors", justify="right")
    for name, count in counts.items():
        table.add_row(Text(harmless(name)), str(count))
    return table


def _tensors(tensors: list[TensorSummary]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("tensor", overflow="fold", min_width=20)
    table.add_column("shape", overflow="fold")
    table.add_column("dtype", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("last or saved", overflow="fold")
    for each in tensors:
        shape = "" if each.shape is None else "x".join(map(str, each.shape)) or "()"
        table.add_row(
            Text(harmless(each.name)), shape, each.dtype or "", str(each.steps), _saved(each)
        )
    return table


def _saved(tensor: TensorSummary) -> Text:
    if tensor.value is not None:
        return Text(exact(tensor.value), "" if math.isfinite(tensor.value) else "bold bright_red")
    saved = [*(["values"] if tensor.has_values else []), *tensor.reductions]
    return Text(", ".join(saved) or "shape")


def _findings(findings: list[Finding]) -> list[RenderableType]:
    lines: list[RenderableType] = [Text("rules found", "dim")]
    for finding in findings[:MOST_FINDINGS]:
        # Padding indents the lines of a long message.
        lines.append(Padding(Text(harmless(str(finding)), "bright_yellow"), (0, 0, 0, 2)))
    if len(findings) > MOST_FINDINGS:
        lines.append(Text(f"  ... and {len(findings) - MOST_FINDINGS} more", "dim"))
    return lines
