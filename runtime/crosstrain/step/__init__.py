"""The training step: everything between a batch and the next weights.

In: models, optimizers and schedulers of the script, a `Comm`, the accumulation window. Out: the same objects, which
compute in the run's precision, average gradients over the ranks, and step when a window ends.

- `prepared`: the list of prepared objects. `model`: preparing a model. `model_sync`: what averages its gradients, in three
  kinds: `gradients` with `buckets`, `fsdp` with `fsdp_weights`, `wrapped_ddp`. `sharding`: the sharding options.
  `compilation`: torch.compile.
- `window`, `accumulation`, `clipping`, `uneven_inputs`: when gradients stay local, are clipped, and the optimizer steps.
- `optimizer`, `scheduler`, `precision`: preparing the other objects. `closed_form`: schedulers that can make several
  steps at once. `dynamic_subclass`: changing one object's methods in place.
- `batch_rows`: reductions that go by the rows of the batch.
- `loss_reduction`, `replica_consistency`, `unprepared`: checks for mistakes that would otherwise
  train wrongly without an error. `announcement`: the line that says how the run trains. `profiling`: `Accelerator.profile`.

Imports `comm`, `data`, `utils` and the state. Imported by `checkpoint` and the Accelerator.
"""
