"""Which packages and devices this machine has: ``is_<name>_available()`` works for any of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

from crosstrain.comm.devices import has_bf16, has_device, knows_device

# By the name in the function, the name of the package if it is another one.
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
    """Whether this machine has a device of that type or, if it is no device type, a package of that name."""
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
    """True: every device that torch supports computes in float16."""
    return True


def __getattr__(name: str) -> Callable[..., bool]:
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        raise AttributeError(f"module 'crosstrain.utils.imports' has no attribute {name!r}")
    what = name[len(_PREFIX) : -len(_SUFFIX)]

    def is_available(*args: Any, **kwargs: Any) -> bool:
        return available(what)

    is_available.__name__ = is_available.__qualname__ = name
    return is_available
