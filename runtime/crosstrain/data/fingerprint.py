"""The check, at `prepare`, that all processes prepare the same loader. Of a random split that differs they take one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from crosstrain.comm.protocol import Comm
from crosstrain.data import self_sharded
from crosstrain.data.presharded import misfit, own_sampler, share_of
from crosstrain.data.samplers import known_length
from crosstrain.utils import checks
from crosstrain.utils.messages import say

_HASH = re.compile(r"\(\w{12}\)")


def check_same_loader(loader: DataLoader[Any], comm: Comm, *, one_stream: bool) -> None:
    """Compare over the processes everything that decides about a loader's batches (collective).

    Where only the indices of a subset differ, all processes take process 0's: a random split that was drawn where each
    process draws its own numbers.

    one_stream: whether all rows come from one iterable data set, which must then be whole on every process.

    Raises ValueError on every process, with what differs and where, or with the share of a DistributedSampler that is
    another process's.
    """
    prints = fingerprint(loader)
    held = self_sharded.attributes(loader.dataset, comm.rank) if one_stream else {}
    everybody = comm.all_gather_object((prints, share_of(loader), held))
    prints_of, shares, helds = map(list, zip(*everybody, strict=True))
    data = prints["data set"]
    _take_one_split(loader, prints_of, comm)
    message = _difference(prints_of) or misfit(shares, comm, data)
    if comm.world > 1:
        message = message or self_sharded.difference(helds, data)
    if message is not None:
        checks.failed("loader", message)
        raise ValueError(message)
    if comm.world > 1:
        checks.held("loader")


_INDICES = ("subset", "sampler's indices")


def _take_one_split(loader: DataLoader[Any], prints: list[dict[str, str]], comm: Comm) -> None:
    """Give every process process 0's indices where they differ and are as many (collective), and correct ``prints``."""
    odd = [name for name in _INDICES if len({one.get(name) for one in prints}) > 1]
    if not odd or any(len({_HASH.sub("", one.get(name, "")) for one in prints}) > 1 for name in odd):
        return
    if len({one["length"] for one in prints}) > 1:
        return
    holders = list(_holders_of_indices(loader))
    for holder, indices in zip(
        holders, comm.broadcast_object([holder.indices for holder in holders]), strict=True
    ):
        if comm.rank:
            holder.indices = indices
    for one in prints:
        one.update({name: prints[0][name] for name in odd})
    if comm.rank == 0:
        say(
            f"the {' and the '.join(odd)} of the loader over {prints[0]['data set']} are not the same on all processes: "
            f"all take process 0's. Draw a random split outside of loops over prepared loaders, after Accelerator()."
        )


def _holders_of_indices(loader: DataLoader[Any]) -> Iterator[Any]:
    """The subsets and samplers whose indices decide about the loader's batches."""
    for owner in (*_subsets(loader.dataset), loader.batch_sampler, loader.sampler):
        if getattr(owner, "indices", None) is not None:
            yield owner


def _difference(prints: list[dict[str, str]]) -> str | None:
    """A message about the first property that is not the same on all processes; None if all are."""
    for name in dict.fromkeys(name for one in prints for name in one):
        values = [one.get(name, "absent") for one in prints]
        odd = [rank for rank, value in enumerate(values) if value != values[0]]
        if odd:
            return (
                f"the loader over {prints[0]['data set']} is not the same on all processes: its {name} is "
                f"{values[0]} on process 0 and {values[odd[0]]} on process {odd[0]}. Training would miss "
                "samples and mix up training and validation data. Construct Accelerator() before a random "
                "split is drawn (it copies process 0's random state to all), or pass random_split and the "
                "sampler a seeded generator."
            )
    return None


def fingerprint(loader: DataLoader[Any]) -> dict[str, str]:
    """The properties that decide about a loader's batches, by name, as text short enough to print."""
    found = {
        "data set": _kinds(loader.dataset),
        "length": _length(loader.dataset),
        "batch size": str(loader.batch_size),
        "drop_last": str(loader.drop_last),
    }
    if isinstance(loader.dataset, IterableDataset):
        return found
    subsets = ", ".join(_digest(subset.indices) for subset in _subsets(loader.dataset)) or "none"
    found |= {"number of batches": _length(loader._index_sampler), "subset": subsets}
    for owner in (loader.batch_sampler, loader.sampler):
        for name in ("indices", "weights"):
            values = getattr(owner, name, None)
            if values is not None:
                found[f"sampler's {name}"] = _digest(values)
    if (sampler := own_sampler(loader)) is not None:
        decides = {name: getattr(sampler, name, None) for name in ("shuffle", "seed", "drop_last", "epoch")}
        found["sampler"] = f"{type(sampler).__name__} of {sampler.num_replicas} processes ({decides})"
    if isinstance(loader.sampler, (list, tuple)):
        found["sampler"] = _digest(loader.sampler)
    return found


def _subsets(dataset: Any) -> Iterator[Any]:
    """The data sets, one inside the other, that have the indices of a subset."""
    while (inner := getattr(dataset, "dataset", None)) is not None:
        if getattr(dataset, "indices", None) is not None:
            yield dataset
        dataset = inner


def _digest(values: Any) -> str:
    """The length and a short hash of a list of numbers; for anything else its type."""
    try:
        numbers = (
            torch.as_tensor(values if isinstance(values, torch.Tensor) else list(values)).cpu().contiguous()
        )
    except (TypeError, ValueError, RuntimeError):
        return type(values).__name__
    content = hashlib.blake2b(numbers.numpy().tobytes(), digest_size=6).hexdigest()
    return f"{numbers.numel()} values ({content})"


def _length(holder: Any) -> str:
    length = known_length(holder)
    return "unknown" if length is None else str(length)


def _kinds(dataset: Any) -> str:
    """The types of a data set and of those inside it, such as ``Subset(MNIST)``."""
    names: list[str] = []
    while dataset is not None and len(names) < 5:
        names.append(type(dataset).__name__)
        dataset = getattr(dataset, "dataset", None)
    return "(".join(names) + ")" * (len(names) - 1)
