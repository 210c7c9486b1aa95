"""What to save, when and how: immutable values, without I/O."""
