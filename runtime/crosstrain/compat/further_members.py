"""The members of an Accelerator that few scripts need, and an answer for those of Accelerate's that it lacks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from crosstrain.comm.protocol import Comm
from crosstrain.compat import not_supported
from crosstrain.data.prepare import skip_first_batches
from crosstrain.run import RUN


class Trigger:
    """A flag that any process can raise, and that all processes then see."""

    def __init__(self) -> None:
        self.flag: torch.Tensor | None = None

    def raise_flag(self) -> None:
        """See `Accelerator.set_trigger`."""
        self.flag = torch.ones(1, dtype=torch.int64, device="cpu")

    def check(self, comm: Comm) -> bool:
        """See `Accelerator.check_trigger`."""
        mine = torch.zeros(1, dtype=torch.int64, device="cpu") if self.flag is None else self.flag
        self.flag = None
        return bool(comm.all_reduce(mine, "max").item())


class FurtherMembers:
    """Triggers, and members that other libraries ask for."""

    _trigger: Trigger

    @property
    def flag_tensor(self) -> torch.Tensor | None:
        """This process's flag, an int64 tensor of shape (1,); None while it is not raised."""
        return self._trigger.flag

    @flag_tensor.setter
    def flag_tensor(self, flag: torch.Tensor | None) -> None:
        self._trigger.flag = flag

    def set_trigger(self) -> None:
        """Raise this process's flag; `check_trigger` tells all processes."""
        self._trigger.raise_flag()

    def check_trigger(self) -> bool:
        """Whether any process raised its flag; lowers all flags (collective)."""
        return self._trigger.check(RUN.comm)

    def verify_device_map(self, model: nn.Module) -> bool:
        """Whether another library has dispatched the model over several devices; it cannot be trained then."""
        device_map = getattr(model, "hf_device_map", None)
        return device_map is not None and len(set(device_map.values())) > 1

    @property
    def should_save_model(self) -> bool:
        """Always True, kept for compatibility with Accelerate."""
        return True

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
