"""Bringing the weights of a model to the device unit by unit while it is sharded, so that it never holds them all.

The model may be on the host of every process, on the host of the main process and on `meta` elsewhere, or on `meta`
everywhere. Just before a unit is sharded, its own weights are put on the device and get the main process's values or,
where that has none, those of the module's own initialisation. Sharding then frees the parts of other processes.
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
from crosstrain.step.starting_values import check_alike
from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin

SMALL = 2**16  # bytes; smaller tensors are sent in one buffer, larger ones by themselves


class UnitWeights:
    """Fills the units of one model with weights; every process does so in the same order (collective)."""

    def __init__(self, model: nn.Module, plugin: FullyShardedDataParallelPlugin, comm: Comm) -> None:
        self._comm = comm
        self._device = HOST if plugin.cpu_offload else comm.device
        self._init: Callable[[nn.Module], object] | None = plugin.param_init_fn
        self._sync = plugin.sync_module_states is not False
        self._done: set[int] = set()
        self._kept: list[
            nn.Parameter
        ] = []  # keeps them alive: another object could reuse the id of a freed one
        named = dict(model.named_parameters()) | dict(model.named_buffers())
        check_alike(type(model).__name__, named, comm)
        self._places = _places(model)
        self._unmade = self._check_meta({name for name, tensor in named.items() if tensor.is_meta})
        self._names = {id(tensor): name for name, tensor in named.items()}

    def _check_meta(self, mine: set[str]) -> set[str]:
        """The names that must be initialised, because the main process has no weights either.

        Raises RuntimeError where some processes have no weights and the main process is not to send them.
        """
        everywhere: list[set[str]] = self._comm.all_gather_object(mine)
        unmade = everywhere[0]
        if not self._sync and any(names != unmade for names in everywhere):
            raise RuntimeError(
                "some processes hold no weights (they are on the meta device), and sync_module_states=False keeps the "
                "main process from sending them: leave sync_module_states out."
            )
        return unmade

    def fill(self, unit: nn.Module) -> list[nn.Parameter]:
        """Put the unit's own weights on the device, equal on every process; returns its parameters."""
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
        """Initialise the module by its own method on every process, so that random streams stay equal.

        Raises RuntimeError for a module without `reset_parameters`, where the plugin has no `param_init_fn`.
        """
        make: Any = self._init or getattr(type(module), "reset_parameters", None)
        if make is None:
            raise RuntimeError(
                f"{type(module).__name__} was made on the meta device, and nothing initialises {', '.join(names)}: "
                f"it has no reset_parameters(). Make the model on the CPU of the main process, or pass "
                f"FullyShardedDataParallelPlugin(param_init_fn=...)."
            )
        with torch.no_grad():
            make(module)


def release(params: list[nn.Parameter]) -> None:
    """Free the memory of parameters that sharded ones have replaced; an optimizer may still hold them."""
    for param in params:
        param.data = param.data.new_empty(0)


def _own(table: Any) -> Iterator[tuple[str, Tensor]]:
    return ((name, tensor) for name, tensor in list(table.items()) if tensor is not None)


def _places(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """The modules and names of each tensor, by id; tied tensors have several."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, tensor in [*_own(module._parameters), *_own(module._buffers)]:
            places.setdefault(id(tensor), []).append((module, name))
    return places
