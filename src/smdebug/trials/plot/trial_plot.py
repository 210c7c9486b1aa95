"""Plots of a trial with matplotlib: curves over the steps, and layers by steps as a heat map."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES, canonical_reduction
from smdebug.trials.curves import Curve, course, curve, what_was_saved
from smdebug.trials.index_rows import VALUE
from smdebug.trials.plot.finding_markers import mark_bad_steps, mark_findings
from smdebug.trials.plot.heatmap import all_steps, read_heatmap, spread
from smdebug.trials.plot.labels import label, labels
from smdebug.trials.select import chosen, default_curve_names, meant, names_in, require_worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smdebug.config.collection import Collection
    from smdebug.trials.curves import Floats, Ints
    from smdebug.trials.frame import Frame
    from smdebug.trials.plot.heatmap import HeatmapData
    from smdebug.trials.trial import Trial

KINDS = ("lines", "heat")
# More lines than that are a thicket, more names a wall of text, more points are not seen.
MOST_LINES = 40
_MOST_NAMES = 10
_MOST_INSIDE = 4
_MOST_POINTS = 4000
_MOST_COLUMNS = 800
_MOST_ROW_NAMES = 24
# Values that are further apart than this are shown on a logarithmic scale.
_DECADES = 2.0
_BAD, _ZERO = "#d62728", "#d9d9d9"

_STYLES = {
    ModeKeys.TRAIN: "-",
    ModeKeys.EVAL: "--",
    ModeKeys.PREDICT: ":",
    ModeKeys.GLOBAL: "-",
}


@dataclass(frozen=True)
class PlotOptions:
    """How tensors are plotted; see `Trial.plot`."""

    reduction: str | None
    step: int | Iterable[int] | None
    kind: str
    mode: ModeKeys
    worker: str | None
    ax: Any


def plot(
    trial: Trial,
    tensors: str | Iterable[str] | None,
    collection: str | Collection | None,
    how: PlotOptions,
) -> Any:
    """Plots what `Trial.plot` is asked for."""
    if tensors is not None or collection is not None:
        return plot_names(trial, chosen(trial, tensors, collection, how.mode), how)
    if how.step is not None or how.reduction is not None or how.kind != "lines":
        raise SMDebugValueError(
            "tensors or collection must be given together with reduction, step or kind, got "
            "neither; plot() by itself shows the losses"
        )
    require_worker(trial, how.worker)
    names = default_curve_names(trial, how.mode)
    drawn = _some(names, MOST_LINES, trial)
    curves = [part for name in drawn for part in course(trial, name, how.mode, how.worker)]
    return _plot_courses(trial, curves, len(names), how.mode, how.ax)


def plot_names(trial: Trial, names: list[str], how: PlotOptions) -> Any:
    """Plots tensors whose names are known."""
    kind, mode, worker = how.kind, how.mode, how.worker
    if kind not in KINDS:
        raise SMDebugValueError(
            f"kind must be one of {', '.join(KINDS)}, got {kind!r}{meant(str(kind), KINDS)}"
        )
    names_in(trial, mode)
    require_worker(trial, worker)
    reduction = _checked(how.reduction)
    if how.step is not None:
        from smdebug.trials.plot.histogram_plot import plot_ridges

        if reduction is not None or kind != "lines":
            raise SMDebugValueError(
                "step shows the raw values at a step: reduction and kind cannot be given with it"
            )
        return plot_ridges(trial, names, how.step, mode, worker, how.ax)
    if kind == "heat":
        number = reduction or "value"
        found = read_heatmap(trial, names, number, all_steps(trial, _MOST_COLUMNS), mode, worker)
        if not found.present.any():
            raise SMDebugValueError(
                f"{number} was saved at no step of these tensors; {what_was_saved(trial, names[0])}"
            )
        return _plot_heat(trial, found.without_empty_columns(), reduction, mode, how.ax)
    drawn = _some(names, MOST_LINES, trial)
    curves = [curve(trial, name, reduction, mode, worker) for name in drawn]
    return _plot_layers(trial, curves, names, reduction, mode, how.ax)


def plot_frame(frame: Frame, names: list[str], ax: Any) -> Any:
    """Plot a line for each column of a frame, at most `MOST_LINES`."""
    reduction = None if frame.reduction == VALUE else frame.reduction
    curves = []
    for place in spread(len(names), MOST_LINES):
        there = frame.present[:, place]
        curves.append(Curve(names[place], frame.steps[there], frame.values[there, place]))
    if not any(len(curve.steps) for curve in curves):
        raise SMDebugValueError(f"Cannot plot {frame!r}: it has no number")
    return _plot_layers(frame.trial, curves, names, reduction, frame.mode, ax)


def axes_of(ax: Any) -> Any:
    """The axes to draw on: new ones where none are given.

    Raises:
        SMDebugRuntimeError: matplotlib is not installed.
    """
    try:
        if ax is None:
            # Through pyplot, so that a notebook shows it; what it is shown on stays as it is.
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
        from matplotlib.axes import Axes
    except ImportError as error:
        raise SMDebugRuntimeError("plots need matplotlib: pip install 'tornasole[plot]'") from error
    if not isinstance(ax, Axes):
        raise SMDebugValueError(
            f"ax must be axes of matplotlib, as those of pyplot.subplots(), got {ax!r}"
        )
    return ax


def finish(axes: Any, title: str, mode: ModeKeys) -> Any:
    """What all plots over steps have in common."""
    from matplotlib.ticker import MaxNLocator

    locator = axes.xaxis.get_major_locator()
    # There are no steps between the steps; ticks that somebody has set himself stay.
    if isinstance(locator, MaxNLocator):
        locator.set_params(integer=True)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel("step" if mode is ModeKeys.GLOBAL else f"step of mode {mode.name}")
    return axes


def wants_log(values: Sequence[Floats]) -> bool:
    """Whether values are all above zero, as far as they are not zero, and far apart."""
    finite = np.concatenate([each[np.isfinite(each)] for each in values] or [np.zeros(0)])
    if not len(finite) or finite.min() < 0 or not finite.max() > 0:
        return False
    return bool(np.log10(finite.max()) - np.log10(finite[finite > 0].min()) > _DECADES)


def _checked(reduction: str | None) -> str | None:
    if reduction is None:
        return None
    try:
        return canonical_reduction(str(reduction))
    except SMDebugValueError as error:
        raise SMDebugValueError(
            f"reduction must be one of {', '.join(REDUCTION_NAMES)}; got {reduction!r}"
            f"{meant(str(reduction), REDUCTION_NAMES)}"
        ) from error


def _some(names: list[str], most: int, trial: Trial) -> list[str]:
    """At most so many of the names: those that rules found something in, others evenly spread."""
    if len(names) <= most:
        return names
    known = {name: place for place, name in enumerate(names)}
    found = dict.fromkeys(known[each.tensor] for each in trial.findings() if each.tensor in known)
    kept = set(list(found)[: most // 2])
    kept.update(spread(len(names), most - len(kept)))
    return [names[place] for place in sorted(kept)]


def _thinned(steps: Ints, values: Floats) -> tuple[Ints, Floats]:
    """A long curve without the points that nobody would see: the extremes of stretches stay."""
    if len(steps) <= _MOST_POINTS:
        return steps, values
    edges = np.linspace(0, len(steps), _MOST_POINTS // 4 + 1).astype(int)
    finite = np.isfinite(values)
    kept = {0, len(steps) - 1}
    for first, end in pairwise(edges.tolist()):
        part, good = values[first:end], finite[first:end]
        kept.update((first, end - 1))
        if good.any():
            kept.add(int(first + np.where(good, part, np.inf).argmin()))
            kept.add(int(first + np.where(good, part, -np.inf).argmax()))
    rows = np.array(sorted(kept))
    return steps[rows], values[rows]


def _draw(axes: Any, one: Curve, **style: Any) -> Any:
    steps, values = _thinned(one.steps, one.values)
    # A line through one point, or between two that are not finite, would not be seen.
    few = np.isfinite(values).sum() <= 60
    marker = {"marker": "o", "markersize": 3} if few else {}
    (line,) = axes.plot(
        steps, np.where(np.isfinite(values), values, np.nan), linewidth=1.4, **marker, **style
    )
    return line


def _plot_courses(trial: Trial, curves: list[Curve], count: int, mode: ModeKeys, ax: Any) -> Any:
    axes = axes_of(ax)
    modes = {one.mode for one in curves}
    for one, name in zip(curves, labels(one.name for one in curves), strict=True):
        of = f", {one.mode.name.lower()}" if len(modes) > 1 else ""
        _draw(axes, one, label=name + of, linestyle=_STYLES[one.mode])
    if wants_log([one.values for one in curves]):
        axes.set_yscale("log")
    drawn = len({one.name for one in curves})
    title = label(trial.name) + (f": {drawn} of {count:,} curves" if drawn < count else "")
    mark_bad_steps(axes, curves)
    mark_findings(axes, trial, None, mode)
    _add_legend(axes)
    return finish(axes, title, mode)


def _plot_layers(
    trial: Trial,
    curves: list[Curve],
    names: list[str],
    reduction: str | None,
    mode: ModeKeys,
    ax: Any,
) -> Any:
    axes = axes_of(ax)
    from matplotlib import colormaps

    colors = colormaps["viridis"](np.linspace(0, 0.9, len(curves)))
    many = len(curves) > _MOST_NAMES
    shown = ["_"] * len(curves) if many else labels(one.name for one in curves)
    for one, color, name in zip(curves, colors, shown, strict=True):
        _draw(axes, one, color=color, label=name)
    if wants_log([one.values for one in curves]):
        axes.set_yscale("log")
    mark_bad_steps(axes, curves)
    mark_findings(axes, trial, set(names), mode)
    if many:
        _name_colors(axes, [one.name for one in curves])
    _add_legend(axes)
    axes.set_ylabel(reduction or "value")
    what = label(names[0]) if len(names) == 1 else f"{len(names):,} tensors"
    rest = f", {len(curves)} of them drawn" if len(curves) < len(names) else ""
    return finish(axes, f"{what} of {label(trial.name)}{rest}", mode)


def _add_legend(axes: Any) -> None:
    count = len(axes.get_legend_handles_labels()[0])
    # A long one would hide the curves.
    beside = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if count > _MOST_INSIDE else {}
    if count:
        axes.legend(fontsize="small", framealpha=0.6, **beside)


def _name_colors(axes: Any, names: list[str]) -> None:
    """A bar that says which end of the colours is which end of the network."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colors = ListedColormap(colormaps["viridis"](np.linspace(0, 0.9, 256)))
    bar = axes.figure.colorbar(ScalarMappable(Normalize(0, 1), colors), ax=axes, ticks=[0, 1])
    bar.ax.set_yticklabels(labels([names[0], names[-1]], 28), fontsize="small")
    # As a network is read: what is computed first is on top.
    bar.ax.invert_yaxis()


