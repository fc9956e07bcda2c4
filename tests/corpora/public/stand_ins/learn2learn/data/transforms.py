"""How a task is drawn: classes, samples of each, and labels from 0."""

from __future__ import annotations

import random
from typing import Any

import torch


class NWays:
    """Some classes."""

    def __init__(self, dataset: Any, n: int) -> None:
        self.dataset, self.n = dataset, n

    def __call__(self, task: Any) -> list[int]:
        return random.sample(sorted(self.dataset.of_class), self.n)


class KShots:
    """Some samples of each."""

    def __init__(self, dataset: Any, k: int) -> None:
        self.dataset, self.k = dataset, k

    def __call__(self, classes: list[int]) -> list[int]:
        return [index for one in classes for index in random.sample(self.dataset.of_class[one], self.k)]


class LoadData:
    """The samples themselves."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __call__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        samples = [self.dataset[index] for index in indices]
        return torch.stack([x for x, _ in samples]), torch.tensor([int(y) for _, y in samples])


class RemapLabels:
    """Labels in the order in which they come."""

    def __init__(self, dataset: Any) -> None:
        del dataset

    def __call__(self, task: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        data, labels = task
        numbers = {int(label): number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
        return data, torch.tensor([numbers[int(label)] for label in labels])
