"""TensorBoard event files, written next to a run."""
