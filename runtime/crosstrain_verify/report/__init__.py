"""What the caller gets: a verdict for each number of processes, the first difference, and the loss curves.

In: the verdicts of `judging`. Out: `Report`, its JSON, an SVG figure. Imports `records`; every room but `emulation` and
`tracing` may import it.
"""
