"""`smdebug.tensorflow` under the older name."""

from smdebug.tensorflow import *  # noqa: F403
from smdebug.tensorflow import EstimatorHook, SessionHook
from smdebug.tensorflow import __all__ as _names

# What the hook of a session was called.
TornasoleHook = SessionHook
TornasoleEstimatorHook = EstimatorHook

__all__ = [*_names, "TornasoleEstimatorHook", "TornasoleHook"]
