"""What to save, when and how: values that answer questions, without I/O."""
