"""What a run leaves behind: one folder for each rank, written inside the run and read outside, without torch.

In: what the hooks in `tracing` see. Out: the same, read by `judging`. Imports nothing else of this package; every room
may import it.
"""
