"""What to do when a rule has found something."""

from smdebug.rules.action.action import Actions

__all__ = ["Actions"]
