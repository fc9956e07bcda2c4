"""What trains: `prepare`, `backward` and clipping, and the schedules of loops that become shorter.

In: a script's roles and its accelerator. Out: edits, those of the core among them. `conversion` calls them.
"""
