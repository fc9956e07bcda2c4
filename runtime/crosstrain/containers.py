"""Containers of tensors with other contents: of the same type, with whatever else the object carries."""

from __future__ import annotations

import copy
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
