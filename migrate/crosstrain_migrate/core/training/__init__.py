"""What trains: `prepare`, `backward` and clipping, and what counts the steps of loops that become shorter.

In: a script's roles and its accelerator. Out: edits, those of the core among them. `schedules`, `epochs`, `taken`, `ends` and
`dataset_length` are for counted steps, `conditional` for what is made under an `if`, `queued` and `worker_seeds` for batches that
threads and processes of the script's own make. `conversion` calls them.
"""
