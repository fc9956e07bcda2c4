"""Small pictures at random, around a middle for each class."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset

SIZES = {"train": 8, "validation": 6, "test": 6}
SAMPLES = 12


class MiniImagenet(Dataset[tuple[torch.Tensor, int]]):
    """12 samples of each of a few classes."""

    def __init__(
        self, root: str, mode: str = "train", download: bool = False, shape: tuple[int, ...] = (3, 8, 8)
    ) -> None:
        del root, download
        generator = torch.Generator().manual_seed(list(SIZES).index(mode))
        middles = torch.randn(SIZES[mode], 1, *shape, generator=generator)
        samples = middles + 0.3 * torch.randn(SIZES[mode], SAMPLES, *shape, generator=generator)
        self._samples = samples.flatten(0, 1)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._samples[index], index // SAMPLES

    def __len__(self) -> int:
        return len(self._samples)
