"""Adding up over the processes what each has accumulated in its part of a loop.

Every process sends `packed(value)`, and `Merge.of` makes one value of all processes' packed ones. All processes compute the
same from the same, so that either all raise or none does. Nothing here communicates.
"""

from __future__ import annotations

import copy
import operator
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import reduce
from numbers import Number
from typing import Any

import numpy
import torch
from torch import Tensor

from crosstrain.data import added_attributes
from crosstrain.data.packing import SentEntries, SentObject, SentTensor, Unmergeable, is_numpy, unpacked

Parts = list[tuple[int, Any]]
"""Packed values with the ranks that sent them."""


@dataclass(frozen=True)
class Merge:
    """Makes one value of the values of all ranks.

    ran: the ranks that had batches. Of the others, whose accumulators have what they start with, nothing is taken.
    rank: this one. device: where tensors come that were on other ranks' devices. join: whether tensors and arrays are
    concatenated along dimension 0 instead of added. depth: the number of indices under which a script adds, so that lists
    are added element by element; `MIXED` where that is not clear.
    """

    ran: frozenset[int]
    rank: int
    device: torch.device
    join: bool = False
    depth: int = 0

    def of(self, own: Any, sent: list[Any]) -> Any:
        """The merged value; ``own`` is this rank's and ``sent`` has every rank's packed one. Objects change in place.

        Raises `Unmergeable`.
        """
        parts = [(rank, part) for rank, part in enumerate(sent) if rank in self.ran]
        if all(_kind(part) == "text" for _, part in parts):
            return reduce(operator.add, (part for _, part in parts))
        return self._merged(own, parts)

    def _merged(self, own: Any, parts: Parts) -> Any:
        kinds = {rank: _kind(part) for rank, part in parts}
        found = set(kinds.values())
        if found == {"None"}:
            return None
        if found <= {"number", "tensor", "array", "bool"}:
            values = [part for _, part in parts]
            if self.join:
                return self._joined(own, values)
            return self._added(own, values, found)
        if len(found) > 1:
            first, rank = (
                kinds[parts[0][0]],
                next(r for r, kind in kinds.items() if kind != kinds[parts[0][0]]),
            )
            raise Unmergeable(
                f"process {parts[0][0]} has accumulated a {first}, and process {rank} a {kinds[rank]}"
                if "None" not in found
                else "some processes have accumulated a value, and others have None"
            )
        work: Callable[[Any, Parts], Any] = {
            "text": self._texts,
            "set": self._union,
            "entries": self._entries,
        }.get(kinds[parts[0][0]], self._elements if self.depth else self._sequences)
        return self._object(own, parts) if isinstance(parts[0][1], SentObject) else work(own, parts)

    # numbers

    def _added(self, own: Any, values: list[Any], found: set[str]) -> Any:
        if "bool" in found:
            raise Unmergeable("a bool cannot be added up: add numbers (int(x), x.sum())")
        if "tensor" in found and "array" in found:
            raise Unmergeable("some processes have accumulated a tensor, and others an array")
        if "tensor" in found:
            return self._tensors(own, values)
        if "array" in found:
            return _arrays(values)
        if not any(map(is_numpy, values)):
            return reduce(operator.add, values)
        kind = numpy.result_type(*(value for value in values if is_numpy(value))).type
        return kind(reduce(operator.add, (value.item() if is_numpy(value) else value for value in values)))

    def _tensors(self, own: Any, values: list[Any]) -> Tensor:
        tensors = [value.tensor for value in values if isinstance(value, SentTensor)]
        numbers = [value for value in values if not isinstance(value, SentTensor)]
        if len({tensor.shape for tensor in tensors} | ({torch.Size()} if numbers else set())) > 1:
            raise Unmergeable(
                f"tensors of different shapes ({_shapes(tensors)}) cannot be added; with join=True they are concatenated"
            )
        dtype = tensors[0].dtype
        for value in values:
            other = (
                value.tensor.dtype if isinstance(value, SentTensor) else torch.result_type(tensors[0], value)
            )
            dtype = torch.promote_types(dtype, other)
        wide = (
            torch.float64
            if dtype.is_floating_point
            else torch.complex128
            if dtype.is_complex
            else torch.int64
        )
        terms = (
            v.tensor.to(wide) if isinstance(v, SentTensor) else torch.tensor(v, dtype=wide, device="cpu")
            for v in values
        )
        total = reduce(operator.add, terms).to(dtype)
        return self._placed(total, own, values)

    def _placed(self, tensor: Tensor, own: Any, values: Iterable[Any]) -> Tensor:
        if isinstance(own, Tensor):
            return tensor.to(own.device)
        on_device = any(value.on_device for value in values if isinstance(value, SentTensor))
        return tensor.to(self.device) if on_device else tensor

    def _joined(self, own: Any, values: list[Any]) -> Any:
        tensors = [value.tensor for value in values if isinstance(value, SentTensor)]
        if len(tensors) == len(values) and all(tensor.dim() for tensor in tensors):
            return self._placed(torch.cat(_with_rows(tensors, "tensors")), own, values)
        if all(is_numpy(value) and value.ndim for value in values):
            return numpy.concatenate(_with_rows(values, "arrays"))
        raise Unmergeable("only tensors and arrays with at least one dimension, and lists, can be joined")

    # containers

    def _texts(self, own: Any, parts: Parts) -> Any:
        """Texts inside of something, which are names as a rule."""
        texts = [part for _, part in parts]
        return texts[0] if len(set(texts)) == 1 else reduce(operator.add, texts)

    def _union(self, own: Any, parts: Parts) -> Any:
        union = set().union(*(part for _, part in parts))
        return frozenset(union) if isinstance(parts[0][1], frozenset) else union

    def _elements(self, own: Any, parts: Parts) -> Any:
        """Lists of sums."""
        lengths = {len(part) for _, part in parts}
        if self.depth < 0 or len(lengths) > 1 or isinstance(parts[0][1], deque):
            raise Unmergeable("a list is added to in several ways, or has another length on another process")
        (length,) = lengths
        rule = replace(self, depth=self.depth - 1)
        mine = own if isinstance(own, (list, tuple)) and len(own) == length else [None] * length
        items = [rule._merged(mine[at], [(rank, part[at]) for rank, part in parts]) for at in range(length)]
        return tuple(items) if isinstance(own, tuple) else items

    def _sequences(self, own: Any, parts: Parts) -> Any:
        items: list[Any] = []
        for rank, part in parts:
            items.extend(own if rank == self.rank else unpacked(list(part), self.device))
        first = parts[0][1]
        if isinstance(first, deque):
            return deque(items, first.maxlen)
        if isinstance(first, tuple):
            return tuple(items)
        if type(own) is list or not isinstance(own, list):
            return items
        filled = copy.copy(own)
        filled[:] = items
        return filled

    def _entries(self, own: Any, parts: Parts) -> Any:
        keys = dict.fromkeys(key for _, part in parts for key in part.entries)
        for rank, part in parts:
            missing = [key for key in keys if key not in part.entries]
            if missing and not part.open:
                raise Unmergeable(
                    f"process {rank} has no entry {missing[0]!r}, which another one has: start the dictionary with all "
                    f"its keys, or use a collections.defaultdict or Counter"
                )
        mine = _entries_of(own)
        rule = replace(self, depth=max(self.depth - 1, min(self.depth, 0)))
        merged = {
            key: rule._merged(
                mine.get(key), [(r, part.entries[key]) for r, part in parts if key in part.entries]
            )
            for key in keys
        }
        return _with_entries(own, merged)

    def _object(self, own: Any, parts: Parts) -> Any:
        roles = added_attributes.of_object(own)
        if roles is None or any(part.kind != type(own).__qualname__ for _, part in parts):
            raise Unmergeable(
                f"the processes have accumulated objects of different types ({type(own).__name__})"
            )
        held = vars(own)
        for name in roles.names:
            given = [(rank, part.attributes[name]) for rank, part in parts if name in part.attributes]
            if not given:
                continue
            if name in roles.unclear:
                raise Unmergeable(f"{type(own).__name__}.{name} is not only added to")
            if name in roles.last:
                held[name] = unpacked(given[-1][1], self.device)
            elif name in roles.largest or name in roles.smallest:
                held[name] = self._extreme(held.get(name), given, name in roles.largest)
            else:
                join, depth = self.join or name in roles.joined, roles.depths.get(name, 0)
                rule = replace(self, join=join, depth=depth)
                held[name] = rule._merged(held.get(name), given)
        for attribute in roles.derived:
            if not any(attribute.name in part.names for _, part in parts):
                continue
            try:
                held[attribute.name] = attribute.of(own)
            except ArithmeticError:
                continue  # nothing was counted
            except Exception as error:
                told = f"{type(own).__name__}.{attribute.name} cannot be computed anew ({error})"
                raise Unmergeable(told) from None
        return own

    def _extreme(self, own: Any, parts: Parts, largest: bool) -> Any:
        values = [unpacked(part, self.device) for _, part in parts]
        if isinstance(values[0], Tensor):
            return reduce(torch.maximum if largest else torch.minimum, values)
        if is_numpy(values[0]):
            return reduce(numpy.maximum if largest else numpy.minimum, values)
        return max(values) if largest else min(values)


