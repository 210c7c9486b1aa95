"""Detectors that several rules share."""
