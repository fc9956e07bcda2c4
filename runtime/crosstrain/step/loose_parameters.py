"""Parameters of prepared optimizers that belong to no prepared model: loose tensors, or a model of a wrapper class."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.protocol import Comm
from crosstrain.step import model as models
from crosstrain.step.gradients import GradientSync, PlainBackward
from crosstrain.step.starting_values import check_alike, initialized
from crosstrain.utils.dataclasses import DistributedDataParallelKwargs

if TYPE_CHECKING:
    from crosstrain.step.prepared import PreparedObjects

logger = logging.getLogger(__name__)


class LooseParameters:
    """Has the gradients averaged of those parameters of prepared optimizers that no prepared model holds."""

    def __init__(
        self,
        comm: Comm,
        prepared: PreparedObjects,
        ddp: DistributedDataParallelKwargs,
        plain_backward: PlainBackward,
    ) -> None:
        """``plain_backward``: see `GradientSync`."""
        self._comm = comm
        self._prepared = prepared
        self._ddp = ddp
        self._plain_backward = plain_backward
        self._told = False

    def adopt(self, optimizer: Optimizer) -> None:
        """Start the optimizer's loose parameters alike, and average their gradients from now on (collective).

        They share the buckets of the optimizer's other parameters. Raises RuntimeError where they differ over the
        ranks in number, shape or dtype.
        """
        if self._comm.world == 1:
            return
        self._prepared.held[id(optimizer)] = _size(optimizer)
        averaged = models.averaged_parameters()
        named = named_parameters(optimizer, self._prepared)
        loose = {name: param for name, param in named.items() if id(param) not in averaged}
        if not loose:
            return
        check_alike(f"the {type(optimizer).__name__}", loose, self._comm, "optimizer")
        broadcast_tensors(initialized(loose), self._comm)
        if not self._comm.averages:  # one program computes for all processes
            return
        self._sync_for(named).add(loose)
        if not self._told:
            self._told = True
            logger.debug(
                "%d parameters of the %s belong to no prepared model; buffers of their modules are not known, and each "
                "process keeps its own",
                len(loose),
                type(optimizer).__name__,
            )

    def adopt_new(self, optimizer: Optimizer) -> None:
        """`adopt` parameters that the optimizer got since. Called before each step."""
        held = self._prepared.held.get(id(optimizer))
        if held is not None and held != _size(optimizer):
            self.adopt(optimizer)

    def _sync_for(self, held: Mapping[str, nn.Parameter]) -> GradientSync:
        """What averages other parameters of the same optimizer; else a new `GradientSync`."""
        mine = {id(param) for param in held.values()}
        for sync in self._prepared.syncs:
            if isinstance(sync, GradientSync) and any(id(param) in mine for param in sync.parameters()):
                return sync
        sync = models.loose_sync(self._comm, self._ddp, self._plain_backward)
        self._prepared.keep_sync(sync)
        return sync


class LooseValues:
    """Saves and loads the values of loose parameters, which no model's state has."""

    def __init__(self, prepared: PreparedObjects) -> None:
        self._prepared = prepared

    def __str__(self) -> str:
        return "what the optimizers train beside the prepared models"

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(loose_parameters(self._prepared))

    def state_dict(self) -> dict[str, Tensor]:
        loose = loose_parameters(self._prepared)
        return {name: param.detach() for name, param in loose.items() if not is_lazy(param)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises RuntimeError where the state has other parameters, or of other shapes."""
        loose = loose_parameters(self._prepared)
        if odd := sorted(set(loose) ^ set(state)):
            raise RuntimeError(
                f"the checkpoint has other parameters of optimizers than this training, beside those of the prepared "
                f"models: {', '.join(odd[:5])}. Prepare the same models and optimizers before load_state."
            )
        with torch.no_grad():
            for name, param in loose.items():
                if is_lazy(param):
                    param.materialize(state[name].shape)
                param.copy_(state[name])


def loose_parameters(prepared: PreparedObjects) -> dict[str, nn.Parameter]:
    """The optimizers' parameters that belong to no prepared model, by name, each once."""
    known = {id(param) for model in prepared.models for param in model.parameters()}
    loose: dict[str, nn.Parameter] = {}
    for optimizer in prepared.optimizers:
        for name, param in named_parameters(optimizer, prepared).items():
            if id(param) not in known:
                known.add(id(param))
                loose[name] = param
    return loose


def named_parameters(optimizer: Optimizer, prepared: PreparedObjects) -> dict[str, nn.Parameter]:
    """The optimizer's parameters by their place in it, such as "SGD.param_groups[0].params[3]".

    Those that are spread over the ranks as DTensors are left out, because whoever spread them reduces their gradients.
    """
    number = next((n for n, one in enumerate(prepared.optimizers) if one is optimizer), 0)
    title = f"{type(optimizer).__name__} ({number + 1})" if number else type(optimizer).__name__
    return {
        f"{title}.param_groups[{index}].params[{place}]": param
        for index, group in enumerate(optimizer.param_groups)
        for place, param in enumerate(group["params"])
        if not hasattr(param, "placements")
    }


def _size(optimizer: Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)
