"""The run that a hook writes: where it is, what an earlier job left there, what is saved."""
