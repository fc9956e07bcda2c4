"""Containers of tensors with other contents: of the same type, with whatever else the object carries."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any


def same_sequence(like: Any, items: Iterable[Any]) -> Any:
    """A tuple, named tuple or list of the type of `like`."""
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)


def same_mapping(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of the type of `like`, which has the same keys: a copy, since its constructor may want anything."""
    if type(like) is dict:
        return items
    if isinstance(like, MutableMapping):
        filled = copy.copy(like)
        for key, value in items.items():  # not `update`, which a model output of transformers refuses
            filled[key] = value
        return filled
    kind: Any = type(like)
    return kind(items)


def fields_of(data: Any) -> dict[str, Any] | None:
    """The fields of a dataclass instance by name, None for anything else."""
    if not dataclasses.is_dataclass(data) or isinstance(data, type):
        return None
    return {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}


def same_dataclass(like: Any, fields: dict[str, Any]) -> Any:
    """A dataclass instance of the type of `like`: a copy, which may be frozen."""
    filled = copy.copy(like)
    for name, value in fields.items():
        object.__setattr__(filled, name, value)
    return filled
