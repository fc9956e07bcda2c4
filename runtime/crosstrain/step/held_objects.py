"""What `prepare` does with objects that are no model, optimizer, scheduler or DataLoader, but hold some or give batches."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from crosstrain.data.first_items import Fingerprint
from crosstrain.data.loader import PreparedLoader
from crosstrain.data.samplers import known_length

DEPTH = 3  # wrappers around wrappers
_NO_BATCHES = (
    str,
    bytes,
    bytearray,
    type,
    io.IOBase,
    Set,
    Mapping,
    Tensor,
    nn.Module,
    Optimizer,
    LRScheduler,
    Sampler,
)

_TRAINED = (nn.Parameter, nn.Module, Optimizer, LRScheduler, DataLoader)


def gives_batches(obj: Any) -> bool:
    """Whether a loop over the object may give batches that can be dealt.

    Containers of options, modules, parameters or loaders give none.
    """
    is_array = hasattr(type(obj), "__array__")
    if isinstance(obj, _NO_BATCHES) or is_array or hasattr(obj, "parameters"):
        return False
    if isinstance(obj, range):
        return True
    if isinstance(obj, Sequence):
        return len(obj) > 0 and not _holds(obj[0], _TRAINED) and Fingerprint(obj[0]).known
    return any(callable(getattr(type(obj), name, None)) for name in ("__iter__", "__next__"))


def reads_on(obj: Any) -> bool:
    """Whether it is a DataLoader that is its own iterator, or that reads on from one which its constructor has made.

    Every process would read all batches of that iterator. Torch keeps that of lasting workers under ``_iterator``. So would
    it of one that only has the name of a DataLoader, whose constructor torch's own does not know of.
    """
    if not isinstance(obj, DataLoader) or isinstance(obj, PreparedLoader):
        return False
    if not getattr(obj, "_DataLoader__initialized", True):
        return True
    made = (isinstance(vars(obj)[name], _BaseDataLoaderIter) for name in vars(obj) if name != "_iterator")
    return hasattr(obj, "__next__") or any(made)


def has_rows(obj: Any) -> bool:
    """Whether it is an array, a tensor or a table of rows, and is not trained."""
    is_array = hasattr(type(obj), "__array__") and getattr(obj, "ndim", 0) > 0
    return is_array and not getattr(obj, "requires_grad", False)


def _holds(item: Any, kind: tuple[type, ...]) -> bool:
    if isinstance(item, (list, tuple)):
        return any(_holds(value, kind) for value in item)
    return isinstance(item, kind)


def loaders_in_container(obj: Any) -> bool:
    """Whether it is a list, tuple or dict that holds DataLoaders."""
    if isinstance(obj, Mapping):
        return any(isinstance(value, DataLoader) for value in obj.values())
    return isinstance(obj, Sequence) and len(obj) > 0 and isinstance(obj[0], DataLoader)


def held_optimizers(obj: Any) -> list[Optimizer]:
    """The optimizers in the attributes of an object that steps them, under whatever name, such as one that sets their rate.

    An object that gives batches steps them where it has a `step` method.
    """
    if isinstance(obj, (nn.Module, Optimizer)) or (
        _iterates(obj) and not callable(getattr(obj, "step", None))
    ):
        return []
    found: list[Optimizer] = []
    for value in _attributes(obj).values():
        parts: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
        parts = list(value.values()) if isinstance(value, Mapping) else parts
        found += [part for part in parts if isinstance(part, Optimizer) and part not in found]
    return found


def prepare_held_loaders(
    obj: Any, prepare: Callable[[DataLoader[Any]], Any], deal: Callable[[Any], Any]
) -> list[str] | None:
    """Replace the DataLoaders in the attributes of an object that iterates them, and their iterators.

    prepare, deal: what makes a prepared loader, and a dealt iterator.

    Returns their names (``InfiniteLoader.loader``); an empty list where there are none, None where an attribute cannot be set.
    """
    if isinstance(obj, (*_NO_BATCHES, DataLoader, Sequence)) or not _iterates(obj):
        return []
    names: list[str] = []
    for owner, name, value in _held(obj, DEPTH, set()):
        ready = deal(value) if isinstance(value, _BaseDataLoaderIter) else prepare(value)
        if ready is not value:
            try:
                setattr(owner, name, ready)
                if hasattr(owner, "total") and owner.total == known_length(value):  # of a bar
                    owner.total = known_length(ready)
            except (AttributeError, TypeError):
                return None
        names.append(f"{type(owner).__name__}.{name}")
    return names


def _iterates(obj: Any) -> bool:
    return any(callable(getattr(type(obj), name, None)) for name in ("__iter__", "__next__", "next"))


def _held(obj: Any, depth: int, seen: set[int]) -> Iterator[tuple[Any, str, Any]]:
    """The owner, name and value of each attribute that is a DataLoader or the iterator of one."""
    if depth == 0 or id(obj) in seen:
        return
    seen.add(id(obj))
    for name, value in _attributes(obj).items():
        if isinstance(value, (DataLoader, _BaseDataLoaderIter)):
            yield obj, name, value
        elif not isinstance(value, (*_NO_BATCHES, Sequence)) and _iterates(value):
            yield from _held(value, depth - 1, seen)


def _attributes(obj: Any) -> dict[str, Any]:
    """The attributes of an object of the script's own class, those of ``__slots__`` too."""
    slots = [name for kind in type(obj).__mro__ for name in _slots_of(kind)]
    found = {name: getattr(obj, name) for name in slots if hasattr(obj, name)}
    return {**found, **getattr(obj, "__dict__", {})}


def _slots_of(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
