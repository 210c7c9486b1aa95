"""The steps that were to be saved and are not in the run, because saving has failed."""

from __future__ import annotations

import heapq
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
        last: the one that was added last; -1 without any.

    Example:
        >>> print(LostSteps([3, 4, 5, 8, 10, 20, 30, 40]))
        8 steps, 3 to 5, 8, 10 to 40 by 10
    """

    def __init__(self, steps: Iterable[int] = ()) -> None:
        self._ranges: list[range] = []
        self.last = -1
        self.count = 0
        for step in sorted(set(steps)):
            self.add(step)

    def add(self, step: int) -> None:
        """Add a step, unless it is the one that was added last."""
        if step != self.last:
            self.count += 1
            self.last = step
            if len(self._ranges) < _MAX_KEPT:
                self._extend_ranges(step)

    def union(self, steps: Iterable[int]) -> LostSteps:
        """Return these steps and others, each once."""
        others = sorted({step for step in steps if step not in self})
        union = LostSteps()
        for step in heapq.merge(*self._ranges, others):
            union.add(step)
        # Not all steps without a pattern are kept.
        union.count, union.last = self.count + len(others), max(self.last, union.last)
        return union

    def _extend_ranges(self, step: int) -> None:
        if self._ranges:
            last = self._ranges.pop()
            stride = step - last[-1]
            if len(last) == 2 and stride != last.step:
                # Two steps are not a pattern yet; the second may be the first of one.
                self._ranges.append(last[:1])
                last = last[1:]
            if stride > 0 and (len(last) == 1 or stride == last.step):
                self._ranges.append(range(last[0], step + 1, stride))
                return
            self._ranges.append(last)
        self._ranges.append(range(step, step + 1))

    def __contains__(self, step: int) -> bool:
        return any(step in own for own in self._ranges)

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
            parts.append(f"and more up to {self.last}")
        return ", ".join(parts)
