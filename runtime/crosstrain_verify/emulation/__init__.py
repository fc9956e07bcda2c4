"""What a script finds in a run, where that differs from the machine: devices, launchers, other processes, data sets, the
network and the disk. Also what a run computes differently so that it can be compared.

In: a script that is about to run in this process. Out: replaced functions, and the features that a report must mention
(`emulated`). Imports nothing else of this package. Imported by `tracing` and `running`.
"""
