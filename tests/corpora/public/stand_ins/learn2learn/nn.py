"""A classifier that is fitted to a few samples."""

from __future__ import annotations

import torch
from torch import nn


class PrototypicalClassifier(nn.Module):
    """The class whose middle is nearest, by angle."""

    def __init__(self, distance: str) -> None:
        super().__init__()
        del distance
        self._middles = torch.zeros(0)

    def fit_(self, support: torch.Tensor, labels: torch.Tensor) -> None:
        """Find the middles."""
        self._middles = torch.stack([support[labels == label].mean(0) for label in labels.unique()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """How near each sample is to each of them."""
        return nn.functional.normalize(x, dim=1) @ nn.functional.normalize(self._middles, dim=1).T
