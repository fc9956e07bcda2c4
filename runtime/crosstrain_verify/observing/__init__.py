"""Observing: the original trains for a few steps, and what each place of its source stood for is written down.

`observe` runs it, three times: as it is, with permuted batches and with doubled ones; `tensors` compares what the three
saw; `document` makes the facts file of it, which `migrate` reads. Nothing outside of the runs' scratch folders is written,
and nothing leaves the machine.
"""
