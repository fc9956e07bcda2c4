"""Files: saving a training and continuing it exactly, and a model's weights.

In: what the Accelerator has prepared. Out: directories that are complete or not there, and the weights and states in
them.

- `save_state`, `load_state`: the whole training (`training`: what that is; `members`: the Accelerator's part).
- `manifests`, `checksums`: checkpoint directories and their lists of files.
- `weights`: one file, or shards with an index. `merge_weights`: `crosstrain merge-weights`.
- `sharded`, `sharded_reader`: models that are spread over the processes.
- `state_files`: random streams and plain states, read without running code that they name.

Imports `step`, `comm`, `utils` and the state. Imported by the Accelerator and the command line.
"""
