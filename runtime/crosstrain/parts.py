"""The objects that do the work of an Accelerator; the Accelerators of a run share them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch.optim import Optimizer
from torch.utils.data import DataLoader

from crosstrain import options
from crosstrain.checkpoint.training import Training
from crosstrain.comm.protocol import Comm
from crosstrain.data import unprepared_loops
from crosstrain.data.evaluation import EvaluationLoaders
from crosstrain.data.loader import PreparedLoader
from crosstrain.data.options import DataPlan
from crosstrain.options import Handlers
from crosstrain.other_objects import OtherObjects
from crosstrain.run import RUN
from crosstrain.state import AcceleratorState
from crosstrain.step.accumulation import Accumulation
from crosstrain.step.announcement import Announcement
from crosstrain.step.batch_rows import BatchRows
from crosstrain.step.first_steps import FirstSteps
from crosstrain.step.loose_parameters import LooseParameters
from crosstrain.step.own_draws import TrainingOutside, distributes_itself, share_streams
from crosstrain.step.precision import Precision
from crosstrain.step.prepared import PreparedObjects
from crosstrain.step.replica_consistency import ReplicaConsistency
from crosstrain.step.same_data import SameData
from crosstrain.step.sharding import Sharding
from crosstrain.step.step_position import StepPosition
from crosstrain.step.training_mode import TrainingModeWatch
from crosstrain.tracking.members import Trackers
from crosstrain.utils.dataclasses import (
    DataLoaderConfiguration,
    FullyShardedDataParallelPlugin,
    InitProcessGroupKwargs,
    ParallelismConfig,
    ProjectConfiguration,
)


class Parts:
    """An Accelerator's parts: made for the first one of a run, shared by the others, made anew for a copy."""

    state: AcceleratorState
    handlers: Handlers
    dataloader_config: DataLoaderConfiguration
    log_with: list[Any]
    _precision: Precision
    _made: set[str]  # names of the attributes that `_compose` makes, which are not pickled

    def _data_plan(self, device_placement: bool | None = None) -> DataPlan:
        raise NotImplementedError

    def _plain_backward(self, loose: bool, at_once: bool) -> float:
        raise NotImplementedError

    def prepare_data_loader(self, data_loader: DataLoader[Any]) -> DataLoader[Any]:
        raise NotImplementedError

    def prepare_optimizer(self, optimizer: Optimizer) -> Optimizer:
        raise NotImplementedError

    def _compose(
        self,
        comm: Comm,
        project: ProjectConfiguration,
        plugin: FullyShardedDataParallelPlugin | None,
        parallelism: ParallelismConfig | None,
    ) -> None:
        """Make the objects that do the work, with nothing prepared, registered or counted."""
        if comm.replicas > 1:
            unprepared_loops.watch(PreparedLoader)
        given = set(vars(self))
        self._comm = comm
        self._gradients = gradients = RUN.gradients
        self._prepared = prepared = PreparedObjects()
        prepared.position = StepPosition(comm, gradients, prepared)
        self._accumulation = Accumulation(gradients, prepared)
        self._consistency = ReplicaConsistency(comm, prepared)
        self._training_mode = TrainingModeWatch(prepared)
        self._same_data = SameData(comm, prepared, gradients)
        self._outside = TrainingOutside(comm, gradients)
        self._first_steps = FirstSteps(comm, prepared, self._consistency)
        self._loose = LooseParameters(comm, prepared, self.handlers.ddp, self._plain_backward)
        self._batch_rows = BatchRows(comm, gradients)
        self._evaluations = EvaluationLoaders(comm, gradients.active, self._data_plan, lambda: RUN.sharded)
        self._others = OtherObjects(
            comm, prepared, gradients.active, self.prepare_data_loader, self.prepare_optimizer
        )
        self._sharding = Sharding(comm, prepared, plugin, parallelism)
        self._trackers = Trackers(self.log_with, project)
        self._training = Training(
            comm,
            project,
            prepared,
            gradients,
            self._accumulation,
            self._precision,
            self._consistency,
            self._sharding,
        )
        self._announcement = Announcement(self.state, prepared, gradients, self.dataloader_config)
        self._made = set(vars(self)) - given

    def _share(
        self,
        first: Parts,
        *,
        accumulates: bool,
        project: ProjectConfiguration | None,
        plugin: FullyShardedDataParallelPlugin | None,
        parallelism: ParallelismConfig | None,
        logs: bool,
    ) -> None:
        """Take the parts of the run's first Accelerator, except for those whose options this one has of its own.

        accumulates: whether accumulation options were given. project, plugin, parallelism: None where they were not
        given. logs: whether trackers were given.
        """
        vars(self).update({name: vars(first)[name] for name in first._made | {"_precision", "_made"}})
        if accumulates:
            self._accumulation.set_steps(self._gradients.steps)
        if self.handlers.autocast is not first.handlers.autocast:
            self._precision = first._precision.under(self.handlers.autocast)
        if plugin is not None or parallelism is not None:
            self._sharding = Sharding(self._comm, self._prepared, plugin, parallelism)
            self._training = replace(self._training, sharding=self._sharding)
        if project is not None:
            self._training = replace(self._training, project=project)
        if logs:
            self._trackers = Trackers(self.log_with, self._training.project)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options and the accumulation counts, but nothing that was prepared or registered."""
        state = {name: value for name, value in vars(self).items() if name not in self._made | {"_made"}}
        state["_composed_of"] = (self._training.project, self._sharding.plugin, self._sharding.parallelism)
        state["_counted"] = (self._accumulation.step, self._accumulation.window, self._announcement.made)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        composed_of, counted = state.pop("_composed_of"), state.pop("_counted")
        self.__dict__.update(state)
        self._compose(RUN.start(), *composed_of)
        self._accumulation.step, self._accumulation.window, self._announcement.made = counted
        RUN.settle_precision(self._precision.name)
        RUN.first = RUN.first or self


def join_run(cpu: bool | None, device: Any, group: InitProcessGroupKwargs | None) -> Comm:
    """Join the run, or start it."""
    # A script that distributes itself keeps its streams: this process may have come here alone, `if rank == 0`.
    keeps_streams = RUN.asks_for_group or (RUN.started and distributes_itself())
    cpu, index = RUN.heed_hidden_devices(*options.device(cpu, device))
    comm = RUN.start(cpu, index=index, **({} if group is None else group.to_kwargs()))
    share_streams(RUN, keeps_streams or comm.is_scripts_own)
    return comm
