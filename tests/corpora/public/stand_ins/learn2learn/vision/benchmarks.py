"""Tasks that are the same for all who compare methods."""

from __future__ import annotations

from typing import NamedTuple

from learn2learn.data import MetaDataset, Taskset
from learn2learn.data.transforms import KShots, LoadData, NWays, RemapLabels

from .datasets import MiniImagenet

SHAPE = (1, 28, 28)


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
    num_tasks: int,
    root: str,
) -> Tasksets:
    """Tasks of each part, whatever the name."""
    wanted = {"train": (train_ways, train_samples), "validation": (test_ways, test_samples)}
    wanted["test"] = wanted["validation"]
    return Tasksets(*(_tasks(part, ways, samples, num_tasks) for part, (ways, samples) in wanted.items()))


def _tasks(part: str, ways: int, samples: int, count: int) -> Taskset:
    data = MetaDataset(MiniImagenet("", part, shape=SHAPE))
    return Taskset(data, [NWays(data, ways), KShots(data, samples), LoadData(data), RemapLabels(data)], count)
