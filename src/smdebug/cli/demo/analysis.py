"""Read the runs of the demo back and draw a conclusion."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.trials.create import create_trial
from smdebug.trials.plot.heatmap import spread

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials.trial import Trial

# In float32 an update this small does not change a weight.
VANISHED = 1e-7

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class NetworkRun:
    """The losses and gradients of one run.

    Attributes:
        network: its name.
        trial: the run.
        losses: the loss at every step of training.
        accuracy: at the last evaluation.
        steps: the steps at which gradients were saved.
        norms: L2 norms of the weight gradients, layers by steps.
        moved: the distance between first and last weights of each layer, relative to the first.
    """

    network: str
    trial: Trial
    losses: Array
    accuracy: float
    steps: Array
    norms: Array
    moved: Array

    @property
    def layers(self) -> int:
        return len(self.norms)

    def smoothed_losses(self, points: int) -> Array:
        """Return the loss curve with fewer points: each is the mean of the steps around it."""
        parts = np.array_split(self.losses, min(points, len(self.losses)))
        return np.array([part.mean() for part in parts])

    def vanished(self) -> list[int]:
        """Return the layers, counted from 1, whose gradient stays below the threshold."""
        later = self.norms[:, len(self.steps) // 2 :]
        return [int(layer) + 1 for layer in np.flatnonzero((later < VANISHED).all(axis=1))]

    def vanished_since(self) -> int:
        """Return the step from which the gradients of all those layers have vanished."""
        gone = (self.norms[[layer - 1 for layer in self.vanished()]] < VANISHED).all(axis=0)
        alive = np.flatnonzero(~gone)
        return int(self.steps[alive[-1] + 1 if len(alive) else 0])

    def some_steps(self, count: int) -> list[int]:
        """Return indices of a few steps, including the first and the last."""
        return spread(len(self.steps), count)


def analyze_run(network: str, directory: Path) -> NetworkRun:
    """Read a run."""
    trial = create_trial(str(directory))
    names = trial.tensor_names(regex=r"^gradient/.*layer\d+\.weight$")
    names.sort(key=lambda name: int(re.findall(r"layer(\d+)", name)[0]))
    (loss,) = trial.tensor_names(collection="losses", mode=ModeKeys.TRAIN)
    _, losses = trial.tensor(loss).series(mode=ModeKeys.TRAIN)
    _, accuracy = trial.tensor("scalar/accuracy").series(mode=ModeKeys.EVAL)
    series = [trial.tensor(name).series("l2", mode=ModeKeys.TRAIN) for name in names]
    return NetworkRun(
        network=network,
        trial=trial,
        losses=losses,
        accuracy=float(accuracy[-1]),
        steps=series[0][0],
        norms=np.stack([norms for _, norms in series]),
        moved=np.array([moved(trial, name.removeprefix("gradient/")) for name in names]),
    )


def moved(trial: Trial, weight: str) -> float:
    """Return the distance between the first and the last saved value, relative to the first."""
    tensor = trial.tensor(weight)
    first, *_, last = tensor.values(mode=ModeKeys.TRAIN).values()
    return float(np.linalg.norm(last - first) / np.linalg.norm(first))


def conclusion(run: NetworkRun) -> str:
    """Return a conclusion about a run, in a sentence or two."""
    first, last = float(run.losses[0]), float(run.losses[-20:].mean())
    falls = last < 0.8 * first
    trend = f"falls from {first:.2f} to {last:.2f}" if falls else f"stays at {last:.2f}"
    outcome = f"Its loss {trend}; its accuracy on new points is {run.accuracy:.0%}."
    gone = run.vanished()
    if not gone:
        layer, index = np.unravel_index(run.norms.argmin(), run.norms.shape)
        return (
            f"no gradient vanishes; the smallest is {run.norms[layer, index]:.0e}, of layer "
            f"{layer + 1} at step {run.steps[index]}. {outcome}"
        )
    distance = max(run.moved[layer - 1] for layer in gone)
    moved = f"have moved by {distance:.0e} of their size" if distance else "have not moved at all"
    return (
        f"the gradients of layers {spans(gone)} of {run.layers} are below {VANISHED:.0e} from "
        f"step {run.vanished_since()} on; the weights there {moved}. {outcome}"
    )


def headline(runs: list[NetworkRun]) -> str:
    """Return the title of the figure."""
    parts = []
    for run in runs:
        gone = run.vanished()
        what = f"the gradients of layers {spans(gone)} vanish" if gone else "no gradient vanishes"
        parts.append(f"{run.network}: {what}")
    return "; ".join(parts)


def spans(numbers: list[int]) -> str:
    """Format ascending numbers, consecutive ones as a range.

    Example:
        >>> spans([1, 2, 3, 7])
        '1-3, 7'
    """
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(f"{group[0]}-{group[-1]}" if group[1:] else f"{group[0]}" for group in groups)
