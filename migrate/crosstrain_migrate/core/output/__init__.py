"""What one process prints, shows, writes, downloads and saves.

In: a script and its accelerator. Out: edits that may be left out one by one. `all_output` plans them; `writers`, `on_disk` and
`recorders` are tables; `audience` says which processes come to a place. `conversion` calls `all_output`.
"""
