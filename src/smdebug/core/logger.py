"""The library's logger under the path of smdebug 1.0."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(name: str = "smdebug") -> logging.Logger:
    """Returns the library's logger, or one below it; no handler is installed."""
    return logging.getLogger(name)
