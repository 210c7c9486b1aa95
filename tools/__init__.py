"""Programs of the project that are no part of what is installed."""
