"""The built-in rules, one in each module."""
