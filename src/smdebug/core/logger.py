"""The library's logger under the path of smdebug 1.0."""

from __future__ import annotations

import logging

from smdebug.config.log import LOGGER_NAME, DuplicateLogFilter, install_log

__all__ = ["DuplicateLogFilter", "get_logger"]


def get_logger(name: str = LOGGER_NAME) -> logging.Logger:
    """Return the library's logger, or another one.

    Handlers are installed on the library's where the environment asks for them.

    Example:
        >>> get_logger().name
        'smdebug'
    """
    install_log()
    return logging.getLogger(name)
