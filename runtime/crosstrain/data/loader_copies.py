"""Copies of DataLoaders, with other attributes and with classes that derive from the user's own."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

_CLASSES: dict[tuple[type, type], type] = {}


def attributes_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """A copy's attributes: those of the loader, without the iterator whose workers are the loader's own."""
    return {**vars(loader), "_iterator": None}


def copy_with(kind: type, attributes: dict[str, Any]) -> DataLoader[Any]:
    """An instance with these attributes, made without the constructor, because most cannot be set later."""
    loader: DataLoader[Any] = object.__new__(kind)
    vars(loader).update(attributes)
    return loader


def class_with(first: type, kind: type) -> type:
    """A class that derives from `first` and the user's own `kind`, whose name it has; made once."""
    if (first, kind) not in _CLASSES:
        names = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        _CLASSES[first, kind] = type(kind.__name__, (first, kind), names)
    return _CLASSES[first, kind]
