"""Prepared data loaders: sharded, dispatched, skipped and resumed exactly.

In: a script's DataLoader, the Accelerator's options for loaders (`options`), a `Comm`. Out: the same loader with this
rank's batches on the device (`prepare`), the loaders that are being iterated (`active_loaders`), and what their batches
gave, gathered once per sample (`metrics`).

- `sharding`: who gets which rows of a step, without torch. `samplers`, `order_rng`, `worker_seeds`: this rank's index
  batches, drawn from the script's own sampler and generators.
- `batch_sources`, `dispatch`, `serialization`, `rows`: where the batches come from.
- `presharded`, `self_sharded`, `fingerprint`: what the script shards itself, and what must not differ by process.
- `loader`, `unprepared_loops`, `pass_rows`: the loader, and how far its loops are.
- `metrics`, `metric_rows`, `merging`: `gather_for_metrics`.

Imports `comm` and `utils`. Imported by `step`, `checkpoint`, the state and the Accelerator.
"""
