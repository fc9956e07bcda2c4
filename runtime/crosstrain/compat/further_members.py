"""The members of an Accelerator that few scripts need, and an answer for those of Accelerate's that it lacks."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader

from crosstrain.compat import not_supported
from crosstrain.data.prepare import skip_first_batches
from crosstrain.run import RUN
from crosstrain.utils.dataclasses import DataLoaderConfiguration


class FurtherMembers:
    """Triggers, the loaders' options under their own names, and an answer for members of Accelerate's that do not exist here."""

    dataloader_config: DataLoaderConfiguration

    split_batches = property(attrgetter("dataloader_config.split_batches"))
    dispatch_batches = property(attrgetter("dataloader_config.dispatch_batches"))
    use_seedable_sampler = property(attrgetter("dataloader_config.use_seedable_sampler"))
    non_blocking = property(attrgetter("dataloader_config.non_blocking"))
    use_stateful_dataloader = property(attrgetter("dataloader_config.use_stateful_dataloader"))

    @property
    def even_batches(self) -> bool | Literal["weighted"]:
        """How the last global batch of a pass is completed (True), left uneven (False) or "weighted"; can be set."""
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, value: bool | Literal["weighted"]) -> None:
        self.dataloader_config.even_batches = value

    def set_trigger(self) -> None:
        """Raise this process's flag; `check_trigger` tells all processes."""
        RUN.triggered = True

    def check_trigger(self) -> bool:
        """Whether any process raised its flag; lowers all flags (collective)."""
        mine = torch.tensor([RUN.triggered], dtype=torch.int64, device="cpu")
        RUN.triggered = False
        return bool(RUN.comm.all_reduce(mine, "max").item())

    def skip_first_batches(self, dataloader: DataLoader[Any], num_batches: int = 0) -> DataLoader[Any]:
        """Return a copy of the loader without its first ``num_batches`` batches: see `crosstrain.skip_first_batches`."""
        return skip_first_batches(dataloader, num_batches)

    def __getattr__(self, name: str) -> Any:
        """Raise NotImplementedError, naming the alternative, for members of Accelerate's that do not exist here."""
        member = getattr(type(self), name, None)
        if isinstance(member, property):  # it raised an AttributeError of its own: raise that one
            return member.__get__(self)
        if name in not_supported.MEMBERS:
            not_supported.refuse(f"Accelerator.{name}", not_supported.MEMBERS[name])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
