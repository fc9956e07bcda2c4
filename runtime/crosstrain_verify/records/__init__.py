"""The files that a run leaves behind: one folder for each rank, written inside the run and read outside, without torch.

In: what the hooks of `tracing` record. Out: the same, as `judging` reads it. Imports nothing else of this package; every
room may import it.
"""
