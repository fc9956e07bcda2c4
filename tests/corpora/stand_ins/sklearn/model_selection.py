"""A stand-in for `sklearn.model_selection`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


class StratifiedKFold:
    """Folds in which every label has its share."""

    def __init__(self, n_splits: int) -> None:
        self._folds = n_splits

    def split(self, rows: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
        order = np.argsort(np.asarray(labels), kind="stable")
        fold = np.empty(len(order), dtype=int)
        fold[order] = np.arange(len(order)) % self._folds
        for index in range(self._folds):
            yield np.flatnonzero(fold != index), np.flatnonzero(fold == index)
