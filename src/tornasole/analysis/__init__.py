"""`smdebug.analysis` under the older name."""
