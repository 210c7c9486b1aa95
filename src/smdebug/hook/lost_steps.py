"""The steps that were to be saved and are not in the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# How many ranges a message names; and how many are kept, of steps without any regularity.
_SHOWN, _MOST = 20, 10_000


class LostSteps:
    """Numbers of steps, kept as ranges: a job may go on for days after saving has stopped.

    Args:
        steps: those that are known already.

    Example:
        >>> print(LostSteps([3, 4, 5, 8, 10, 20, 30, 40]))
        8 steps, 3 to 5, 8, 10 to 40 by 10
    """

    def __init__(self, steps: Iterable[int] = ()) -> None:
        self._ranges: list[range] = []
        self._last = -1
        self.count = 0
        for step in sorted(set(steps)):
            self.add(step)

    def add(self, step: int) -> None:
        """Adds a step, unless it is the one that was added last."""
        if step != self._last:
            self.count += 1
            self._last = step
            if len(self._ranges) < _MOST:
                self._append(range(step, step + 1))

    def joined_with(self, steps: Iterable[int]) -> LostSteps:
        """Returns these steps and others, each once."""
        others = LostSteps(step for step in steps if not any(step in own for own in self._ranges))
        joined = LostSteps()
        joined.count = self.count + others.count
        joined._last = max(self._last, others._last)
        for each in sorted([*self._ranges, *others._ranges], key=lambda own: own[0]):
            joined._append(each)
        return joined

    def _append(self, steps: range) -> None:
        """Adds a range, as a part of the last one if it goes on where that ends."""
        last = self._ranges.pop() if self._ranges else range(0)
        pace = steps[0] - last[-1] if last else 0
        if len(last) == 2 and pace != last.step:
            # Two are no rule; the second may be the first of one.
            self._ranges.append(last[:1])
            last = last[1:]
        if last and _goes_on(last, steps, pace):
            self._ranges.append(range(last[0], steps[-1] + 1, pace))
            return
        self._ranges += [last, steps] if last else [steps]

    def __iter__(self) -> Iterator[int]:
        for each in self._ranges:
            yield from each

    def __str__(self) -> str:
        shown = [part for each in self._ranges[:_SHOWN] for part in _shown(each)]
        if len(self._ranges) > _SHOWN:
            shown.append(f"and more up to {self._last}")
        return ", ".join([f"{self.count} step{'s'[: self.count != 1]}", *shown])


def _goes_on(last: range, steps: range, pace: int) -> bool:
    return pace > 0 and all(len(each) == 1 or each.step == pace for each in (last, steps))


def _shown(steps: range) -> list[str]:
    if len(steps) < 3 and not (len(steps) == 2 and steps.step == 1):
        return [str(step) for step in steps]
    by = f" by {steps.step}" if steps.step > 1 else ""
    return [f"{steps[0]} to {steps[-1]}{by}"]
