"""The command `migrate`: what the command line and the configuration file ask for, done.

In: the words of a command line. Out: an exit code, and what a run shows. `commands` declares the options and loads
nothing heavy, `console` does what they ask, `run` finds, reads, migrates and writes. Nothing but `__main__` imports
this room.
"""

from __future__ import annotations

from .commands import app, main

__all__ = ["app", "main"]
