"""Numbers about predictions, and options as a dictionary."""

from __future__ import annotations

from typing import Any

import torch


def accuracy(preds: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """How many of all are right."""
    return (preds.argmax(dim=1) == targets).float().mean()


def flatten_config(args: Any) -> dict[str, Any]:
    """The options by name."""
    return dict(vars(args.options))
