"""Observing: the original trains for a few steps, and what each place of its source stood for is written down.

`observe` runs it four times: as it is, with permuted batches, with doubled ones, and with ones of which half the rows are
others; `tensors` compares what they saw; `document` makes the facts file of it, which `migrate` reads. Nothing outside of the runs' scratch folders is written,
and nothing leaves the machine.
"""
