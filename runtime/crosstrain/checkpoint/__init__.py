"""Saving a training and continuing it exactly; saving and loading a model's weights.

In: what the Accelerator has prepared. Out: checkpoint directories, which are complete or do not exist.

- `save_state`, `load_state`: the whole training. `training` says what belongs to it; `members` has the Accelerator's
  methods.
- `contents`, `host_copies`, `background`: the files of a checkpoint, and writing them while the training goes on.
- `manifests`, `checksums`: checkpoint directories and their lists of files.
- `weights`: one file, or shards with an index. `merge_weights`: `crosstrain merge-weights`.
- `sharded`, `sharded_reader`: models that are sharded over the processes.
- `state_files`: random streams and other states, read without running code that the files name.

Imports `step`, `comm`, `utils` and the state. Imported by the Accelerator and the command line.
"""
