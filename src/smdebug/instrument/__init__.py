"""Zero-code instrumentation: hooks for scripts that create none."""
