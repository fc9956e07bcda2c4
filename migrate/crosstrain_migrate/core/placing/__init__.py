"""Where the accelerator is made, and on which device and as which process code runs.

In: a script's roles. Out: edits. `accelerator` places `Accelerator()` (above what `first` names), `choice` and `options` follow
the author's flags, `devices` and `ranks` replace what chooses a device or a rank. `conversion` calls them.
"""
