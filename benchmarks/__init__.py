"""The figures of the performance table. `make bench` runs them all and prints one table.

Machines are noisy: every figure that compares is a ratio of runs that alternate within one
process or one pair of processes, and the median is reported with its spread.
"""
