"""Stores, file formats, writers and readers of runs."""
