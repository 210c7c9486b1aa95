"""`smdebug.tensorflow.session` under the older name."""

from smdebug.tensorflow.session import EstimatorHook, SessionHook

__all__ = ["EstimatorHook", "SessionHook"]
