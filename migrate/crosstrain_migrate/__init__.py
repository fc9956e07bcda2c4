"""Rewrites plain PyTorch training scripts so that they train on any number of processes.

The pipeline, one room per stage: `sources` (read, write) -> `roles` (understand) -> `rules` (plan) ->
`rewrite` -> `checks` -> `reports` (present). `engine` runs it; `cli` is the command. Nothing here imports torch.
"""

__version__ = "0.1.0"
