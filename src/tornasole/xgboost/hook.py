"""`smdebug.xgboost.hook` under the older name."""

from smdebug.xgboost.hook import Hook, TornasoleHook

__all__ = ["Hook", "TornasoleHook"]
