"""Where the bytes of a run are kept: a directory, memory, an object store."""
