"""The log of the library, through Python's `logging`.

Handlers are the program's. Those here are installed only if one of the variables `SMDEBUG_LOG_...`
is set, or in a SageMaker job, whose log is its output.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from smdebug.config import environment
from smdebug.markup import harmless

if TYPE_CHECKING:
    from collections.abc import Hashable

LOGGER_NAME = "smdebug"
_PARTS = ("", ".config", ".hook", ".instrument", ".rules", ".storage", ".trials")

_FORMAT = "[%(asctime)s.%(msecs)03d %(context)s %(levelname)s %(filename)s:%(lineno)d] %(message)s"
_OFF = logging.CRITICAL + 1
_SHOWN_TIMES = 3
_MOST_MESSAGES = 1000


class DuplicateLogFilter(logging.Filter):
    """Lets the same message of the same logger through three times.

    Example:
        >>> record = logging.makeLogRecord({"msg": "again"})
        >>> repeated = DuplicateLogFilter()
        >>> [repeated.filter(record) for _ in range(4)]
        [True, True, True, False]
    """

    def __init__(self) -> None:
        super().__init__()
        # Bounded, so that a job of weeks needs no more memory.
        self._times: OrderedDict[tuple[str, int, str], int] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message is shown."""
        # With its arguments: a message about another step or tensor is another one.
        key = record.name, record.levelno, record.getMessage()
        times = self._times.pop(key, 0) + 1
        self._times[key] = times
        if len(self._times) > _MOST_MESSAGES:
            self._times.popitem(last=False)
        return times <= _SHOWN_TIMES


class WarnOnce:
    """Logs warnings, each of them once.

    Args:
        logger: where they are logged.

    Example:
        >>> warnings = WarnOnce(logging.getLogger("smdebug.hook"))
        >>> warnings.warning("loss", "Not saving %s: it has no data", "loss")
        True
        >>> warnings.warning("loss", "Not saving %s: it has no data", "loss")
        False
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._keys: set[Hashable] = set()

    def warning(self, key: Hashable, message: str, *args: object, **options: Any) -> bool:
        """Log a warning unless one with this key was logged.

        Args:
            key: identifies the warning, such as the name of a tensor or the message itself.
            message: as in `logging`, followed by its arguments.
            options: keyword arguments of `logging`, such as `exc_info`.

        Returns:
            Whether it was logged.
        """
        if key in self._keys:
            return False
        self._keys.add(key)
        self._logger.warning(message, *args, stacklevel=2, **options)
        return True

    def clear(self) -> None:
        """Clear the record of what was logged, so that it is logged again."""
        self._keys.clear()


class HarmlessFilter(logging.Filter):
    """Escapes control characters in messages, which have the names of tensors and files.

    Example:
        >>> record = logging.makeLogRecord({"msg": "tensor %s", "args": ("loss\\x1b[2J",)})
        >>> HarmlessFilter().filter(record), record.getMessage()
        (True, 'tensor loss\\\\x1b[2J')
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape a message, and let it through."""
        if isinstance(record.args, tuple) and any(map(_is_risky, record.args)):
            record.args = tuple(
                harmless(each) if isinstance(each, str) else each for each in record.args
            )
        message = record.getMessage()
        if _lines(message) != message:
            record.msg, record.args = _lines(message), ()
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = _lines(text) if _lines(text) != text else None
        return True


def _is_risky(value: object) -> bool:
    return isinstance(value, str) and not value.isprintable()


def _lines(text: str) -> str:
    return "\n".join(harmless(line) for line in text.split("\n"))


def make_harmless() -> None:
    """Escape control characters in all messages of the library, whichever handler shows them."""
    # On each logger: a filter does not see the messages of child loggers.
    for part in _PARTS:
        logger = logging.getLogger(f"{LOGGER_NAME}{part}")
        if not any(isinstance(each, HarmlessFilter) for each in logger.filters):
            logger.addFilter(HarmlessFilter())


class _Formatter(logging.Formatter):
    """Adds the context to each line, computed each time because a process may be forked."""

    def format(self, record: logging.LogRecord) -> str:
        vars(record)["context"] = environment.log_context()
        return super().format(record)


class _BelowErrors(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno < logging.ERROR


def install_log() -> None:
    """Install handlers on the library's logger, once, if the environment requests them.

    Raises:
        SMDebugValueError: a variable has an invalid value.
    """
    logger = logging.getLogger(LOGGER_NAME)
    installed = any(isinstance(each.formatter, _Formatter) for each in logger.handlers)
    if installed or not environment.wants_log():
        return
    level = environment.log_level()
    for handler in _stream_handlers():
        _add(logger, handler)
    logger.setLevel(_OFF if level == "off" else level.upper())
    # A program with handlers of its own would show everything twice.
    logger.propagate = False
    path = environment.log_path()
    if path is not None:
        try:
            _add(logger, logging.FileHandler(path, encoding="utf-8"))
        except OSError as error:
            logger.warning("Cannot write to SMDEBUG_LOG_PATH: %s", error)


def _stream_handlers() -> list[logging.Handler]:
    out = logging.StreamHandler(sys.stdout)
    if environment.log_all_to_stdout():
        return [out]
    out.addFilter(_BelowErrors())
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(logging.ERROR)
    return [out, errors]


def _add(logger: logging.Logger, handler: logging.Handler) -> None:
    handler.setFormatter(_Formatter(_FORMAT, datefmt="%Y-%m-%d %H:%M:%S"))
    # On the handlers: a logger's filter does not see the messages of child loggers.
    handler.addFilter(DuplicateLogFilter())
    logger.addHandler(handler)
