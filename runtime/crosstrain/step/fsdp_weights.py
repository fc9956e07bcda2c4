"""The weights of a model that is being sharded: brought to the device unit by unit, so that it never holds them all.

A model may be on the host of every process, on that of the main process and on `meta` elsewhere, or on `meta` everywhere.
Just before a unit is sharded its own weights, and only they, are put on the device and filled: from the main process,
or, where that has none, by the module itself. Sharding frees what belongs to other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.protocol import Comm
from crosstrain.comm.types import HOST
from crosstrain.step.gradients import check_alike
from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin

SMALL = 2**16  # bytes: smaller tensors are copied into one buffer, larger ones are sent from where they are


class UnitWeights:
    """Fills the units of one model; every process does so in the same order."""

    def __init__(self, model: nn.Module, plugin: FullyShardedDataParallelPlugin, comm: Comm) -> None:
        self._comm = comm
        self._device = HOST if plugin.cpu_offload else comm.device
        self._init: Callable[[nn.Module], object] | None = plugin.param_init_fn
        self._sync = plugin.sync_module_states is not False
        self._done: set[int] = set()
        self._kept: list[nn.Parameter] = []  # or another object might get the id of one that is done
        named = dict(model.named_parameters()) | dict(model.named_buffers())
        check_alike(model, named, comm)
        self._places = _places(model)
        self._unmade = self._check_meta({name for name, tensor in named.items() if tensor.is_meta})
        self._names = {id(tensor): name for name, tensor in named.items()}

    def _check_meta(self, mine: set[str]) -> set[str]:
        """What has to be initialised, because the main process has no weights. RuntimeError if nobody sends them."""
        everywhere: list[set[str]] = self._comm.all_gather_object(mine)
        unmade = everywhere[0]
        if not self._sync and any(names != unmade for names in everywhere):
            raise RuntimeError(
                "some processes hold no weights (they are on the meta device), and sync_module_states=False keeps the "
                "main process from sending them: leave sync_module_states out."
            )
        return unmade

    def fill(self, unit: nn.Module) -> list[nn.Parameter]:
        """Put the weights of a unit that are in no other on the device, alike on every process; returns them."""
        params, tensors = [], []
        unmade: dict[nn.Module, list[str]] = {}
        for module in unit.modules():
            for name, tensor in [*_own(module._parameters), *_own(module._buffers)]:
                if id(tensor) in self._done or isinstance(tensor, DTensor):
                    continue
                if self._names.get(id(tensor)) in self._unmade:
                    unmade.setdefault(module, []).append(name)
                placed = self._place(module, name, tensor)
                self._done.add(id(placed))
                tensors.append(placed.detach())
                if isinstance(placed, nn.Parameter):
                    params.append(placed)
        for module, names in unmade.items():
            self._initialise(module, names)
        if self._sync:
            broadcast_tensors(tensors, self._comm, chunk=SMALL)
        self._kept += params
        return params

    def _place(self, module: nn.Module, name: str, tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            tensor.data = tensor.data.to(self._device)
            return tensor
        empty = torch.empty_like(tensor, device=self._device)
        placed = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
        for owner, under in self._places.get(id(tensor), [(module, name)]):
            table = owner._parameters if isinstance(tensor, nn.Parameter) else owner._buffers
            table[under] = placed  # type: ignore[assignment]
        return placed

    def _initialise(self, module: nn.Module, names: list[str]) -> None:
        """As the module's author says; on every process, so that random streams stay alike."""
        make: Any = self._init or getattr(type(module), "reset_parameters", None)
        if make is None:
            raise RuntimeError(
                f"{type(module).__name__} was made on the meta device, and nothing says what {', '.join(names)} shall "
                f"be: it has no reset_parameters(). Make the model on the CPU of the main process, or pass "
                f"FullyShardedDataParallelPlugin(param_init_fn=...)."
            )
        with torch.no_grad():
            make(module)


def release(params: list[nn.Parameter]) -> None:
    """Give back the memory of parameters whose place sharded ones have taken; an optimizer may still know them."""
    for param in params:
        param.data = param.data.new_empty(0)


def _own(table: Any) -> Iterator[tuple[str, Tensor]]:
    return ((name, tensor) for name, tensor in list(table.items()) if tensor is not None)


def _places(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Every module and name by which a tensor is known: tied ones have several."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, tensor in [*_own(module._parameters), *_own(module._buffers)]:
            places.setdefault(id(tensor), []).append((module, name))
    return places
