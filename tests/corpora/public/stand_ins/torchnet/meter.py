"""An average of numbers, and how often each class is taken for each."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


class AverageValueMeter:
    """The mean and the standard deviation of the numbers that it is given."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget them."""
        self._values: list[float] = []

    def add(self, value: float) -> None:
        """One more."""
        self._values.append(value)

    def value(self) -> tuple[float, float]:
        """Mean and standard deviation."""
        if not self._values:
            return float("nan"), float("nan")
        return float(np.mean(self._values)), float(np.std(self._values))


class ConfusionMeter:
    """Counts by true class (rows) and predicted class (columns)."""

    def __init__(self, k: int) -> None:
        self._counts = np.zeros((k, k), dtype=np.int32)

    def reset(self) -> None:
        """Forget all counts."""
        self._counts[:] = 0

    def add(self, predicted: torch.Tensor, target: torch.Tensor) -> None:
        """The scores of a batch, one row each, and the true classes."""
        classes = predicted.argmax(1) if predicted.ndim > 1 else predicted
        np.add.at(self._counts, (target.cpu().numpy(), classes.cpu().numpy()), 1)

    def value(self) -> NDArray[np.int32]:
        """The counts."""
        return self._counts
