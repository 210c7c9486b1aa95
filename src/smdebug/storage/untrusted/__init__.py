"""Validation of files of unknown origin before a library parses them."""
