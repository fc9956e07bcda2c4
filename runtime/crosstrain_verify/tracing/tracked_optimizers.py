"""What optimizers have done to their parameters in this process, and in those that a notebook started.

A process that is forked has its objects where the one that it was forked from has them, so an optimizer or a parameter
is told by its address there, and here again when that process is gone.
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
    """One parameter. tensor: None where it was another process's, which is gone.

    first: its value before the first step. signal: see `traces.Parameter`. left: the value in which another process left
    it, None where this one was the last to train it; here: the value that it had in this process then.
    """

    tensor: Tensor | None
    first: Tensor
    signal: float = 0.0
    name: str = ""
    left: Tensor | None = None
    here: Tensor | None = None

    @property
    def value(self) -> Tensor:
        """What it has come to: what this process has made of it since another one has trained it, if anything."""
        if self.left is not None and (
            self.tensor is None or (self.here is not None and torch.equal(self.tensor, self.here))
        ):
            return self.left
        assert self.tensor is not None
        return self.tensor.detach()


@dataclass
class TrackedOptimizers:
    """The optimizers by first step (None: gone), the addresses of each one and of its parameters, and the parameters.

    counts: by optimizer and parameter, the steps in which it had a gradient.
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
        """Note that an optimizer is about to step; its number."""
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
        """Keep the largest share that each gradient has had in all of them."""
        norm = math.sqrt(math.fsum(squares))
        for parameter, square in zip(parameters, squares, strict=True):
            share = math.sqrt(square) / norm if norm > 0 else 0.0
            entry = self.tracked[id(parameter)]
            entry.signal = max(entry.signal, share)

    def parameters(self, steps: Counter[int]) -> tuple[tuple[Parameter, ...], NDArray[np.float64]]:
        """The parameters of every optimizer as they are now, and their values. steps: of each optimizer."""
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
        """All of it without the objects themselves, to be read where this process was forked from."""
        names = parameter_names([t.tensor for t in self.tracked.values() if t.tensor is not None])
        tracked = {}
        for address, entry in self.tracked.items():
            name = names.get(entry.tensor, "") if entry.tensor is not None else entry.name
            left = entry.value.detach().clone()
            tracked[address] = TrackedParameter(None, entry.first, entry.signal, name, left)
        return replace(self, optimizers=[None] * len(self.optimizers), tracked=tracked)

    def unpacked(self) -> TrackedOptimizers:
        """What another process has packed, with the objects that are this process's, too."""
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
    # type(), not isinstance(): a lazy proxy answers isinstance by loading what it stands for.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), (Tensor, Optimizer))]


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The optimizer's parameters, group by group."""
    return list(itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups))


def parameter_names(parameters: Sequence[Tensor]) -> dict[Tensor, str]:
    """The longest dotted name of each parameter in any module that is alive; unnamed ones are left out."""
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
    """The values, with real and imaginary parts as a last dimension where there are both."""
    values = tensor.detach()
    return torch.view_as_real(values) if values.is_complex() else values


def _flat(tensor: Tensor) -> NDArray[np.float64]:
    flat: NDArray[np.float64] = _real(tensor).double().flatten().cpu().numpy()
    # numpy shares memory with a float64 parameter, which a script's exit handlers may still change.
    return flat.copy()
