"""Processes, devices and the collectives between them: nothing outside this room asks what kind of device there is.

In: the launcher's variables (`crosstrain.config`), the script's tensors and objects. Out: a `Comm` (`protocol`), which
`start` chooses for this machine.

- `torch_backend`, `xla`: the two implementations. `process_group`: torch's group, started or joined.
- `frames`, `outbox`, `hang_report`: small messages, messages that nobody waits for, and where every rank is when one
  has waited too long. `host_links`: connections inside one host. `write_once`: a file that one process writes and all may read.
- `collectives`: gathering and broadcasting of nested tensors. `double_reduction`: tensors that are global already.
- `devices`, `visible_devices`, `device_mesh`, `placement`: devices by their type, before and in a run.
- `random_streams`, `startup_seeds`: the processes' random streams.

Imports `utils` and the configuration. Every other room may import it. Importing the package imports no torch.
"""
