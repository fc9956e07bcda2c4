"""Sharded training: torch's `fully_shard` (FSDP2) on a prepared model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as dcp_state
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakIdKeyDictionary

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.device_mesh import device_mesh
from crosstrain.comm.devices import any_device
from crosstrain.comm.protocol import Comm
from crosstrain.step.fsdp_weights import UnitWeights, release
from crosstrain.step.model_sync import ModelSync
from crosstrain.step.precision import Precision
from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin

# The sharded parameter for each whole one; optimizers that were made before sharding hold the whole ones.
_REPLACED: Any = WeakIdKeyDictionary()


class ShardedSync(ModelSync):
    """The `ModelSync` of a sharded model, whose gradients FSDP2 reduces in its own hooks."""

    def __init__(self, model: FSDPModule, comm: Comm) -> None:
        self._model = model
        self._comm = comm
        self._buffers_due = False

    def parameters(self) -> Iterator[nn.Parameter]:
        return cast("nn.Module", self._model).parameters()

    def expect(self) -> None:
        self._buffers_due = True
        self.averagings += 1

    def require(self, averaging: bool) -> None:
        super().require(averaging)
        self._model.set_requires_gradient_sync(averaging)

    def discard(self) -> None:
        """Drop the whole gradients that FSDP2 keeps until the window's last backward pass.

        `zero_grad` does not see them.
        """
        for module in cast("nn.Module", self._model).modules():
            for sharded in _sharded_by(module):
                sharded.unsharded_accumulated_grad = None
                if hasattr(sharded, "_unsharded_param"):  # exists after its first forward pass
                    sharded.unsharded_param.grad = None

    def send_buffers(self) -> None:
        if self._buffers_due:
            module = cast("nn.Module", self._model)
            broadcast_tensors([buffer.data for buffer in module.buffers()], self._comm)
        self._buffers_due = False


def shard(
    model: nn.Module, plugin: FullyShardedDataParallelPlugin, comm: Comm, precision: Precision
) -> ShardedSync:
    """Shard the model in place, unit by unit and then the rest (collective); its parameters become DTensors.

    At most one unit is whole on the device at any time: see `fsdp_weights`. Raises ValueError where hybrid sharding
    does not fit the machines, and for an unknown wrap policy or class name.
    """
    before = dict(model.named_parameters(remove_duplicate=False))
    check_machines(plugin, comm)
    mesh = mesh_of(plugin, comm)
    inner, outer = _policies(plugin, precision)
    options: dict[str, Any] = {
        "mesh": mesh,
        "reshard_after_forward": plugin.reshard_after_forward,
        "offload_policy": _offloading() if plugin.cpu_offload else OffloadPolicy(),
    }
    if plugin.ignored_modules:
        ignored = {param for module in plugin.ignored_modules for param in module.parameters()}
        options["ignored_params"] = ignored
    is_unit = wrap_policy(plugin, model)
    units = [module for _, module in _children_first(model) if module is not model and is_unit(module)]
    weights = UnitWeights(model, plugin, comm)
    for module in units:
        whole = weights.fill(module)
        if plugin.activation_checkpointing:
            forward: Any = partial(checkpoint, module.forward, use_reentrant=False)
            module.forward = forward
        fully_shard(module, mp_policy=inner, **options)
        release(whole)
    rest = weights.fill(model)
    fully_shard(model, mp_policy=outer, **options)
    release([param for param in rest if param not in options.get("ignored_params", ())])
    for method in plugin.forward_methods:
        register_fsdp_forward_method(model, method)
    after = dict(model.named_parameters(remove_duplicate=False))
    for name, old in before.items():
        if old is not after[name]:
            _REPLACED[old] = after[name]
    return ShardedSync(cast("FSDPModule", model), comm)


def mesh_of(plugin: FullyShardedDataParallelPlugin, comm: Comm) -> DeviceMesh:
    """The mesh that the plugin's models are sharded over."""
    if not plugin.is_hybrid:
        return device_mesh(comm)
    return device_mesh(comm, plugin.hybrid_shard_size or comm.local_world)


def check_machines(plugin: FullyShardedDataParallelPlugin, comm: Comm) -> None:
    """Raise ValueError where each machine is to hold a copy, and their numbers of processes differ (collective)."""
    if not plugin.is_hybrid or plugin.hybrid_shard_size is not None:
        return
    sizes = sorted(set(comm.all_gather_object(comm.local_world)))
    if len(sizes) > 1:
        raise ValueError(
            f"hybrid sharding keeps a copy of the model on every machine, and the machines have "
            f"{' and '.join(map(str, sizes))} processes: start as many on each, or set hybrid_shard_size."
        )


