"""`smdebug.pytorch` under the older name."""

from smdebug.pytorch import *  # noqa: F403
from smdebug.pytorch import __all__ as __all__
