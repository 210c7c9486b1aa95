"""The steps that were to be saved and are not in the run, because saving has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# How many ranges a message shows; and how many are kept, of steps without any pattern.
_MAX_SHOWN, _MAX_KEPT = 20, 10_000


class LostSteps:
    """Step numbers, kept as ranges: a job may run for days after saving has stopped.

    Args:
        steps: the first ones.

    Attributes:
        count: how many there are.

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
        """Add a step, unless it is the one that was added last."""
        if step != self._last:
            self.count += 1
            self._last = step
            if len(self._ranges) < _MAX_KEPT:
                self._append(range(step, step + 1))

    def union(self, steps: Iterable[int]) -> LostSteps:
        """Return these steps and others, each once."""
        others = LostSteps(step for step in steps if not any(step in own for own in self._ranges))
        union = LostSteps()
        union.count = self.count + others.count
        union._last = max(self._last, others._last)
        for each in sorted([*self._ranges, *others._ranges], key=lambda own: own[0]):
            union._append(each)
        return union

    def _append(self, steps: range) -> None:
        """Add a range, as a part of the last one where it continues it."""
        last = self._ranges.pop() if self._ranges else range(0)
        stride = steps[0] - last[-1] if last else 0
        if len(last) == 2 and stride != last.step:
            # Two steps are not a pattern yet; the second may be the first of one.
            self._ranges.append(last[:1])
            last = last[1:]
        if stride > 0 and all(len(each) == 1 or each.step == stride for each in (last, steps)):
            self._ranges.append(range(last[0], steps[-1] + 1, stride))
        else:
            self._ranges += [last, steps] if last else [steps]

    def __iter__(self) -> Iterator[int]:
        for each in self._ranges:
            yield from each

    def __str__(self) -> str:
        if not self.count:
            return "no step"
        parts = [f"{self.count} step{'s'[: self.count != 1]}"]
        for each in self._ranges[:_MAX_SHOWN]:
            if len(each) < 3 and each != range(each[0], each[0] + 2):
                parts += map(str, each)
            else:
                by = f" by {each.step}" if each.step > 1 else ""
                parts.append(f"{each[0]} to {each[-1]}{by}")
        if len(self._ranges) > _MAX_SHOWN:
            parts.append(f"and more up to {self._last}")
        return ", ".join(parts)
