"""What trains: `prepare`, `backward` and clipping, and what counts the steps of loops that become shorter.

In: a script's roles and its accelerator. Out: edits, those of the core among them. `schedules`, `told`, `taken` and `ends`
are for counted steps, `where_made` for what `__init__` or an `if` makes, `queued` for batches that threads and processes of the
script's own make. `conversion` calls them.
"""