def _sharded_by(module: nn.Module) -> Iterator[Any]:
    """FSDP2's internal records of the parameters that it shards with this unit."""
    if not isinstance(module, FSDPModule):
        return
    state: Any = module._get_fsdp_state()
    # Since torch 2.13 a unit has several groups; before, it had one or none.
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    for group in groups:
        yield from group.fsdp_params if group is not None else ()


def _offloading() -> CPUOffloadPolicy:
    """Keeps parameters in host memory, which is pinned where there is a device to copy them to."""
    return CPUOffloadPolicy(pin_memory=any_device())


def _policies(
    plugin: FullyShardedDataParallelPlugin, precision: Precision
) -> tuple[MixedPrecisionPolicy, MixedPrecisionPolicy]:
    """The precision policies of the units and of the whole model.

    Both compute in the run's precision and reduce in float32; the whole model returns float32.
    """
    if plugin.mixed_precision_policy is not None:
        return (plugin.mixed_precision_policy,) * 2
    inner = MixedPrecisionPolicy()
    if precision.dtype is not None:
        inner = MixedPrecisionPolicy(param_dtype=precision.dtype, reduce_dtype=torch.float32)
    return inner, replace(inner, output_dtype=torch.float32 if precision.dtype is not None else None)


def wrap_policy(plugin: FullyShardedDataParallelPlugin, model: nn.Module) -> Callable[[nn.Module], bool]:
    """The function that tells which modules are units of sharding; ValueError for unknown policies and class names."""
    policy = plugin.auto_wrap_policy
    if callable(policy):
        return policy
    names = plugin.transformer_cls_names_to_wrap or getattr(model, "_no_split_modules", None)
    kind = (policy or ("size_based_wrap" if plugin.min_num_params else "transformer_based_wrap")).lower()
    if kind == "no_wrap":
        return lambda module: False
    if kind == "size_based_wrap":
        return _by_size(plugin.min_num_params or 10**8)
    if kind != "transformer_based_wrap":
        raise ValueError(
            f"auto_wrap_policy={policy!r} is unknown; choose transformer_based_wrap, size_based_wrap, no_wrap or "
            f"a function"
        )
    wanted = set(names or ())
    there = {type(module).__name__ for module in model.modules()}
    if missing := sorted(wanted - there):
        raise ValueError(
            f"transformer_cls_names_to_wrap names {missing}, but {type(model).__name__} has no such modules; it has "
            f"{sorted(there)}"
        )
    return lambda module: type(module).__name__ in wanted


def _by_size(least: int) -> Callable[[nn.Module], bool]:
    """A module is a unit if enough of its parameters are in no other yet. It is called with children first."""
    taken: set[int] = set()

    def is_unit(module: nn.Module) -> bool:
        free = [param for param in module.parameters() if id(param) not in taken]
        if sum(param.numel() for param in free) < least or isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            return False
        taken.update(id(param) for param in free)
        return True

    return is_unit


def _children_first(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return list(reversed(list(model.named_modules())))


def adopt_optimizer(optimizer: Optimizer) -> None:
    """Replace an optimizer's whole parameters by the sharded ones; its groups and state are kept."""
    for group in optimizer.param_groups:
        for index, old in enumerate(group["params"]):
            new = _REPLACED.get(old)
            if new is None:
                continue
            group["params"][index] = new
            if old in optimizer.state:
                optimizer.state[new] = {
                    key: _like(value, new) for key, value in optimizer.state.pop(old).items()
                }


def _like(value: Any, param: DTensor) -> Any:
    """A value of the optimizer's state, sharded like its parameter if it has the same shape."""
    if isinstance(value, Tensor) and value.shape == param.shape and value.dim():
        return distribute_tensor(value.to(param.device), param.device_mesh, param.placements)
    return value


def is_sharded(model: nn.Module) -> bool:
    """Whether the model was sharded."""
    return isinstance(model, FSDPModule)


def with_local_part(tensor: Tensor, replace_local: Callable[[Tensor], Tensor]) -> Tensor:
    """A DTensor like this one with another local part, on any device."""
    assert isinstance(tensor, DTensor), f"a {type(tensor).__name__} has no local part"
    make: Any = DTensor  # torch leaves its constructor untyped
    return cast("Tensor", make(replace_local(tensor._local_tensor), tensor._spec, requires_grad=False))


FULL = dcp_state.StateDictOptions(full_state_dict=True, cpu_offload=True)


def full_state_dict(model: nn.Module) -> dict[str, Any]:
    """The whole state on rank 0; an empty one elsewhere (collective)."""
    return dcp_state.get_model_state_dict(model, options=FULL)


def load_full_state_dict(model: nn.Module, state: dict[str, Any], strict: bool = True) -> None:
    """Load each process's part of a whole state, which every process has read (collective)."""
    options = dcp_state.StateDictOptions(full_state_dict=True, strict=strict)
    dcp_state.set_model_state_dict(model, state, options=options)
