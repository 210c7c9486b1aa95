"""The hook for sessions; `smdebug.tensorflow.session` is an import path of smdebug 1.0."""

from smdebug.tensorflow.session.hook import SessionHook

EstimatorHook = SessionHook

__all__ = ["EstimatorHook", "SessionHook"]
