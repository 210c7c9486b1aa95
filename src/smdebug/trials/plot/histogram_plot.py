"""Histograms of raw tensors at steps; several are drawn as ridges, one above the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError
from smdebug.trials.plot.labels import label, labels
from smdebug.trials.plot.trial_plot import axes_of
from smdebug.trials.value_stats import Elements, elements_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.mode_keys import ModeKeys
    from smdebug.trials.curves import Floats
    from smdebug.trials.trial import Trial

MOST_RIDGES = 16
_BINS = 60
# How high a ridge is; above 1 it reaches into the next.
_OVERLAP = 1.15


def plot_ridges(
    trial: Trial,
    names: list[str],
    step: int | Iterable[int],
    mode: ModeKeys,
    worker: str | None,
    ax: Any,
) -> Any:
    """Draws the histogram of a tensor at a step, or of several tensors or steps."""
    steps = _steps_of(step)
    pairs = [(name, at) for name in names for at in steps]
    found = [_values(trial, name, at, mode, worker) for name, at in pairs[:MOST_RIDGES]]
    axes = axes_of(ax)
    edges = _edges([each.finite for each in found])
    if len(found) == 1:
        _draw_one(axes, found[0], edges)
    else:
        _draw_ridges(axes, found, edges, names, len(pairs))
    axes.set_xlabel("value")
    return axes


def _steps_of(given: int | Iterable[int]) -> list[int]:
    whole = (int, np.integer)
    steps = [given] if isinstance(given, whole) else given
    found = [] if isinstance(steps, str) or not hasattr(steps, "__iter__") else list(steps)
    right = [each for each in found if isinstance(each, whole) and not isinstance(each, bool)]
    if not right or len(right) < len(found):
        raise SMDebugTypeError(f"step must be a step or a list of them, got {given!r}")
    return [int(each) for each in right]


def _values(trial: Trial, name: str, step: int, mode: ModeKeys, worker: str | None) -> Elements:
    tensor = trial.tensor(name)
    try:
        array = tensor.value(step, mode, worker)
    except SMDebugError as error:
        known = tensor.steps(mode)
        near = sorted(sorted(known, key=lambda each: abs(each - step))[:3])
        hint = f"; the nearest steps of {name} are {', '.join(map(str, near))}" if near else ""
        raise SMDebugValueError(f"{error}{'' if step in known else hint}") from error
    return elements_of(array, name, step)


def _edges(parts: list[Floats]) -> Floats:
    """The same bins for all of them."""
    there = [part for part in parts if len(part)]
    if not there:
        return np.linspace(-0.5, 0.5, _BINS + 1)
    low, high = min(part.min() for part in there), max(part.max() for part in there)
    if not low < high:
        room = abs(low) * 0.1 or 0.5
        low, high = low - room, high + room
    if high / 4 - low / 4 > np.finfo(np.float64).max / 8:
        raise SMDebugValueError(f"the values, from {low:g} to {high:g}, are too far apart to draw")
    count = int(np.clip(np.sqrt(max(len(part) for part in there)), 10, _BINS))
    return np.linspace(low, high, count + 1)


def _counts(values: Elements, edges: Floats) -> Floats:
    return np.histogram(values.finite, edges)[0].astype(np.float64)


def _draw_one(axes: Any, values: Elements, edges: Floats) -> None:
    axes.stairs(_counts(values, edges), edges, fill=True, alpha=0.75)
    axes.set_ylabel("elements")
    title = f"{label(values.name)}, step {values.step:,}\n{values.summary()}"
    axes.set_title(title, loc="left", fontsize="medium")


def _draw_ridges(
    axes: Any, found: list[Elements], edges: Floats, names: list[str], wanted: int
) -> None:
    from matplotlib import colormaps

    colors = colormaps["viridis"](np.linspace(0, 0.85, len(found)))
    for place, (values, color) in enumerate(zip(found, colors, strict=True)):
        counts = _counts(values, edges)
        # The first is in front and at the bottom, as on a road that leads away.
        height = counts / max(counts.max(), 1) * _OVERLAP + place
        axes.stairs(
            height, edges, baseline=place, fill=True, color=color, alpha=0.8,
            zorder=3 - place / len(found),
        )  # fmt: skip
    one = len(names) == 1
    shown = [
        (f"step {each.step:,}" if one else f"{name}, {each.step:,}")
        + (f"\n{each.bad()}" if each.bad() else "")
        for each, name in zip(found, labels((each.name for each in found), 32), strict=True)
    ]
    axes.set_yticks(range(len(found)), shown, fontsize="small")
    axes.set_ylim(bottom=0)
    rest = f", {len(found)} of {wanted:,} drawn" if len(found) < wanted else ""
    title = label(names[0]) if one else f"{len(names):,} tensors"
    together = Elements(
        "", 0, np.concatenate([each.finite for each in found]),
        sum(each.nans for each in found), sum(each.infs for each in found),
    )  # fmt: skip
    axes.set_title(f"{title}{rest}\n{together.summary()}", loc="left", fontsize="medium")
