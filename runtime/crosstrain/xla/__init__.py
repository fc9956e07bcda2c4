"""The rooms of the XLA backend (`crosstrain.comm_xla`). Importing this package imports neither torch nor torch_xla.

- `chips`: is there a TPU, and does this run want XLA.
- `move`: modules onto the device, ties and optimizers kept. `place`: batches, spread over the devices.
- `watch`: compilations, reads and CPU fallbacks, counted and explained; `report`: the same for users.
- `api`: torch_xla itself.
"""
