"""Marks on a plot: steps that are not finite, and what rules found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.trials.plot.labels import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.trials.curves import Curve
    from smdebug.trials.trial import Trial

_BAD = "#d62728"
# How high above the axis they stand, as a share of the plot.
_LOW = 0.02
_COLORS = ("#b5179e", "#e36414", "#3a5a40", "#7f5539", "#5f0f40")
# So many rules are told apart by name, and so many steps are marked of each.
_MOST_RULES = 5
_MOST_MARKS = 60
# More are not told apart, and are slow to draw.
_MOST_BAD = 1000


def mark_bad_steps(axes: Any, curves: Sequence[Curve]) -> None:
    """Marks on the horizontal axis the steps at which a curve is NaN or infinite."""
    kinds = (("NaN", "x", np.isnan), ("Inf", "^", np.isinf))
    for name, marker, is_bad in kinds:
        found = [one.steps[is_bad(one.values)] for one in curves]
        steps = np.unique(np.concatenate(found)) if found else np.zeros(0)
        if len(steps) > _MOST_BAD:
            steps = steps[np.linspace(0, len(steps) - 1, _MOST_BAD).astype(int)]
        if len(steps):
            axes.plot(
                steps, np.full(len(steps), _LOW), marker, color=_BAD, markersize=5, zorder=5,
                transform=axes.get_xaxis_transform(), label=name,
            )  # fmt: skip


def mark_findings(axes: Any, trial: Trial, names: set[str] | None, mode: ModeKeys) -> None:
    """Draws a line at every step at which a rule found something.

    Args:
        axes: where the curves are.
        trial: the trial.
        names: only findings about these tensors; None for all.
        mode: the numbering of the steps; findings of other modes are left out.
    """
    steps: dict[str, list[int]] = {}
    for finding in trial.findings():
        if names is not None and finding.tensor not in names:
            continue
        at = finding.step if mode is ModeKeys.GLOBAL else finding.mode_step
        if at is not None and mode in (ModeKeys.GLOBAL, finding.mode):
            known = steps.setdefault(finding.rule, [])
            if at not in known and len(known) < _MOST_MARKS:
                known.append(at)
    for place, (rule, found) in enumerate(steps.items()):
        first = f"{label(rule)}, step {found[0]:,}" + (" and later" if len(found) > 1 else "")
        shown = place < _MOST_RULES
        for number, at in enumerate(found):
            axes.axvline(
                at, color=_COLORS[place % len(_COLORS)], linestyle=(0, (4, 3)), linewidth=1.2,
                zorder=1.5, label=first if shown and not number else "_",
            )  # fmt: skip
