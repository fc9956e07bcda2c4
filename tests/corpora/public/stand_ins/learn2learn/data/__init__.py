"""Tasks: a few samples of a few classes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from . import transforms as transforms


class MetaDataset(Dataset[Any]):
    """A data set that knows the samples of each class."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.labels = [int(label) for _, label in dataset]
        self.of_class: dict[int, list[int]] = defaultdict(list)
        for index, (_, label) in enumerate(dataset):
            self.of_class[int(label)].append(index)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __len__(self) -> int:
        return len(self.dataset)


class Taskset(Dataset[Any]):
    """Tasks by number; without a number of tasks there is one, which is another one each time."""

    def __init__(
        self, dataset: MetaDataset, task_transforms: Sequence[Callable[[Any], Any]], num_tasks: int = -1
    ) -> None:
        self.dataset, self.transforms, self.count = dataset, task_transforms, num_tasks
        self._tasks: dict[int, Any] = {}

    def sample(self) -> Any:
        """Any of them."""
        return self[random.randrange(len(self))]

    def __getitem__(self, index: int) -> Any:
        task = self._tasks.get(index)
        if task is None or self.count < 0:
            task = None
            for transform in self.transforms[:2]:
                task = transform(task)
            self._tasks[index] = task
        result: Any = task
        for transform in self.transforms[2:]:
            result = transform(result)
        return result

    def __len__(self) -> int:
        return max(self.count, 1)


class InfiniteIterator:
    """Batches without end."""

    def __init__(self, dataloader: Any) -> None:
        self.dataloader = dataloader
        self._iterator = iter(dataloader)

    def __iter__(self) -> InfiniteIterator:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = iter(self.dataloader)
            return next(self._iterator)


def partition_task(data: torch.Tensor, labels: torch.Tensor, shots: int) -> tuple[Any, Any]:
    """Of each class, the first samples to learn from and the others to be asked."""
    support = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        support[(labels == label).nonzero()[:shots, 0]] = True
    return (data[support], labels[support]), (data[~support], labels[~support])
