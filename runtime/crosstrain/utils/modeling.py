"""Loads weights into models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from crosstrain.checkpoint.weights import load_into
from crosstrain.compat.not_supported import BIG, refuse
from crosstrain.step.model import unwrap


def load_checkpoint_in_model(
    model: nn.Module,
    checkpoint: str | Path,
    *,
    dtype: torch.dtype | str | None = None,
    strict: bool = False,
    **options: Any,
) -> None:
    """Load a file, or a directory with one file or with shards and an index, into a model.

    Args:
        dtype: the model is converted to it first.
        strict: raise RuntimeError if names are missing or unexpected, as ``load_state_dict`` does.

    Raises NotImplementedError for a ``device_map`` and other options of Accelerate's for models larger than a device.
    """
    for name, value in options.items():
        if value:
            refuse(f"load_checkpoint_in_model({name}=...)", BIG)
    target = unwrap(model, keep_torch_compile=False)
    if dtype is not None:
        target.to(getattr(torch, dtype.removeprefix("torch.")) if isinstance(dtype, str) else dtype)
    load_into(target, Path(checkpoint), strict)
