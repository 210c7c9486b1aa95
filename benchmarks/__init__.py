"""The figures of the performance table. `make bench` runs them all and writes
`docs/performance.md`.

Machines are noisy: every figure that compares is a ratio of runs that alternate within one
process or one pair of processes, and the median is reported with its spread.
"""
