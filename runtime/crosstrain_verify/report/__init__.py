"""The result for the caller: a verdict for each run, the first difference, and the loss curves.

In: the verdicts of `judging`. Out: a `Report`, its JSON, and an SVG figure. Imports `records`; every room but `emulation`
and `tracing` may import it.
"""
