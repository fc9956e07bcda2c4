"""`crosstrain merge-weights`: writing a checkpoint's weights to one file."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from crosstrain.checkpoint import manifests
from crosstrain.checkpoint.sharded_reader import SafePlanner, check_indexes
from crosstrain.checkpoint.weights import SINGLE_FILES, load_weights, save_weights, with_repeated


def merge(source: Path, target: Path) -> int:
    """Write the weights in the directory `source` to the file `target`; returns the number of tensors.

    ``source`` is a directory that `save_model` or `save_state` wrote, or the folder of one sharded model in it. Of
    several models in a checkpoint, the first one is written.

    Raises FileNotFoundError where there are no weights, ValueError for a target of unknown suffix and for files that
    would run code, CorruptCheckpointError for a checkpoint that was damaged.
    """
    if target.suffix not in SINGLE_FILES:
        raise ValueError(f"{target}: the name has to end in one of {', '.join(SINGLE_FILES)}")
    if (source / manifests.MANIFEST).is_file():
        manifests.verify(source)
    parts = source / "sharded_0" if (source / "sharded_0").is_dir() else source
    state = read_parts(parts) if (parts / ".metadata").is_file() else with_repeated(*load_weights(source))
    save_weights(state, target)
    return len(state)


def read_parts(folder: Path) -> dict[str, Tensor]:
    """The whole model of a sharded checkpoint, read by one process."""
    check_indexes(folder)
    index = FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    model: dict[str, Tensor] = {
        name.removeprefix("model."): torch.empty(part.size, dtype=part.properties.dtype, device="cpu")
        for name, part in index.items()
        if name.startswith("model.") and isinstance(part, TensorStorageMetadata)
    }
    if not model:
        raise FileNotFoundError(f"{folder} holds no model")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process is intended
        state_dict_loader.load(
            {"model": model}, checkpoint_id=str(folder), planner=SafePlanner(), no_dist=True
        )
    return model
