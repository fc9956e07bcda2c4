"""Processes, devices and the collectives between them. No other room asks what kind of device there is.

In: the launcher's variables (`crosstrain.config`), the script's tensors and objects. Out: a `Comm` (`protocol`).

- `torch_backend`, `xla`: the two implementations. `process_group`: starts or joins torch's process group.
- `frames`: small messages. `outbox`: messages that the sender does not wait for. `notices`: texts that ranks leave for each
  other. `host_links`: connections inside one host. `write_once`: a file that one process writes and all may read.
- `hang_report`, `pending`: where every rank is when one of them has waited too long.
- `collectives`: collectives on nested and on many tensors. `double_reduction`: finds tensors that are reduced twice.
  `device_limits`: what a device's collectives cannot carry. `side_group`: a process group for threads.
- `devices`, `visible_devices`, `device_mesh`, `placement`: devices by their type, before and in a run.
- `random_streams`, `startup_seeds`: the processes' random streams.

Imports `utils` and the configuration. Every other room may import it. Importing the package does not import torch.
"""
