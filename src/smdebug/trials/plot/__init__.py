"""Plots of a trial with matplotlib."""
