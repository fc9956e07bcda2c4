"""Prepared data loaders, which are sharded, dispatched, skipped and resumed exactly.

In: a script's DataLoader, the Accelerator's options for loaders (`options`), a `Comm`. Out: a loader of this rank's
batches on the device (`prepare`), the loaders that are being iterated (`active_loaders`), and metrics gathered once per
sample (`metrics`).

- `sharding`: which rank gets which rows of a step, without torch. `samplers`, `order_rng`, `worker_seeds`: this rank's
  index batches, drawn from the script's own sampler and generators.
- `batch_sources`, `dispatch`, `serialization`, `rows`: where the batches come from.
- `presharded`, `self_sharded`, `fingerprint`: loaders that the script shards itself, and the check that all processes
  prepare the same loader.
- `draws`: where a process changes between the random streams that all share and its own.
- `dealt`, `first_items`: batches that come from no DataLoader, dealt whole.
- `evaluation`, `evaluation_loader`: evaluations, dealt by blocks of whole batches. `merge`, `accumulators`,
  `added_attributes`: what their loops have added up, made one.
- `loader`, `unprepared_loops`, `pass_rows`: the loader, and the progress of loops over it.
- `dataset_state`: the state of a data set, for a resumed pass.
- `metrics`, `metric_rows`, `merging`: `gather_for_metrics`.

Imports `comm` and `utils`. Imported by `step`, `checkpoint`, the state and the Accelerator.
"""
