"""Preparing a model in place: on the device, equal on every rank, computing in the run's precision."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from crosstrain.comm.protocol import Comm
from crosstrain.run import RUN
from crosstrain.step import ddp_members
from crosstrain.step.gradients import GradientSync, PlainBackward
from crosstrain.step.model_sync import ModelSync
from crosstrain.step.precision import Precision, compiled_inner, remove_precision
from crosstrain.step.starting_values import start_alike
from crosstrain.step.uneven_inputs import join
from crosstrain.utils import checks
from crosstrain.utils.dataclasses import DistributedDataParallelKwargs, FullyShardedDataParallelPlugin
from crosstrain.utils.messages import say

# The prepared models, and what keeps each equal (None with one process, or where it needs no averaging).
_PREPARED: weakref.WeakKeyDictionary[nn.Module, ModelSync | None] = weakref.WeakKeyDictionary()
# What averages parameters of prepared optimizers that belong to none of these models.
# Keys are in the order of preparation, which is the same on all ranks.
_LOOSE: weakref.WeakValueDictionary[int, GradientSync] = weakref.WeakValueDictionary()
_numbers = count()


def is_prepared(model: nn.Module) -> bool:
    """Whether `prepare` has seen this model."""
    return model in _PREPARED


def prepared_parameters() -> set[int]:
    """The ids of the parameters of all prepared models."""
    return {id(param) for model in _PREPARED for param in model.parameters()}


def averaged_parameters() -> set[int]:
    """The ids of the parameters whose gradients are averaged."""
    syncs = [sync for sync in (*_PREPARED.values(), *_LOOSE.values()) if sync is not None]
    return {id(param) for sync in syncs for param in sync.parameters()}


def is_sharded(model: nn.Module) -> bool:
    """Whether the model's parameters are sharded over the processes."""
    fsdp = sys.modules.get("crosstrain.step.fsdp")
    return fsdp is not None and bool(fsdp.is_sharded(model))


def sync_of(model: nn.Module) -> ModelSync | None:
    """The `ModelSync` of a model; None with one process, and for a model that was not prepared."""
    return _PREPARED.get(model)


def syncs_of(model: nn.Module | None) -> list[ModelSync]:
    """What averages the model's parameters: its `ModelSync`, or those of its parameters that are loose.

    For None, those of all loose parameters.
    """
    if model is None:
        return list(_LOOSE.values())
    if model in _PREPARED:
        sync = _PREPARED[model]
        return [] if sync is None else [sync]
    if not _LOOSE:
        return []
    mine = {id(param) for param in model.parameters()}
    return [sync for sync in _LOOSE.values() if any(id(param) in mine for param in sync.parameters())]


def loose_sync(comm: Comm, ddp: DistributedDataParallelKwargs, plain_backward: PlainBackward) -> GradientSync:
    """A `GradientSync` for parameters that belong to no prepared model."""
    sync = GradientSync(None, comm, ddp, plain_backward)
    _LOOSE[next(_numbers)] = sync
    return sync


def prepare(
    model: nn.Module,
    comm: Comm,
    precision: Precision,
    *,
    device: torch.device | None,
    ddp: DistributedDataParallelKwargs,
    fsdp: FullyShardedDataParallelPlugin | None,
    evaluation_mode: bool,
    plain_backward: PlainBackward | None = None,
) -> ModelSync | None:
    """Place the model, make it equal on all ranks and give it its precision; returns its `ModelSync`, or None.

    Collective with several processes. ``device``: where the model moves; None: nowhere. ``plain_backward`` is called
    where a backward pass that did not begin with `backward` below reaches the model, see `GradientSync`. Raises
    RuntimeError where the ranks' models differ.
    """
    if fsdp is not None and comm.averages:
        device = None  # sharding moves the model in parts
    _keep_to_one_device(model, comm)
    wrapped = _wrapper_of(model)
    if comm.world > 1 and not comm.averages and wrapped is None:
        start_alike(model, comm)  # on the host, because on the device all processes share one model
    if device is not None and not hasattr(model, "hf_device_map") and wrapped is None:
        comm.move(model)
    if fsdp is not None and not comm.averages:
        comm.shard(_sharded_parameters(model, fsdp))
    stale = False
    if comm.averages and not evaluation_mode:
        for loose in tuple(_LOOSE.values()):
            stale = loose.hand_over(model.parameters()) or stale
    sync: ModelSync | None = None
    if comm.averages and wrapped is not None:
        from crosstrain.step.wrapped_ddp import WrappedSync

        sync = WrappedSync(wrapped, plain_backward)
    elif comm.averages and fsdp is not None:
        from crosstrain.step.fsdp import shard  # imports much of torch.distributed

        sync = shard(model, fsdp, comm, precision)
    elif comm.averages:
        start_alike(model, comm)
        for part in model.modules():  # apex's wrapper, which may stay for its names, averages no second time
            getattr(type(part), "disable_allreduce", id)(part)
        if not evaluation_mode:  # also for a frozen model, which may be trained later
            sync = GradientSync(model, comm, ddp, plain_backward)
            # Of a backward pass before it was prepared; then all average, though one may have made none.
            sync.stale = stale or any(comm.all_gather_object(sync.holds_gradients()))
    if fsdp is None or not comm.averages or wrapped is not None:
        precision.apply_to(model)
    _PREPARED[model] = sync
    _offer_ddp_members(model, sync, comm, ddp)
    return sync


