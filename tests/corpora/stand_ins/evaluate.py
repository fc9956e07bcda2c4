"""A stand-in for `evaluate`: accuracy and F1, and a check that nothing was counted twice or lost."""

from __future__ import annotations

from typing import Any

from datasets import ROWS


class Metric:
    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []

    def add_batch(self, predictions: Any, references: Any) -> None:
        self._pairs.extend(zip(predictions.tolist(), references.tolist(), strict=True))

    def compute(self, predictions: Any = None, references: Any = None) -> dict[str, float]:
        counted, pairs, self._pairs = predictions is None, self._pairs, []
        if not counted:  # the script's own arithmetic
            pairs = list(zip(predictions.tolist(), references.tolist(), strict=True))
        elif len(pairs) not in SIZES:
            raise AssertionError(f"{len(pairs)} samples were counted; a split has one of {sorted(SIZES)}")
        hits = sum(a == b for a, b in pairs)
        both = sum(a == b == 1 for a, b in pairs)
        positives = sum(a for a, _ in pairs) + sum(b for _, b in pairs)
        return {"accuracy": hits / len(pairs), "f1": 2 * both / max(1, positives)}


_FOLDS = 3  # cross_validation.py splits the training rows so
SIZES = set(ROWS.values()) | {ROWS["train"] // _FOLDS, -(-ROWS["train"] // _FOLDS)}


def load(path: str, name: str | None = None, **_: Any) -> Metric:
    return Metric()
