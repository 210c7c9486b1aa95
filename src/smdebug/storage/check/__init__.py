"""Checking a run: every checksum, every row of the index, every record."""

from smdebug.storage.check.run import check_run as check_run
