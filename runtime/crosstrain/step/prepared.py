"""What an Accelerator has prepared: one object that its parts share."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from crosstrain.data.dealt import DealtLoader
from crosstrain.data.remembered import Remembered
from crosstrain.step import model as models
from crosstrain.step.gradients import GradientSync
from crosstrain.step.model_sync import ModelSync
from crosstrain.step.optimizer import Gate, gate_of
from crosstrain.step.step_position import StepPosition


class PreparedObjects:
    """The objects that `prepare` has seen, each kind in the order of its preparation.

    ``syncs`` average the gradients of ``models``; a model that needs no averaging has none. ``gates`` has one entry for
    each of ``optimizers``. ``held`` has the number of parameters of each, by its id, when they were looked at last.
    """

    def __init__(self) -> None:
        self.models: list[nn.Module] = []
        self.syncs: list[ModelSync] = []
        self.optimizers: list[Optimizer] = []
        self.gates: list[Gate] = []
        self.schedulers: list[LRScheduler] = []
        self.loaders: list[DataLoader[Any]] = []
        self.remembered = Remembered()
        self.position: StepPosition | None = None
        self.held: dict[int, int] = {}
        # Loaded positions of dealt iterables that the script has yet to prepare, by their place in `loaders`.
        self.positions: dict[int, Any] = {}

    def keep_sync(self, sync: ModelSync) -> None:
        """Keep what averages gradients, and let it compare the ranks' positions."""
        if sync not in self.syncs:
            self.syncs.append(sync)
        if isinstance(sync, GradientSync):
            sync.position = self.position

    def forget(self) -> None:
        """Undo the preparation of the models and of loose parameters, and empty every list."""
        for model in self.models:
            models.forget(model)
        for sync in self.syncs:
            if isinstance(sync, GradientSync) and sync.replica is None:
                models.forget_loose(sync)
        self.held.clear()
        for known in (self.models, self.syncs, self.optimizers, self.gates, self.schedulers, self.loaders):
            known.clear()
        self.remembered.forget()
        self.positions.clear()

    def keep_optimizer(self, optimizer: Optimizer, gate: Gate) -> None:
        """Note a prepared optimizer, and forget those of its parameters that nobody else holds any more.

        A script may make a new one in each epoch; the states of all of them would fill the memory.
        """
        mine = _parameters_of(optimizer)
        for index in reversed(range(len(self.optimizers))):
            if mine.isdisjoint(_parameters_of(self.optimizers[index])):
                continue
            held = weakref.ref(self.optimizers.pop(index))
            self.gates.pop(index)
            gc.collect()  # it and its gate hold each other; on every rank at the same place
            known = held()
            if known is not None and (own := gate_of(known)) is not None:
                self.optimizers.insert(index, known)
                self.gates.insert(index, own)
        self.optimizers.append(optimizer)
        self.gates.append(gate)

    def keep_dealt(self, loader: DealtLoader, instead_of: Any = None) -> None:
        """Note a dealt iterable, in the place of one that the script made in the same line before, and has used."""
        if any(loader is known for known in self.loaders):
            return
        if instead_of is None:
            instead_of = next((known for known in self.loaders if loader.follows(known)), None)
        if instead_of is not None:
            loader.take_over(instead_of)
            self.remembered.drop(instead_of)
        self.keep_loader(loader, instead_of)
        state = self.positions.pop(len(self.loaders) - 1, None) if self.loaders[-1] is loader else None
        if state is not None:
            loader.load_state_dict(state)

    def keep_loader(self, loader: DataLoader[Any], instead_of: Any = None) -> None:
        """Note a prepared loader, once, in the place of one that it replaces."""
        if any(loader is known for known in self.loaders):
            return
        for index, known in enumerate(self.loaders):
            if known is instead_of:
                self.loaders[index] = loader
                return
        self.loaders.append(loader)


def _parameters_of(optimizer: Optimizer) -> set[int]:
    return {id(one) for group in optimizer.param_groups for one in group["params"]}


class PreparedMembers:
    """The members of an Accelerator that give prepared objects; the lists have their names in Accelerate."""

    _prepared: PreparedObjects

    def unwrap_model(
        self, model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> nn.Module:
        """The user's own module, without the wrappers of torch's DataParallel and DistributedDataParallel.

        ``keep_fp32_wrapper=False`` also removes mixed precision from its forward; ``keep_torch_compile=False`` also
        unwraps a compiled module.
        """
        return models.unwrap(model, keep_fp32_wrapper, keep_torch_compile)

    @property
    def _models(self) -> list[nn.Module]:
        return self._prepared.models

    @property
    def _optimizers(self) -> list[Optimizer]:
        return self._prepared.optimizers

    @property
    def _schedulers(self) -> list[LRScheduler]:
        return self._prepared.schedulers

    @property
    def _dataloaders(self) -> list[DataLoader[Any]]:
        return self._prepared.loaders
