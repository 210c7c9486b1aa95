"""Format v1: the files that smdebug 1.0 reads and writes."""
