"""Observing: the original trains for a few steps, and what its losses are over the rows of a batch, a mean or a sum, is seen.

`observe` runs it as it is, and with batches in which every row is there twice. `document` compares the two and makes the
facts file that `migrate` reads. Nothing is written outside of the runs' scratch folders, and nothing leaves the machine.
"""
