"""Format v2: segments, a Parquet index, compaction."""
