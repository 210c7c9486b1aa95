"""`smdebug.pytorch.hook` under the older name."""

from smdebug.pytorch.hook import Hook, TornasoleHook

__all__ = ["Hook", "TornasoleHook"]
