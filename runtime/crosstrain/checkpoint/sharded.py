"""Sharded models and their optimizers in a checkpoint: saved whole, or each process's part by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp_state
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.optim import Optimizer

from crosstrain.checkpoint import state_files
from crosstrain.checkpoint.sharded_reader import SafePlanner, check_indexes
from crosstrain.step.fsdp import FULL
from crosstrain.step.optimizer import Gate


def gates_of(model: nn.Module, gates: Sequence[Gate]) -> list[Gate]:
    """The optimizers over this model's parameters."""
    return [gate for gate in gates if gate.owns(model.parameters())]


def model_of(optimizer: Optimizer, models: Sequence[nn.Module]) -> nn.Module:
    """The one sharded model that the optimizer trains; ValueError if there is none, or more than one."""
    mine = {id(param) for group in optimizer.param_groups for param in group["params"]}
    owners = [model for model in models if any(id(param) in mine for param in model.parameters())]
    if len(owners) != 1:
        raise ValueError(
            f"the {type(optimizer).__name__} trains {len(owners)} of the sharded models; its state is saved by "
            f"parameter name, so give every sharded model an optimizer of its own"
        )
    return owners[0]


def fresh_groups(gates: Sequence[Gate]) -> dict[str, Any]:
    """The parameter groups of the optimizers that have no state yet, by file name."""
    return {
        f"groups_{index}.bin": groups_of(gate.optimizer)
        for index, gate in enumerate(gates)
        if not gate.optimizer.state
    }


def write_parts(parts: dict[str, Any], folder: Path, group: dist.ProcessGroup | None = None) -> None:
    """Write this process's part (collective in ``group``)."""
    state_dict_saver.save(parts, checkpoint_id=str(folder), process_group=group)


def load_parts(model: nn.Module, gates: Sequence[Gate], folder: Path) -> None:
    """Load what `write_parts` wrote, with any number of processes (collective)."""
    mine = gates_of(model, gates)
    for index, gate in enumerate(mine):
        fresh = folder / f"groups_{index}.bin"
        if fresh.is_file():
            start_anew(gate.optimizer, state_files.load(fresh))
        elif not gate.optimizer.state:  # which torch makes here, so that one can be loaded into it
            with _by_name(model, gate):
                dcp_state.get_optimizer_state_dict(model, gate.optimizer)
    state = parts_of(model, mine)
    check_indexes(folder)
    state_dict_loader.load(state, checkpoint_id=str(folder), planner=SafePlanner())
    dcp_state.set_model_state_dict(model, state["model"])
    for index, gate in enumerate(mine):
        if f"optimizer_{index}" in state:
            with _by_name(model, gate):
                dcp_state.set_optimizer_state_dict(model, gate.optimizer, state[f"optimizer_{index}"])


def parts_of(model: nn.Module, gates: Sequence[Gate]) -> dict[str, Any]:
    """This process's part of the model and of its optimizers that have a state, for `write_parts` (collective).

    For an optimizer without a state, torch would make one by a step with zero gradients. Its next step would then
    count as the second, with another bias correction than without the checkpoint.
    """
    state: dict[str, Any] = {"model": dcp_state.get_model_state_dict(model)}
    for index, gate in enumerate(gates):
        if gate.optimizer.state:
            with _by_name(model, gate):
                state[f"optimizer_{index}"] = dcp_state.get_optimizer_state_dict(model, gate.optimizer)
    return state


@contextmanager
def _by_name(model: nn.Module, gate: Gate) -> Iterator[None]:
    """A context in which torch can save and load the optimizer's state by the names of the model's parameters.

    The model has the optimizer's loose parameters too, for as long as it lasts, so that these have names.
    """
    own = {id(param) for param in model.parameters()}
    held = [param for group in gate.optimizer.param_groups for param in group["params"]]
    loose = {f"loose_{number}": param for number, param in enumerate(held) if id(param) not in own}
    for name, param in loose.items():
        model.register_parameter(name, param)
    try:
        with gate.bypassed():
            yield
    finally:
        for name in loose:
            delattr(model, name)


def groups_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The options of each parameter group, without the parameters."""
    return [{name: v for name, v in group.items() if name != "params"} for group in optimizer.param_groups]


def start_anew(optimizer: Optimizer, groups: list[dict[str, Any]]) -> None:
    """Clear the optimizer's state and give its groups these options."""
    optimizer.state.clear()
    for group, options in zip(optimizer.param_groups, groups, strict=True):
        group.update(options)


class WholeOptimizer:
    """Saves and loads the state of an optimizer over sharded parameters whole, by parameter name."""

    def __init__(self, gate: Gate, models: Sequence[nn.Module]) -> None:
        self._gate = gate
        self._model = model_of(gate.optimizer, models)

    def state_dict(self) -> dict[str, Any]:
        """The whole state on rank 0 (collective); only the groups' options where there is no state yet."""
        if not self._gate.optimizer.state:
            return {"groups": groups_of(self._gate.optimizer)}
        with _by_name(self._model, self._gate):
            return dict(dcp_state.get_optimizer_state_dict(self._model, self._gate.optimizer, options=FULL))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load this process's part of a whole state (collective)."""
        if "groups" in state:
            start_anew(self._gate.optimizer, state["groups"])
            return
        with _by_name(self._model, self._gate):
            options = dcp_state.StateDictOptions(full_state_dict=True)
            dcp_state.set_optimizer_state_dict(self._model, self._gate.optimizer, state, options=options)
