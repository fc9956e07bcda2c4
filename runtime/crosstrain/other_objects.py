"""`prepare` of objects that are no model, optimizer, scheduler or DataLoader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.optim import Optimizer
from torch.utils.data import DataLoader

from crosstrain.comm.protocol import Comm
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.dealt import deal
from crosstrain.data.dealt_feed import Given
from crosstrain.data.options import DataPlan
from crosstrain.step import held_objects
from crosstrain.step.prepared import PreparedObjects
from crosstrain.utils import checks
from crosstrain.utils.argument_names import names_of_arguments
from crosstrain.utils.messages import say, warn


class OtherObjects:
    """Deals iterables of batches, and prepares the loaders and optimizers inside other objects.

    ``told``: what was said already.
    """

    def __init__(
        self,
        comm: Comm,
        prepared: PreparedObjects,
        active: ActiveLoaders,
        prepare_loader: Callable[[DataLoader[Any]], Any],
        prepare_optimizer: Callable[[Optimizer], Any],
    ) -> None:
        self._comm = comm
        self._prepared = prepared
        self._active = active
        self._prepare_loader = prepare_loader
        self._prepare_optimizer = prepare_optimizer
        self._told: set[str] = set()

    def prepare(self, obj: Any, plan: DataPlan, index: int, number: int) -> Any:
        """The object itself, or its batches dealt to the processes.

        index, number: which of how many arguments of the script's call it is.
        """
        for optimizer in held_objects.held_optimizers(obj):
            self._prepare_optimizer(optimizer)
        held = held_objects.prepare_held_loaders(
            obj,
            self._prepare_loader,
            lambda iterator: self._deal(iterator, plan, self._given(obj, index, number)),
        )
        if held:
            self._say(f"prepared the DataLoader inside {self._given(obj, index, number)}: {', '.join(held)}")
            checks.held("loader")
        elif held is None or held_objects.loaders_in_container(obj):
            self._warn(
                self._given(obj, index, number), "is no DataLoader; pass the DataLoader inside to `prepare`"
            )
        elif held_objects.has_rows(obj):
            reason = (
                "is an array, which stays as it is, if a loop goes over it; give `prepare` a list of its rows"
            )
            self._warn(self._given(obj, index, number), reason)
        elif held_objects.gives_batches(obj):
            return self._deal(obj, plan, self._given(obj, index, number))
        return obj

    def _given(self, obj: Any, index: int, number: int) -> Given:
        names = names_of_arguments(number)
        place = checks.here()
        return Given(
            type(obj).__name__ if names is None else names[index],
            place if place == checks.UNKNOWN else place._replace(file=Path(place.file).name),
        )

    def _deal(self, batches: Any, plan: DataPlan, given: Given) -> Any:
        loader, before = self._prepared.remembered.get(
            batches, plan, lambda: deal(batches, self._comm, plan, self._active, given)
        )
        self._prepared.keep_dealt(loader, before)
        return loader

    def _say(self, line: str) -> None:
        if line not in self._told and self._comm.rank == 0:
            self._told.add(line)
            say(line)

    def _warn(self, given: Given, why: str) -> None:
        checks.doubt("loader")
        line = f"every process trains on the same data: {given} {why}"
        if line not in self._told and self._comm.rank == 0 and self._comm.world > 1:
            self._told.add(line)
            warn(line)
