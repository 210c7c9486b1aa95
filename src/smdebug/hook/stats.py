"""Statistics of a hook: what it saved, and its overhead."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class CollectionStats:
    """What was saved of one collection.

    Attributes:
        tensors: the number of tensors, over all steps.
        bytes: their size before compression.
    """

    tensors: int = 0
    bytes: int = 0


@dataclass
class HookStats:
    """What a hook saved, and its overhead in the training thread.

    Attributes:
        steps: the number of steps of this process.
        saved_steps: the number of steps at which something was saved.
        lost_steps: the number of steps of which something is not in the run, because saving has
            failed.
        seconds: the time that the training thread spent in the hook, waiting included.
        seconds_waited: the part of it that was spent waiting for the writer.
        bytes: the number of bytes published so far.
        segments: the number of publications.
        collections: what was saved, by collection. A tensor in two collections counts in both.

    Example:
        >>> print(HookStats(steps=100, saved_steps=10, seconds=0.02, bytes=5_000_000))
        10 of 100 steps saved, 5.0 MB; 0.20 ms a step in the training thread, 0.0 s waited
    """

    steps: int = 0
    saved_steps: int = 0
    seconds: float = 0.0
    seconds_waited: float = 0.0
    bytes: int = 0
    segments: int = 0
    collections: dict[str, CollectionStats] = field(default_factory=dict)
    lost_steps: int = 0

    def __str__(self) -> str:
        each = 1e3 * self.seconds / max(self.steps, 1)
        lost = f" and {self.lost_steps} lost" if self.lost_steps else ""
        return (
            f"{self.saved_steps} of {self.steps} steps saved{lost}, {format_bytes(self.bytes)}; "
            f"{each:.2f} ms a step in the training thread, {self.seconds_waited:.1f} s waited"
        )


def format_bytes(count: int) -> str:
    """Return a number of bytes in a readable unit.

    Example:
        >>> format_bytes(12), format_bytes(34_500), format_bytes(7_800_000_000)
        ('12 B', '34.5 kB', '7.8 GB')
    """
    size, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
