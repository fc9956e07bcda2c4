"""Where the accelerator is made, and on which device and as which process code runs.

In: a script's roles. Out: edits. `accelerator` places `Accelerator()` (above what `first` names), `choice` and `options` follow
the author's flags, `numbered` the number of a GPU; `devices` and `ranks` replace what chooses a device or a rank, and `lost` says
what counts no more. `made_tensors`, `host_reads` and `cuda_alone` are for tensors beside the batches,
`loaded` for models that come out of a file. `conversion` calls them.
"""
