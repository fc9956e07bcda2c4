"""The backend for TPUs and other devices that XLA supports. Importing this package imports neither torch nor torch_xla.

In and out: as for `crosstrain.comm`, the only room that imports this one.

- `backend`: the `Comm`. `api`: torch_xla itself.
- `chips`: whether there is a TPU, and whether this run uses XLA.
- `move`: moves modules to the device and keeps weight ties and optimizers. `place`: spreads batches over the devices.
- `watch`: counts and explains compilations, reads and CPU fallbacks (for users: `crosstrain.xla_report`).
"""
