"""Checks of what `prepare` is given: models on several devices."""

from __future__ import annotations

from typing import NoReturn

from torch import nn

from crosstrain.utils import checks


def check_device(model: nn.Module) -> None:
    """Raise ValueError for a model whose parameters are on several devices.

    Every process builds the model by the same lines, so that all raise or none does.
    """
    devices = sorted({str(param.device) for param in model.parameters()})
    if len(devices) > 1:
        _fail(
            f"the {type(model).__name__} is spread over several devices ({', '.join(devices)}), but every process "
            f"trains a whole model on its own device. Build it on one of them, or shard it over the processes with "
            f"FullyShardedDataParallelPlugin."
        )


def _fail(message: str) -> NoReturn:
    place = checks.here()
    message = f"{place}: {message}"
    checks.failed("module", message, place)
    raise ValueError(message)
