"""What a run tells about a training job; knows nothing of the job but its run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.trials.create import create_trial
from smdebug.trials.grid import spread

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials.trial import Trial

# An update that small is lost when it is added to a weight in float32.
VANISHED = 1e-7

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Findings:
    """What was found in one run.

    Attributes:
        network: its name.
        trial: the run.
        losses: the loss at every step of training.
        accuracy: of the last evaluation.
        steps: the steps at which gradients were saved.
        norms: L2 norms of the gradients of the layers' weights, one row a layer, one column a step.
        moved: how far the weights of each layer have come, relative to their size.
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

    def course(self, points: int) -> Array:
        """The losses as some points of their course: each is the mean of the steps around it."""
        parts = np.array_split(self.losses, min(points, len(self.losses)))
        return np.array([part.mean() for part in parts])

    def vanished(self) -> list[int]:
        """The layers, counted from 1, whose gradient is gone for good."""
        later = self.norms[:, len(self.steps) // 2 :]
        return [int(layer) + 1 for layer in np.flatnonzero((later < VANISHED).all(axis=1))]

    def vanished_since(self) -> int:
        """The step from which on the gradients of all those layers are gone."""
        gone = (self.norms[[layer - 1 for layer in self.vanished()]] < VANISHED).all(axis=0)
        alive = np.flatnonzero(~gone)
        return int(self.steps[alive[-1] + 1 if len(alive) else 0])

    def some_steps(self, count: int) -> list[int]:
        """Places of a few steps, the first and the last among them."""
        return spread(len(self.steps), count)


def look(network: str, directory: Path) -> Findings:
    """Reads a run."""
    trial = create_trial(str(directory))
    names = trial.tensor_names(regex=r"^gradient/.*layer\d+\.weight$")
    names.sort(key=lambda name: int(re.findall(r"layer(\d+)", name)[0]))
    (loss,) = trial.tensor_names(collection="losses", mode=ModeKeys.TRAIN)
    _, losses = trial.tensor(loss).series(mode=ModeKeys.TRAIN)
    _, accuracy = trial.tensor("scalar/accuracy").series(mode=ModeKeys.EVAL)
    series = [trial.tensor(name).series("l2", mode=ModeKeys.TRAIN) for name in names]
    return Findings(
        network=network,
        trial=trial,
        losses=losses,
        accuracy=float(accuracy[-1]),
        steps=series[0][0],
        norms=np.stack([norms for _, norms in series]),
        moved=np.array([moved(trial, name.removeprefix("gradient/")) for name in names]),
    )


def moved(trial: Trial, weight: str) -> float:
    """The distance between the first and the last saved value, relative to the first."""
    tensor = trial.tensor(weight)
    first, *_, last = tensor.values(mode=ModeKeys.TRAIN).values()
    return float(np.linalg.norm(last - first) / np.linalg.norm(first))


def conclusion(found: Findings) -> str:
    """What there is to say about a run, in a sentence or two."""
    first, last = float(found.losses[0]), float(found.losses[-20:].mean())
    falls = last < 0.8 * first
    course = f"falls from {first:.2f} to {last:.2f}" if falls else f"stays at {last:.2f}"
    outcome = f"Its loss {course}; it gets {found.accuracy:.0%} of new points right."
    gone = found.vanished()
    if not gone:
        layer, place = np.unravel_index(found.norms.argmin(), found.norms.shape)
        return (
            f"no gradient vanishes; the smallest is {found.norms[layer, place]:.0e}, of layer "
            f"{layer + 1} at step {found.steps[place]}. {outcome}"
        )
    distance = max(found.moved[layer - 1] for layer in gone)
    moved = f"have moved by {distance:.0e} of their size" if distance else "have not moved at all"
    return (
        f"the gradients of layers {spans(gone)} of {found.layers} are below {VANISHED:.0e} from "
        f"step {found.vanished_since()} on; the weights there {moved}. {outcome}"
    )


def headline(all_found: list[Findings]) -> str:
    """The shortest that can be said about some runs."""
    parts = []
    for found in all_found:
        gone = found.vanished()
        what = f"the gradients of layers {spans(gone)} vanish" if gone else "no gradient vanishes"
        parts.append(f"{found.network}: {what}")
    return "; ".join(parts)


def spans(numbers: list[int]) -> str:
    """Ascending numbers, those in a row as a span.

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
