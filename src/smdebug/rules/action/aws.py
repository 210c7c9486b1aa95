"""Clients of AWS, where boto3 is installed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
from typing import Any

from smdebug.config import environment

logger = logging.getLogger("smdebug.rules")

_CONNECT_SECONDS = 5
_READ_SECONDS = 10
_ATTEMPTS = 2


def available() -> bool:
    """Tells whether boto3 is installed, without importing it; says so once when it is not."""
    if importlib.util.find_spec("boto3") is not None:
        return True
    _say_it_is_missing()
    return False


def client(service: str) -> Any:
    """Returns a client of a service; None when boto3 is not installed.

    A new one each time: a client that is kept would share its connections with forked processes,
    and those of boto3's default session are not for several threads.
    """
    if not available():
        return None
    import boto3

    config = importlib.import_module("botocore.config").Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
    )
    session = boto3.session.Session()
    return session.client(service, region_name=environment.aws_region(), config=config)


@functools.cache
def _say_it_is_missing() -> None:
    logger.warning(
        "the actions stoptraining, email and sms do nothing, because boto3 is not installed; "
        "pip install 'tornasole[sagemaker]'"
    )
