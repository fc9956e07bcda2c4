"""What a script finds in a run, where that differs from the machine: devices, launchers, other processes, data sets,
the network and the disk; and what a run does in another way to have something to compare with.

In: a script that is about to run in this process. Out: patched names, and a note for each (`emulated`). Imports
nothing else of this package. Imported by `tracing` and `running`.
"""
