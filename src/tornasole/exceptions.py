"""`smdebug.exceptions` under the older name."""

from smdebug.exceptions import *  # noqa: F403 - every exception, by definition
