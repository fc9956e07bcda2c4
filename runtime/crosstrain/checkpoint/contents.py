"""The files of a checkpoint, and the state in each of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crosstrain.checkpoint import state_files
from crosstrain.checkpoint.host_copies import Frozen, HostCopies
from crosstrain.checkpoint.training import Training, file_name, single_states
from crosstrain.checkpoint.weights import save_object, save_safetensors
from crosstrain.step import model as models
from crosstrain.step.loose_parameters import loose_parameters

COPIES = HostCopies()


@dataclass
class Part:
    """A state, its file, and the functions that write it: at once, or from a thread while the training goes on."""

    path: Path
    state: Any
    write: Callable[[Any, Path], None]
    write_beside_training: Callable[[Any, Path], None]


def collect(training: Training, folder: Path, writer: bool, safe: bool) -> list[Part]:
    """The parts that this process writes.

    The collective ones come first, so that no error leaves other ranks waiting.
    """
    if training.precision.loss_scale is not None:
        training.precision.loss_scale.adjust()
    modules = list(training.prepared.models)
    spread = [module for module in modules if training.sharding.saves_in_parts(module)]
    # A hook may want the weights; without one, a sharded model is never gathered.
    weights = [
        {} if module in spread and not training.save_hooks else models.state_dict_of(module)
        for module in modules
    ]
    for hook in training.save_hooks.values():
        hook(modules, weights, str(folder))
    parts: list[Part] = []
    for index, module in enumerate(modules):
        if module in spread:
            parts += _sharded(training, module, folder / f"sharded_{index}", writer)
    comm = training.comm
    states = state_files.random_states(comm, training.gradients.active.draws)
    parts.append(_plain(folder / f"random_states_{comm.rank}.pkl", states))
    parts += _waiting_gradients(training, folder)
    single = [
        _plain(folder / file_name(name, index, suffix), comm.to_host(obj.state_dict()))
        for name, suffix, objects in single_states(training)
        for index, obj in enumerate(objects)
    ]
    if not writer:
        return parts
    for index, state in enumerate(weights):
        if modules[index] not in spread:
            parts.append(_weights(folder, index, state, safe))
    parts += single
    for index, obj in enumerate(training.registered):
        parts.append(_plain(folder / f"custom_checkpoint_{index}.pkl", comm.to_host(obj.state_dict())))
    return parts


def write(parts: list[Part], *, beside_training: bool = False) -> None:
    """Write the parts in order, and drop each state when it is written."""
    while parts:
        part = parts.pop(0)
        state = part.state.thaw() if isinstance(part.state, Frozen) else part.state
        (part.write_beside_training if beside_training else part.write)(state, part.path)


def freeze(parts: list[Part]) -> None:
    """Replace each part's state by a copy in host memory, which the training does not change."""
    COPIES.reuse()
    for part in parts:
        part.state = COPIES.freeze(part.state)


def _plain(path: Path, state: Any) -> Part:
    return Part(path, state, state_files.save, state_files.save_beside_training)


def _weights(folder: Path, index: int, state: dict[str, Any], safe: bool) -> Part:
    if safe:
        return Part(
            folder / file_name("model", index, ".safetensors"), state, save_safetensors, save_safetensors
        )
    path = folder / file_name("pytorch_model", index, ".bin")
    return Part(path, state, save_object, state_files.save_beside_training)


def _sharded(training: Training, module: Any, folder: Path, writer: bool) -> list[Part]:
    """This process's part of a sharded model and its optimizers (collective)."""
    from crosstrain.checkpoint.sharded import fresh_groups, gates_of, parts_of, write_parts
    from crosstrain.comm.side_group import side_group

    gates = gates_of(module, training.prepared.gates)
    parts = [Part(folder, parts_of(module, gates), write_parts, partial(write_parts, group=side_group()))]
    groups = fresh_groups(gates) if writer else {}
    return parts + [_plain(folder / name, state) for name, state in groups.items()]


def _waiting_gradients(training: Training, folder: Path) -> list[Part]:
    """The gradients of the micro-batches so far, which belong to the state inside an accumulation window."""
    if training.gradients.sync_gradients:
        return []
    if training.sharding.active:
        warnings.warn(
            "save_state inside an accumulation window: the gradients of a sharded model in it are not saved, so that a "
            "training that continues from here begins a new window. Save where accelerator.sync_gradients is true "
            "to continue exactly.",
            stacklevel=7,
        )
        return []
    waiting = [
        {name: param.grad for name, param in module.named_parameters() if param.grad is not None}
        for module in training.prepared.models
    ]
    loose = loose_parameters(training.prepared)
    if loose:
        waiting.append({name: param.grad for name, param in loose.items() if param.grad is not None})
    state = training.comm.to_host(waiting)
    return [_plain(folder / f"gradients_{training.comm.rank}.pt", state)]