def check_device(model: nn.Module, own: torch.device) -> bool:
    """Whether a model stays where it is: its author keeps a part of it on the CPU, beside the process's ``own`` device.

    Raises ValueError for one on several other devices. Every process builds the model by the same lines, so that all
    raise or none does.
    """
    devices = sorted({str(param.device) for param in model.parameters()})
    if len(devices) > 1:
        here = str(torch.empty(0, device=own).device)  # with its number, which `own` may leave out
        if devices == ["cpu", here]:
            return True
        place = checks.here()
        message = (
            f"{place}: the {type(model).__name__} is spread over several devices ({', '.join(devices)}), but every process "
            f"trains a whole model on its own device. Build it on one of them, or shard it over the processes with "
            f"FullyShardedDataParallelPlugin."
        )
        checks.failed("module", message, place)
        raise ValueError(message)
    return False


def _wrapper_of(model: nn.Module) -> nn.parallel.DistributedDataParallel | None:
    """The model as a DistributedDataParallel, if it is one, compiled or not; the script has then placed it already."""
    inner = compiled_inner(model)
    return inner if isinstance(inner, nn.parallel.DistributedDataParallel) else None


def _keep_to_one_device(model: nn.Module, comm: Comm) -> None:
    """Let torch's DataParallel compute on this process's device alone; the model keeps its names with ``module.``.

    One process computes as its author wrote it: a script that is not converted may use the module that is.
    """
    wrappers = [part for part in model.modules() if isinstance(part, nn.DataParallel)]
    if comm.world == 1:
        wrappers = [one for one in wrappers if getattr(one, "src_device_obj", None) != comm.device]
    if comm.rank == 0 and any(len(one.device_ids) > 1 for one in wrappers):
        say("DataParallel computes on one device in each process: start one process for each device.")
    index = comm.device.index
    for one in wrappers:
        one.device_ids = []  # it then calls its module
        if type(one).scatter is not nn.DataParallel.scatter and index is not None:
            # The author's own may make what the module takes, as it does on one GPU.
            one.device_ids, one.output_device, one.src_device_obj = [index], index, comm.device


def _sharded_parameters(model: nn.Module, fsdp: FullyShardedDataParallelPlugin) -> list[nn.Parameter]:
    """The model's parameters without those of ``ignored_modules``, which stay whole."""
    whole = {param for module in fsdp.ignored_modules or () for param in module.parameters()}
    return [param for param in model.parameters() if param not in whole]


def _offer_ddp_members(
    model: nn.Module, sync: ModelSync | None, comm: Comm, ddp: DistributedDataParallelKwargs
) -> None:
    """Give the model the members of DistributedDataParallel that it does not have."""

    def join_model(
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[None]:
        if not enable:
            return nullcontext()
        return join(
            [sync, *_LOOSE.values()],
            comm,
            throws=throw_on_early_termination,
            among_active=not divide_by_initial_world_size,
        )

    target = compiled_inner(model)
    ddp_members.offer(target, sync, None if sync is None else join_model, ddp.static_graph)


def forget(model: nn.Module) -> None:
    """Undo the preparation of a model: remove its hooks and its precision."""
    sync = _PREPARED.pop(model, None)
    if sync is not None:
        sync.close()
    remove_precision(model)
    ddp_members.withdraw(compiled_inner(model))


def forget_all() -> None:
    """Undo every preparation, in a process that was forked from a notebook and has a run of its own."""
    for model in list(_PREPARED):
        forget(model)
    for sync in tuple(_LOOSE.values()):
        forget_loose(sync)


def forget_loose(sync: GradientSync) -> None:
    """Stop averaging loose parameters."""
    sync.close()
    for number, known in tuple(_LOOSE.items()):
        if known is sync:
            del _LOOSE[number]


def backward(loss: Tensor, syncs: list[ModelSync], kwargs: dict[str, Any]) -> None:
    """Call ``loss.backward(**kwargs)`` and average the gradients that it reached."""
    for sync in syncs:
        sync.expect()
    RUN.gradients.scaled = True
    try:
        loss.backward(**kwargs)  # type: ignore[no-untyped-call]
    except BaseException:
        for sync in syncs:
            sync.abandon()
        raise
    finally:
        RUN.gradients.scaled = False
    for sync in syncs:
        sync.finish()


def average_local(syncs: Iterable[ModelSync]) -> None:
    """Average gradients that are still local, because a step or clipping must not use gradients that differ by rank."""
    for sync in syncs:
        sync.average_local()


def share_fault(syncs: list[ModelSync], fault: str | None) -> None:
    """Let all ranks raise RuntimeError after the backward pass if one of them has a ``fault`` in its loss.

    Every rank calls this. The ranks find out in the averaging of the gradients. Sharded models, and those that the
    script has wrapped itself, are not averaged here: with these alone, the error is raised at once. That happens on all
    ranks, since a fault depends on how the loss was computed, not on its value.
    """
    asked = [sync for sync in syncs if isinstance(sync, GradientSync)]
    if fault is not None and not asked:
        raise RuntimeError(fault)
    for sync in asked:
        sync.share_fault(fault)


def unwrap(model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True) -> nn.Module:
    """The user's own module: see `Accelerator.unwrap_model`."""
    inner = model
    while isinstance(
        wrapper := compiled_inner(inner), (nn.parallel.DistributedDataParallel, nn.DataParallel)
    ):
        inner = wrapper.module
    if not keep_fp32_wrapper:
        remove_precision(inner)
    return inner if keep_torch_compile else compiled_inner(inner)


def state_dict_of(model: nn.Module) -> dict[str, Any]:
    """The model's state on the host, by its author's names; of a sharded model on rank 0 only (collective)."""
    if is_sharded(model):
        from crosstrain.step.fsdp import full_state_dict

        RUN.comm.agree("get_state_dict of a sharded model")
        return full_state_dict(model)
    state: dict[str, Any] = RUN.comm.to_host(compiled_inner(unwrap(model)).state_dict())
    return state
