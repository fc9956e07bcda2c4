"""Hooks inside a run, which read values and never change them: steps, batches, weights, printed lines.

In: the calls that the script makes. Out: `records`. Imports `records` and `emulation`. Imported by `running`.
"""
