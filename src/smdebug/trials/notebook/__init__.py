"""What notebooks show of trials, tensors and frames."""
