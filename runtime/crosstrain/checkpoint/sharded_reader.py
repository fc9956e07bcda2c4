"""Reading sharded checkpoints, whose index is a pickle, without running code from them."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import ReadItem

_METADATA_CLASSES = (
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "StorageMeta",
    "TensorProperties",
    "TensorStorageMetadata",
    "_MEM_FORMAT_ENCODING",
)


class _IndexUnpickler(pickle.Unpickler):
    """Unpickles only the classes that torch writes into the index of a sharded checkpoint."""

    def find_class(self, module: str, name: str) -> Any:
        plain = (module, name) in _INDEX_PARTS or (module, name) == ("torch", "Size")
        if plain or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


_INDEX_PARTS = {
    *(("torch.distributed.checkpoint.metadata", name) for name in _METADATA_CLASSES),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    *(("pathlib", name) for name in ("Path", "PosixPath", "PurePosixPath")),
}


def check_indexes(folder: Path) -> None:
    """Raise ValueError if reading the index would run code from it, or read files outside of the folder."""
    for path in folder.glob("*.metadata"):
        try:
            with path.open("rb") as file:
                index = _IndexUnpickler(file).load()
        except pickle.UnpicklingError as error:
            raise ValueError(f"reading {path} would run code from it ({error}), which is refused") from None
        for part in (index.storage_data or {}).values():
            if Path(part.relative_path).name != part.relative_path:
                raise ValueError(f"{path} names a file outside of {folder}: {part.relative_path!r}")


class SafePlanner(DefaultLoadPlanner):
    """Loads values other than tensors only if that runs no code from the file."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        torch.load(value, weights_only=True)
        value.seek(0)
        super().load_bytes(read_item, value)
