"""Rewrites plain PyTorch training scripts so that they train on any number of processes.

A script's way through the rooms: `files` (read) -> `syntax` (parse) -> `facts` (understand) -> `rules` (plan) ->
`syntax` (rewrite, check) -> `files` (write) -> `report` (present). `engine` runs the middle of it, `cli` is the
command, `verify` trains both scripts. `results` and `outcome` are what the rooms hand each other. Nothing here imports
torch.
"""

__version__ = "0.1.0"
