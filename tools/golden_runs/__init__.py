"""Write the golden runs of `tests/golden`: small runs together with the truth about them.

A golden run is written once and committed, so that later releases are tested on files that they
did not write themselves. The truth is recorded by the training script from the arrays that it has
in hand, not read back from the run.
"""