def _kind(part: Any) -> str:
    """What a packed value is, in a word for messages."""
    if part is None:
        return "None"
    if isinstance(part, SentTensor):
        return "bool" if part.tensor.dtype is torch.bool else "tensor"
    if is_numpy(part):
        if part.dtype.kind == "b":
            return "bool"
        return "array" if isinstance(part, numpy.ndarray) else "number"
    if isinstance(part, bool):
        return "bool"
    if isinstance(part, Number):
        return "number"
    if isinstance(part, (str, bytes)):
        return "text"
    if isinstance(part, (set, frozenset)):
        return "set"
    return {SentEntries: "entries", SentObject: "object"}.get(type(part), type(part).__name__)


def _arrays(values: list[Any]) -> Any:
    arrays = [numpy.asarray(value) for value in values]
    if len({array.shape for array in arrays}) > 1:
        raise Unmergeable(
            f"arrays of different shapes ({_shapes(arrays)}) cannot be added; with join=True they are concatenated"
        )
    dtype = numpy.result_type(*(value for value in values if is_numpy(value)))
    wide: dict[str, Any] = {
        "f": numpy.promote_types(dtype, "f8"),
        "c": numpy.promote_types(dtype, "c16"),
        "i": "i8",
        "u": "u8",
    }
    if dtype.kind not in {*wide, "O", "m"}:
        raise Unmergeable(f"an array of {dtype} cannot be added up")
    total = reduce(operator.add, (array.astype(wide.get(dtype.kind, dtype)) for array in arrays))
    return total.astype(dtype)


def _with_rows(values: list[Any], kind: str) -> list[Any]:
    """Those that are not empty, or the first if all are; `Unmergeable` where their other dimensions differ."""
    full = [value for value in values if len(value)] or values[:1]
    if len({value.shape[1:] for value in full}) > 1:
        raise Unmergeable(f"{kind} of the shapes {_shapes(full)} cannot be concatenated along dimension 0")
    return full


def _shapes(values: Iterable[Any]) -> str:
    return ", ".join(str(tuple(value.shape)) for value in values)


def _entries_of(own: Any) -> Mapping[Any, Any]:
    if isinstance(own, Mapping):
        return own
    return own._asdict() if hasattr(own, "_asdict") else {}


def _with_entries(own: Any, entries: dict[Any, Any]) -> Any:
    """A mapping or named tuple like ``own`` with these entries, in their order."""
    if hasattr(own, "_fields"):
        return type(own)(**entries)
    if type(own) is dict or not isinstance(own, Mapping):
        return entries
    if not isinstance(own, MutableMapping):
        kind: Any = type(own)
        return kind(entries)
    filled = copy.copy(own)
    filled.clear()
    for key, value in entries.items():
        filled[key] = value
    return filled
