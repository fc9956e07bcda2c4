"""Runs scripts: a server that has torch loaded and forks every run, and the client that gives it jobs.

In: a script, its arguments, the number of processes. Out: the result of the run, and the folders with its `records`. Only
the server's process imports torch. Imports `records`, `report`, `emulation` and `tracing`. Imported by `judging`.
"""
