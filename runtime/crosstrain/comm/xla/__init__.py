"""The backend for TPUs, and for whatever else XLA compiles for. Importing this package imports neither torch nor torch_xla.

In and out: as for `crosstrain.comm`, which alone imports this.

- `backend`: the `Comm`. `api`: torch_xla itself.
- `chips`: is there a TPU, and does this run want XLA.
- `move`: modules onto the device, ties and optimizers kept. `place`: batches, spread over the devices.
- `watch`: compilations, reads and CPU fallbacks, counted and explained (for users: `crosstrain.xla_report`).
"""
