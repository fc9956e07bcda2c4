"""Checks of what `prepare` is given: batches from other objects than DataLoaders, models on several devices."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NoReturn

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, IterableDataset, Sampler

from crosstrain.utils import checks
from crosstrain.utils.checks import Place

_NO_BATCHES = (
    str,
    bytes,
    bytearray,
    type,
    range,
    io.IOBase,
    Set,
    Tensor,
    nn.Module,
    Optimizer,
    LRScheduler,
    Sampler,
)


def feeds_batches(obj: Any) -> bool:
    """Whether a loop over the object may give batches; containers of options, modules or parameters do not."""
    if (
        isinstance(obj, (*_NO_BATCHES, DataLoader))
        or not hasattr(obj, "__iter__")
        or hasattr(obj, "__array__")
    ):
        return False
    if isinstance(obj, Mapping):
        return any(isinstance(value, DataLoader) for value in obj.values())
    if isinstance(obj, Sequence):
        first = next(iter(obj), None)
        return isinstance(first, DataLoader) or _holds_tensors(first)
    return isinstance(obj, IterableDataset) or any(
        hasattr(obj, name) for name in ("__len__", "__next__", "dataset")
    )


def _holds_tensors(item: Any) -> bool:
    if isinstance(item, Mapping):
        return any(_holds_tensors(value) for value in item.values())
    if isinstance(item, (list, tuple)):
        return any(_holds_tensors(value) for value in item)
    return isinstance(item, Tensor) and not isinstance(item, nn.Parameter)


def note_feeders(given: Iterable[Any], is_main: bool) -> Place | None:
    """Warn about each object that may give batches and is not prepared.

    Returns the place of the `prepare` call if there is one; ``is_main``: whether this process warns.
    """
    feeders = [obj for obj in given if feeds_batches(obj)]
    if not feeders:
        return None
    place = checks.here()
    checks.doubt("loader", place)
    for obj in feeders if is_main else ():
        held = isinstance(obj, (Mapping, Sequence)) and not _holds_tensors(next(iter(obj), None))
        remedy = (
            "pass its DataLoaders one by one"
            if held
            else "make a torch.utils.data.DataLoader of it and pass that"
        )
        warnings.warn(
            f"{place}: `prepare` returns the {type(obj).__name__} as it is, because it is no DataLoader: its batches "
            f"are neither split over the processes nor moved to the device. If you train on it, {remedy}.",
            stacklevel=4,
        )
    return place


def check_device(model: nn.Module) -> None:
    """Raise ValueError for a model whose parameters are on several devices.

    Every process builds the model by the same lines, so that all raise or none does.
    """
    devices = sorted({str(param.device) for param in model.parameters()})
    if len(devices) > 1:
        _fail(
            f"the {type(model).__name__} is spread over several devices ({', '.join(devices)}), but every process "
            f"trains a whole model on its own device. Build it on one of them, or shard it over the processes with "
            f"FullyShardedDataParallelPlugin."
        )


def _fail(message: str) -> NoReturn:
    place = checks.here()
    message = f"{place}: {message}"
    checks.failed("module", message, place)
    raise ValueError(message)
