"""The pipeline between a framework and a run; it depends on no framework."""
