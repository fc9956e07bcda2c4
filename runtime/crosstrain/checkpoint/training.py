"""What a checkpoint holds, and how the ranks make one together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from crosstrain.checkpoint.manifests import CorruptCheckpointError
from crosstrain.comm.protocol import Comm
from crosstrain.step.accumulation import Accumulation
from crosstrain.step.loose_parameters import LooseValues
from crosstrain.step.precision import Precision
from crosstrain.step.prepared import PreparedObjects
from crosstrain.step.replica_consistency import ReplicaConsistency
from crosstrain.step.sharding import Sharding
from crosstrain.step.window import Gradients
from crosstrain.utils.dataclasses import ProjectConfiguration

SaveHook = Callable[[list[nn.Module], list[dict[str, Any]], str], None]
LoadHook = Callable[[list[nn.Module], str], None]

SHARED_ERRORS: tuple[type[Exception], ...] = (FileNotFoundError, CorruptCheckpointError, ValueError, OSError)


@dataclass
class Training:
    """What `save_state` saves and `load_state` continues, and the project whose folder it goes to.

    ``registered``: the script's own objects, in the order of their registration. The hooks are kept by the key that
    their handles remove.
    """

    comm: Comm
    project: ProjectConfiguration
    prepared: PreparedObjects
    gradients: Gradients
    accumulation: Accumulation
    precision: Precision
    consistency: ReplicaConsistency
    sharding: Sharding
    registered: list[Any] = field(default_factory=list)
    save_hooks: OrderedDict[int, SaveHook] = field(default_factory=OrderedDict)
    load_hooks: OrderedDict[int, LoadHook] = field(default_factory=OrderedDict)

    @property
    def writes_files(self) -> bool:
        """Whether this process writes the files of which there is one: in the run, or on each machine."""
        return (self.comm.local_rank if self.project.save_on_each_node else self.comm.rank) == 0


class Position:
    """Saves and loads a prepared loader's position, and the seed where its order is a function of seed and epoch."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._seedable = loader._crosstrain.seedable

    def __str__(self) -> str:
        return f"the order of the loader over {type(self._loader.dataset).__name__}"

    def state_dict(self) -> dict[str, Any]:
        seed = {} if self._seedable is None else {"seed": self._seedable.initial_seed}
        state = {**self._loader.state_dict(), **seed}
        if "data" in state:  # each process's data set has its own
            state["data"] = self._loader._crosstrain.comm.all_gather_object(state["data"])
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._seedable is not None and "seed" in state:
            self._seedable.initial_seed = state["seed"]
        data = state.get("data")
        if isinstance(data, list):
            comm = self._loader._crosstrain.comm
            state = {**state, "data": data[comm.rank] if len(data) == comm.world else None}
        self._loader.load_state_dict(state)


def single_states(training: Training) -> list[tuple[str, str, list[Any]]]:
    """File name, suffix and objects of each kind of state that has a file per object."""
    loss_scale = training.precision.loss_scale
    loose = LooseValues(training.prepared)
    return [
        ("optimizer", ".bin", _optimizer_states(training)),
        ("loose_parameters", ".bin", [loose] if loose else []),
        ("scheduler", ".bin", training.prepared.schedulers),
        ("loader", ".bin", [Position(loader) for loader in training.prepared.loaders]),
        ("scaler", ".pt", [] if loss_scale is None else [loss_scale.scaler]),
    ]


def _optimizer_states(training: Training) -> list[Any]:
    prepared = training.prepared
    if not training.sharding.active:
        return list(prepared.optimizers)
    from crosstrain.checkpoint.sharded import WholeOptimizer, model_of

    sharded = [param for model in prepared.models for param in model.parameters()]
    return [
        WholeOptimizer(gate, prepared.models) if gate.owns(sharded) else gate.optimizer
        for gate in prepared.gates
        if not gate.owns(sharded)
        or not training.sharding.saves_in_parts(model_of(gate.optimizer, prepared.models))
    ]


def file_name(name: str, index: int, suffix: str) -> str:
    """The file name for the object with this index; that of the first has no number."""
    return f"{name}{suffix}" if index == 0 else f"{name}_{index}{suffix}"


def chosen_by_main(comm: Comm, choose: Callable[[], Path]) -> Path:
    """The main process's choice, on every rank; their own paths may differ, as with `tempfile`, and so may disks."""
    chosen: list[Path] = []
    main = comm.rank == 0
    run_collectively(comm, lambda: chosen.append(choose()) if main else None)
    return comm.broadcast_object(chosen[0] if main else Path())


def run_collectively(comm: Comm, work: Callable[[], object]) -> None:
    """Do this rank's part of the work and wait for the others (collective); an error on one rank is raised on all.

    Errors that a script may catch have the same type on every rank, so that all ranks catch them or none does.
    """
    problem: Exception | None = None
    try:
        work()
    except Exception as error:
        problem = error
    said = comm.all_gather_object(None if problem is None else (type(problem).__name__, str(problem)))
    if problem is not None:
        raise problem
    for rank, error_of in enumerate(said):
        if error_of is not None:
            name, text = error_of
            kind = {kind.__name__: kind for kind in SHARED_ERRORS}.get(name, RuntimeError)
            raise kind(f"the checkpoint failed on rank {rank}: {name}: {text}")
