"""Destinations of a step besides the run: TensorBoard files, SageMaker metrics."""
