"""`smdebug.tensorflow.keras` under the older name."""

from smdebug.tensorflow.keras import KerasHook, TornasoleKerasHook

__all__ = ["KerasHook", "TornasoleKerasHook"]