def _plot_heat(
    trial: Trial, found: HeatmapData, reduction: str | None, mode: ModeKeys, ax: Any
) -> Any:
    axes = axes_of(ax)
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    rows = len(found.tensors)
    logarithmic = wants_log([found.values])
    edges, between = _edges(found.steps), np.arange(rows + 1) - 0.5
    shown = np.ma.masked_invalid(found.values)
    mesh = axes.pcolormesh(
        edges, between, np.ma.masked_equal(shown, 0) if logarithmic else shown,
        norm=LogNorm() if logarithmic else Normalize(), cmap=colormaps["viridis"], rasterized=True,
    )  # fmt: skip
    others = [("NaN or Inf", _BAD, found.non_finite)]
    if logarithmic:
        # There is no place for it among logarithms.
        others.append(("0", _ZERO, found.values == 0))
    for name, color, where in others:
        if where.any():
            cells = np.ma.masked_equal(where.astype(float), 0)
            axes.pcolormesh(edges, between, cells, cmap=ListedColormap([color]), rasterized=True)
            axes.plot([], [], "s", color=color, label=name)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", loc="upper left", framealpha=0.8)
    # As a network is read: what is computed first is on top.
    axes.set_ylim(rows - 0.5, -0.5)
    places = spread(rows, 9 if rows > _MOST_ROW_NAMES else rows)
    axes.set_yticks(
        places, labels([found.tensors[place] for place in places], 36), fontsize="small"
    )
    bar = axes.figure.colorbar(mesh, ax=axes)
    bar.set_label(reduction or "value")
    shared = (
        f"; the largest of up to {found.steps_per_column} steps each"
        if found.steps_per_column > 1
        else ""
    )
    count = "1 tensor" if rows == 1 else f"{rows:,} tensors"
    return finish(axes, f"{count} of {label(trial.name)}{shared}", mode)


def _edges(steps: Ints) -> Floats:
    """Where the cells of steps begin and end: half-way between them."""
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middles = (steps[1:] + steps[:-1]) / 2
    first, last = steps[0] - (middles[0] - steps[0]), steps[-1] + (steps[-1] - middles[-1])
    return np.concatenate([[first], middles, [last]])
