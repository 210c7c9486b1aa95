"""The pipeline between a framework and a run; knows no framework."""
