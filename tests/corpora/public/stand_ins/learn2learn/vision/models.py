"""Small models."""

from __future__ import annotations

import torch
from torch import nn


class CNN4Backbone(nn.Sequential):
    """Features of a picture."""

    def __init__(self, hidden_size: int, channels: int = 3, max_pool: bool = True) -> None:
        super().__init__(nn.Conv2d(channels, hidden_size // 8, 3), nn.ReLU(), nn.AvgPool2d(2))


class OmniglotFC(nn.Sequential):
    """A classifier of flat pictures."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(input_size, 16), nn.ReLU(), nn.Linear(16, output_size))


class ResNet12(nn.Module):
    """Features, and a classifier of them."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.ReLU())
        self.classifier = nn.Linear(16, output_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        scores: torch.Tensor = self.classifier(self.features(x))
        return scores
