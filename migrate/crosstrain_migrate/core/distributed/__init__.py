"""Scripts that distribute themselves: their group, wrappers and processes become the runtime's.

In: such a script and its accelerator. Out: edits. `mapping` begins; `group`, `wrappers` and `mpi` each replace one thing;
`spawning` knows what the first process did alone. `conversion` calls them.
"""
