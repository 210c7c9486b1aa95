"""Sources of tensors: what can be saved about a round of boosting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.xgboost.rounds import Round

# The location in XGBoost's source, and the failed condition when a sentence follows it.
_LOCATION = re.compile(r"^(?:\[[\d:]+\] \S+:\d+: )+(?:Check failed: .*? ?: (?=[A-Z]))?|[ :]+$")
# Lists of features may be long.
_MAX_LENGTH = 300

# The name of a tensor and its value; a float is saved with the shape (1,).
Named = tuple[str, "Array | float"]


class NotAvailable(Exception):
    """A source has no tensors; the message says why, and training continues.

    Args:
        message: the reason.
        permanent: whether it holds for the later rounds of this training run, too.
    """

    def __init__(self, message: str, permanent: bool = True) -> None:
        super().__init__(message)
        self.permanent = permanent


class Source(Protocol):
    """Tensors of one kind; they are computed only if they are saved.

    Attributes:
        what: what they are, for messages.
    """

    what: str

    def names(self, round: Round) -> Iterable[str]:
        """Return the names of the tensors that a round may have, without computing them."""

    def tensors(self, round: Round) -> Iterator[Named]:
        """Yield the tensors; nothing else writes to the arrays.

        Raises:
            NotAvailable: there are none.
        """


def error_message(error: Exception) -> str:
    """Return what an exception of XGBoost says, without locations in its source and stack traces.

    Example:
        >>> error_message(Exception("[06:39:14] /src/gbm.h:62: Not supported.\\nStack trace:"))
        'Not supported.'
    """
    first = (str(error).splitlines() or [type(error).__name__])[0]
    message = _LOCATION.sub("", first)
    return message if len(message) <= _MAX_LENGTH else f"{message[:_MAX_LENGTH]} ..."
