"""One thing to do about a finding."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from smdebug.rules.action.failure import reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.findings import Finding

logger = logging.getLogger("smdebug.rules")

# A rule may fire at every step; a person reads one message a minute.
DEFAULT_MIN_INTERVAL = 60.0


class Action(ABC):
    """Does one thing about findings. It may take its time; what fails is logged, never raised.

    Args:
        rule_name: the rule whose findings it gets.
        min_interval: the least time between two uses, in seconds.
    """

    # Whether `prepare` has something to do.
    prepares: ClassVar[bool] = False

    def __init__(self, rule_name: str, min_interval: float = DEFAULT_MIN_INTERVAL) -> None:
        self.rule_name = rule_name
        self.min_interval = min_interval

    @property
    @abstractmethod
    def target(self) -> str:
        """What it acts on, in words that hold no secret."""

    @property
    def settled(self) -> bool:
        """Whether there is nothing more to do, whatever is found."""
        return False

    def prepare(self) -> None:
        """Does what should be done before anything is found."""
        self._guarded(self._prepare)

    def invoke(self, finding: Finding, left_out: int = 0) -> None:
        """Acts.

        Args:
            finding: what was found.
            left_out: how many findings since the last use are not told one by one.
        """
        self._guarded(lambda: self._act(finding, left_out))

    @abstractmethod
    def _act(self, finding: Finding, left_out: int) -> None:
        """Acts; may raise."""

    def _prepare(self) -> None:
        """Prepares; may raise."""
        return

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            logger.warning("rule %s: %r failed: %s", self.rule_name, self, reason(error))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target})"


def told_with(text: str, left_out: int) -> str:
    """Adds to a text how many findings it stands for.

    Example:
        >>> told_with("loss is NaN", 3)
        'loss is NaN (and 3 more findings since the last message)'
    """
    if not left_out:
        return text
    return f"{text} (and {left_out} more finding{'s'[: left_out > 1]} since the last message)"
