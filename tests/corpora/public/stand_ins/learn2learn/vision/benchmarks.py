"""Tasks that are the same for all who compare methods."""

from __future__ import annotations

from typing import NamedTuple

import torch

from learn2learn.data import MetaDataset, Taskset
from learn2learn.data.transforms import KShots, LoadData, NWays, RemapLabels

from .datasets import MiniImagenet

SHAPES = {"omniglot": (1, 28, 28)}
COLOURED = (3, 8, 8)


class Tasksets(NamedTuple):
    """The three parts."""

    train: Taskset
    validation: Taskset
    test: Taskset


def get_tasksets(
    name: str,
    train_ways: int,
    train_samples: int,
    test_ways: int,
    test_samples: int,
    num_tasks: int = -1,
    root: str = "",
    device: torch.device | None = None,
) -> Tasksets:
    """Tasks of each part."""
    del root, device
    shape = SHAPES.get(name, COLOURED)
    wanted = {"train": (train_ways, train_samples), "validation": (test_ways, test_samples)}
    wanted["test"] = wanted["validation"]
    return Tasksets(
        *(_tasks(part, ways, samples, num_tasks, shape) for part, (ways, samples) in wanted.items())
    )


def _tasks(part: str, ways: int, samples: int, count: int, shape: tuple[int, ...]) -> Taskset:
    data = MetaDataset(MiniImagenet("", part, shape=shape))
    return Taskset(data, [NWays(data, ways), KShots(data, samples), LoadData(data), RemapLabels(data)], count)
