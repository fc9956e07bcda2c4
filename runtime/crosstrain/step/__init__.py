"""The training step: what happens between a batch and the next weights.

In: models, optimizers and schedulers of the script, a `Comm`, the accumulation window. Out: the same objects, which
compute in the run's precision, average gradients over the ranks, and step when a window ends.

- `model`: preparing one. `gradients`, `buckets`, `fsdp`, `wrapped_ddp`: who averages its gradients.
- `window`, `accumulation`, `clipping`, `uneven_inputs`: when gradients stay local, are clipped, and step.
- `optimizer`, `scheduler`, `precision`: the objects that follow. `closed_form`: schedulers that need not be stepped
  one by one. `dynamic_subclass`: how an object changes in place.
- `loss_reduction`, `replica_consistency`, `unprepared`, `prepare_checks`: mistakes that would train wrongly without a
  word. `announcement`: the line that says what is trained.

Imports `comm`, `data`, `utils` and the state. Imported by `checkpoint` and the Accelerator.
"""
