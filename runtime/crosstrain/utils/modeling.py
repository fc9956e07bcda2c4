"""Loading weights into models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from crosstrain.elsewhere import refuse
from crosstrain.model import unwrap
from crosstrain.weights import load_into


def load_checkpoint_in_model(
    model: nn.Module,
    checkpoint: str | Path,
    device_map: Any = None,
    offload_folder: str | Path | None = None,
    dtype: torch.dtype | str | None = None,
    offload_state_dict: bool = False,
    strict: bool = False,
    **options: Any,
) -> None:
    """Load a file, or a directory of one file or of shards with an index, into a model that has its memory.

    ``dtype`` converts the model first. Placing parts of a model on several devices, or on disk, is
    accelerate's own: NotImplementedError says so.
    """
    elsewhere = {"device_map": device_map, "offload_folder": offload_folder, **options}
    for name, value in elsewhere.items():
        if value:
            refuse(
                f"load_checkpoint_in_model({name}=...)",
                "install accelerate for big-model inference (it works beside crosstrain)",
            )
    target = unwrap(model, keep_torch_compile=False)
    if dtype is not None:
        target.to(getattr(torch, dtype.removeprefix("torch.")) if isinstance(dtype, str) else dtype)
    load_into(target, Path(checkpoint), strict)
