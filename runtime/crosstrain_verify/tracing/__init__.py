"""Hooks inside a run, which read and never change a value: steps, batches, weights, printed lines.

In: the script's own calls. Out: `records`. Imports `records` and `emulation`. Imported by `running`.
"""
