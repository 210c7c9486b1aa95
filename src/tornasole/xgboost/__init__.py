"""`smdebug.xgboost` under the older name."""

from smdebug.xgboost import *  # noqa: F403
from smdebug.xgboost import __all__ as __all__
