"""The commands of `smdebug`, one per module."""
