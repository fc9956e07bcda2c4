"""What is installed and what this machine has: ``is_<something>_available()`` for any package or device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

from crosstrain.comm.devices import has_bf16, has_device, knows_device

# Where the name in the function is not the name of the package.
_PACKAGES = {
    "4bit_bnb": "bitsandbytes",
    "8bit_bnb": "bitsandbytes",
    "bnb": "bitsandbytes",
    "lomo": "lomo_optim",
    "megatron_lm": "megatron",
    "msamp": "msamp",
    "torchdata_stateful_dataloader": "torchdata.stateful_dataloader",
}
_PREFIX, _SUFFIX = "is_", "_available"


@cache
def available(name: str) -> bool:
    """Whether this machine has a device of that type, or else a package of that name is installed."""
    if knows_device(name):
        return has_device(name)
    try:
        return importlib.util.find_spec(_PACKAGES.get(name, name)) is not None
    except ModuleNotFoundError:  # the package that would hold it is missing
        return False


def is_bf16_available(ignore_tpu: bool = False) -> bool:
    """Whether this run's device computes in bfloat16."""
    return has_bf16()


def is_fp16_available() -> bool:
    """Every device that torch runs on computes in float16."""
    return True


def is_fp8_available() -> bool:
    """There is no fp8 precision here (see torchao)."""
    return False


def is_weights_only_available() -> bool:
    """Whether files can be read without running what is in them; always so."""
    return True


def __getattr__(name: str) -> Callable[..., bool]:
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        raise AttributeError(f"module 'crosstrain.utils.imports' has no attribute {name!r}")
    what = name[len(_PREFIX) : -len(_SUFFIX)]

    def is_available(*args: Any, **kwargs: Any) -> bool:
        return available(what)

    is_available.__name__ = is_available.__qualname__ = name
    return is_available
