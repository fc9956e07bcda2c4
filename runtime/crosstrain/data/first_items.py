"""The comparison of the first items that the processes read of an iterable."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch import Tensor

from crosstrain.utils.nested import fields_of

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Fingerprint:
    """What an item is made of and what is in it, as text that is the same in every process.

    ``known``: whether there are tensors, arrays, numbers or text in it, without which nothing could be compared.
    ``structure``: its containers, dtypes and numbers of dimensions. ``content``: a digest of that, of the shapes and of the
    values. A Python float beside tensors or arrays does not count: a generator that times each batch gives a process's own.
    """

    def __init__(self, item: Any) -> None:
        self.known = False
        self._has_rows = False
        self._floats: list[float] = []
        self._parts: list[str] = []
        self._digest = hashlib.blake2b(digest_size=12)
        self._add(item, objects=True)
        self._digest.update(b"" if self._has_rows else repr(self._floats).encode())
        self.structure = "".join(self._parts)
        self._digest.update(self.structure.encode())
        self.content = self._digest.hexdigest()

    def _add(self, value: Any, *, objects: bool) -> None:
        """Add a value. ``objects``: whether to look at the attributes of an object of another kind."""
        if isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, _PLAIN):
            self._parts.append(type(value).__name__)
            self.known = self.known or value is not None
            if isinstance(value, float):
                self._floats.append(value)
            else:
                self._digest.update(repr(value).encode())
        elif isinstance(value, Mapping):
            self._named(type(value).__name__, dict(value), objects)
        elif isinstance(value, (list, tuple)):
            self._parts.append(f"{type(value).__name__}(")
            for part in value:
                self._add(part, objects=objects)
                self._parts.append(",")
            self._parts.append(")")
        elif hasattr(type(value), "__array__"):  # an object may answer to every name
            self._array(value)
        elif (fields := fields_of(value)) is not None:
            self._named(type(value).__name__, fields, objects)
        elif objects and hasattr(value, "__dict__") and not callable(value):
            self._named(type(value).__name__, vars(value), objects=False)
        else:
            self._parts.append(type(value).__name__)

    def _named(self, kind: str, values: Mapping[Any, Any], objects: bool) -> None:
        self._parts.append(f"{kind}(")
        for name, value in values.items():
            self._parts.append(f"{name}=")
            self._add(value, objects=objects)
            self._parts.append(",")
        self._parts.append(")")

    def _tensor(self, tensor: Tensor) -> None:
        self._parts.append(f"{tensor.dtype}[{tensor.dim()}]")
        self._digest.update(repr(tuple(tensor.shape)).encode())
        self.known = self._has_rows = True
        if tensor.is_sparse:
            tensor = tensor.detach().coalesce()
            self._tensor(tensor.indices())
            self._tensor(tensor.values())
            return
        whole = tensor.detach().cpu().contiguous()
        if whole.numel() and not whole.is_quantized:
            self._digest.update(whole.flatten().view(torch.uint8).numpy().tobytes())

    def _array(self, value: Any) -> None:
        array = numpy.asarray(value)
        self._parts.append(f"{type(value).__name__}:{array.dtype}[{array.ndim}]")
        self._digest.update(repr(array.shape).encode())
        if array.dtype.hasobject and array.ndim:  # what such an object writes of itself may be its address
            self._add(array.tolist(), objects=False)
        else:
            self.known = True
            self._has_rows = self._has_rows or array.ndim > 0
            self._digest.update(array.tobytes() if not array.dtype.hasobject else b"")
