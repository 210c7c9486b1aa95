"""Helpers for analysing trials, under the import path of smdebug 1.0."""
