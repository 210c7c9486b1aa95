"""Comparison of runs, tensor by tensor."""
