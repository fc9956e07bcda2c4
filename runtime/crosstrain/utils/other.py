"""Small functions that scripts import from ``accelerate.utils``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crosstrain.checkpoint.weights import save_object
from crosstrain.state import PartialState
from crosstrain.step.model import unwrap


def wait_for_everyone() -> None:
    """Wait until every process has called this."""
    PartialState().wait_for_everyone()


def save(obj: Any, f: str | Path, save_on_each_node: bool = False, safe_serialization: bool = False) -> None:
    """Save an object on the main process, atomically.

    save_on_each_node: on the main process of every machine. safe_serialization: as safetensors, not by torch.save.
    """
    state = PartialState()
    if state.is_local_main_process if save_on_each_node else state.is_main_process:
        save_object(obj, Path(f), safe_serialization)


def load(f: str | Path, map_location: Any = None, **kwargs: Any) -> Any:
    """torch.load with ``weights_only=True``, which does not run code in the file."""
    return torch.load(f, map_location=map_location, weights_only=True, **kwargs)


def extract_model_from_parallel(
    model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True, recursive: bool = False
) -> nn.Module:
    """The user's own module, without wrappers: see `Accelerator.unwrap_model`."""
    return unwrap(model, keep_fp32_wrapper, keep_torch_compile)


@contextmanager
def patch_environment(**variables: Any) -> Iterator[None]:
    """Set variables inside, with their names in upper case, and restore them afterwards."""
    before = {key.upper(): os.environ.get(key.upper()) for key in variables}
    os.environ.update({key.upper(): str(value) for key, value in variables.items()})
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
