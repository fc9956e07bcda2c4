"""Evaluations and numbers: which loops are dealt and merged, and what training shows and decides by.

In: a script's roles. Out: edits that may be left out one by one. `dealing` finds the evaluations and `accumulators` what they
leave behind, `merging` plans them; `training_numbers`, `shown`, and `deciding` with `made_alike`, are for
numbers of training, `shares` with `wholes` and `own_counts` for numbers of batches, `coins` for what a step draws.
"""
