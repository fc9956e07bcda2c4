"""Scripts that distribute themselves: their group, wrappers and processes become the runtime's.

In: such a script and its accelerator. Out: edits. `mapping` begins, and knows what the first process did
alone; `group`, `wrappers` and `processes` each replace one thing. `conversion` calls them.
"""
