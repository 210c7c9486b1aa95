"""Hooks on scripts that know nothing of them."""
