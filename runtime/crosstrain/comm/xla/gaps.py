"""What scripts use on every other device and torch_xla lacks: inference mode, files that are loaded onto the device, and
`model.to(device)` that leaves an optimizer its parameters."""

from __future__ import annotations

from functools import cache, wraps
from types import TracebackType
from typing import Any

import torch

from crosstrain.comm.xla.move import MOVED, keeping_ties

PRIORITY = 5  # asked before torch's own devices


@cache
def fill_gaps() -> None:
    """Make them work, once for the process.

    In inference mode torch_xla raises "Cannot set version_counter for inference tensor" at the first view. The mode becomes
    `torch.no_grad`, which computes the same; decorators that were applied before keep their class, and so change, too.

    `torch.load` knows no storage on XLA. What it reads stays on the CPU: `load_state_dict` copies it to where the parameters
    are.

    `model.to(device)` would make new parameters, where elsewhere the old ones move, and would separate those that are tied.
    See `move`.
    """
    mode: Any = torch.inference_mode
    mode.__enter__, mode.__exit__ = _enter, _exit
    torch.__future__.set_swap_module_params_on_conversion(True)
    to: Any = torch.nn.Module.to

    @wraps(to)
    def moved(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return keeping_ties(self, lambda: to(self, *args, **kwargs), MOVED)

    module: Any = torch.nn.Module
    module.to = moved
    torch.serialization.register_package(PRIORITY, lambda storage: None, _stay)


def _enter(self: Any) -> None:
    self._without_gradients = torch.set_grad_enabled(not self.mode)
    self._without_gradients.__enter__()


def _exit(
    self: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    self._without_gradients.__exit__(kind, error, trace)


def _stay(storage: Any, location: str) -> Any:
    return storage if location.startswith("xla") else None
