"""Running a script: a server with torch loaded, from which every run is forked, and its other end.

In: a script, its arguments, the number of processes. Out: how the run went, and the folders with its `records`. Only
the server's own process imports torch. Imports `records`, `report`, `emulation` and `tracing`. Imported by `judging`.
"""
