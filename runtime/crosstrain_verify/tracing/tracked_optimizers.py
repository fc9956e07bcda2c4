"""What optimizers did to their parameters in this process, and in the processes that a notebook started.

A forked process has its objects at the same addresses as its parent. So optimizers and parameters are identified by their
addresses, in the forked process and in the parent again when the other one has ended.
"""

from __future__ import annotations

import gc
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from crosstrain_verify.records.traces import Parameter


@dataclass
class TrackedParameter:
    """One parameter of an optimizer.

    Args:
        tensor: None if it belonged to another process, which has ended.
        first: its value before the first step.
        signal: see `traces.Parameter`.
        left: the value that another process gave it; None if this process was the last to train it.
        here: the value that it had in this process at that time.
    """

    tensor: Tensor | None
    first: Tensor
    signal: float = 0.0
    name: str = ""
    left: Tensor | None = None
    here: Tensor | None = None

    @property
    def value(self) -> Tensor:
        """The current value: this process's, unless another process trained it last and it is unchanged here since."""
        if self.left is not None and (
            self.tensor is None or (self.here is not None and torch.equal(self.tensor, self.here))
        ):
            return self.left
        assert self.tensor is not None
        return self.tensor.detach()


@dataclass
class TrackedOptimizers:
    """The optimizers in the order of their first steps, and their parameters.

    Args:
        optimizers: None for one that belonged to a process that has ended.
        addresses: of the optimizers.
        groups: by optimizer, the addresses of its parameters.
        tracked: the parameters by address.
        counts: by optimizer's number and parameter's address, the steps in which it had a gradient.
    """

    optimizers: list[Optimizer | None]
    addresses: list[int]
    groups: list[list[int]]
    tracked: dict[int, TrackedParameter]
    counts: Counter[tuple[int, int]]

    @classmethod
    def nothing(cls) -> TrackedOptimizers:
        """Before the first step."""
        return cls([], [], [], {}, Counter())

    def before_step(self, optimizer: Optimizer) -> int:
        """Note that an optimizer is about to step, and return its number."""
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
            self.addresses.append(id(optimizer))
            self.groups.append([])
        number = self.optimizers.index(optimizer)
        parameters = parameters_of(optimizer)
        self.groups[number] = list(map(id, parameters))
        for parameter in parameters:
            entry = self.tracked.get(id(parameter))
            if entry is None:
                self.tracked[id(parameter)] = TrackedParameter(parameter, parameter.detach().clone())
            else:
                entry.left = entry.here = None
        self.counts.update((number, id(p)) for p in parameters if p.grad is not None)
        return number

    def saw(self, parameters: Sequence[Tensor], squares: Sequence[float]) -> None:
        """Keep the largest share that each gradient had in the norm of all. squares: the gradients' squared norms."""
        norm = math.sqrt(math.fsum(squares))
        for parameter, square in zip(parameters, squares, strict=True):
            share = math.sqrt(square) / norm if norm > 0 else 0.0
            entry = self.tracked[id(parameter)]
            entry.signal = max(entry.signal, share)

    def parameters(self, steps: Counter[int]) -> tuple[tuple[Parameter, ...], NDArray[np.float64]]:
        """The parameters of every optimizer as they are now, and their values. steps: by optimizer, the steps it made."""
        names = parameter_names([t.tensor for t in self.tracked.values() if t.tensor is not None])
        found: list[Parameter] = []
        weights: list[NDArray[np.float64]] = []
        for number, (optimizer, addresses) in enumerate(zip(self.optimizers, self.groups, strict=True)):
            live = parameters_of(optimizer) if optimizer is not None else []
            for position, address in enumerate(map(id, live) if live else addresses):
                entry = self.tracked.get(address)
                if entry is None:  # of a group that was added after the last step
                    entry = TrackedParameter(live[position], live[position].detach())
                value = entry.value
                final, first = _flat(value), _flat(entry.first)
                name = names.get(entry.tensor, "") if entry.tensor is not None else entry.name
                found.append(
                    Parameter(
                        name=name or f"optimizer {number}, parameter {position}",
                        shape=tuple(_real(value).shape),
                        epsilon=epsilon(value),
                        moved=float(np.linalg.norm(final - first)),
                        signal=entry.signal,
                        trained=self.counts[number, address],
                        steps=steps[number],
                    )
                )
                weights.append(final)
        return tuple(found), np.concatenate(weights) if weights else np.zeros(0)

    # -- from process to process -----------------------------------------------------------------------------

    def packed(self) -> TrackedOptimizers:
        """The same without this process's objects, for the process that this one was forked from."""
        names = parameter_names([t.tensor for t in self.tracked.values() if t.tensor is not None])
        tracked = {}
        for address, entry in self.tracked.items():
            name = names.get(entry.tensor, "") if entry.tensor is not None else entry.name
            left = entry.value.detach().clone()
            tracked[address] = TrackedParameter(None, entry.first, entry.signal, name, left)
        return replace(self, optimizers=[None] * len(self.optimizers), tracked=tracked)

    def unpacked(self) -> TrackedOptimizers:
        """What another process packed, with the objects that this process has, too."""
        own = {id(thing): thing for thing in living()}
        tracked = {}
        for address, entry in self.tracked.items():
            tensor = own.get(address)
            if isinstance(tensor, Tensor):
                entry = replace(entry, tensor=tensor, here=tensor.detach().clone())
            tracked[address] = entry
        optimizers = [own.get(address) for address in self.addresses]
        return replace(
            self,
            optimizers=[one if isinstance(one, Optimizer) else None for one in optimizers],
            tracked=tracked,
            groups=list(self.groups),
            addresses=list(self.addresses),
            counts=Counter(self.counts),
        )


def living() -> list[Any]:
    """Every optimizer and tensor of this process."""
    # type(), not isinstance(): isinstance would make a lazy proxy load the object that it stands for.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), (Tensor, Optimizer))]


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The optimizer's parameters, group by group."""
    return list(itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups))


def parameter_names(parameters: Sequence[Tensor]) -> dict[Tensor, str]:
    """The longest dotted name of each parameter in any living module; parameters without a name are left out."""
    wanted = set(parameters)
    names: dict[Tensor, str] = {}
    if not wanted:
        return names
    # type(), not isinstance(): see `living`.
    for module in [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]:
        for name, parameter in module.named_parameters():
            if parameter in wanted and len(name) > len(names.get(parameter, "")):
                names[parameter] = name
    return names


def epsilon(tensor: Tensor) -> float:
    """The machine epsilon of a tensor's dtype; 0.0 for integers."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return torch.finfo(tensor.dtype).eps
    return 0.0


def _real(tensor: Tensor) -> Tensor:
    """The values; those of a complex tensor with real and imaginary parts as a last dimension."""
    values = tensor.detach()
    return torch.view_as_real(values) if values.is_complex() else values


def _flat(tensor: Tensor) -> NDArray[np.float64]:
    flat: NDArray[np.float64] = _real(tensor).double().flatten().cpu().numpy()
    # The array may share its memory with a float64 parameter, which the script's exit handlers may still change.
    return flat.copy()
