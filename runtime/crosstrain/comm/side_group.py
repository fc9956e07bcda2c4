"""A process group for threads that work beside the training, so that their collectives never mix with the training's."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

_made: list[Any] = []  # the default group, and the one beside it


def side_group() -> dist.ProcessGroup:
    """A gloo group of all processes. Every process calls this, from its main thread."""
    default = dist.group.WORLD
    if not _made or _made[0] is not default:
        _made[:] = [default, dist.new_group(backend="gloo")]
    group: dist.ProcessGroup = _made[1]
    return group
