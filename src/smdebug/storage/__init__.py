"""Bytes, files and formats: the only place that knows how a run lies on a disk or in a bucket."""
