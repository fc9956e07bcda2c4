"""Observing: the original trains for a few steps, and the values of its source's expressions are recorded.

`observe` runs it four times: as it is, with permuted batches, with doubled batches, and with batches in which copies of the
first half of the rows replace the second. `tensors` compares what these runs recorded, and `document` makes the facts file
that `migrate` reads. Nothing is written outside of the runs' scratch folders, and nothing leaves the machine.
"""
