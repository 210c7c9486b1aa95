"""`smdebug.mxnet.hook` under the older name."""

from smdebug.mxnet.hook import Hook, TornasoleHook

__all__ = ["Hook", "TornasoleHook"]
