"""A process group for threads that work beside the training: their collectives never meet the training's."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

_made: list[Any] = []  # the default group, and the one beside it


def side_group() -> dist.ProcessGroup:
    """A group of all processes on the host; every process calls this, from its main thread."""
    default = dist.group.WORLD
    if not _made or _made[0] is not default:
        _made[:] = [default, dist.new_group(backend="gloo")]
    group: dist.ProcessGroup = _made[1]
    return group
