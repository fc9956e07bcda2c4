"""Crosstrain's runtime: Accelerate's interface on torch.distributed, exact and transparent.

Names are resolved on first use, so that the command line can import this package without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosstrain.accelerator import Accelerator as Accelerator

__version__ = "0.1.0"

# Where each public name lives.
_HOME = {
    "Accelerator": "accelerator",
}

__all__ = ["Accelerator"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            value = getattr(import_module(f"crosstrain.{_HOME[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(
                "crosstrain trains with PyTorch, which is not installed here: pip install 'crosstrain[torch]'"
            ) from None
        globals()[name] = value
        return value
    raise AttributeError(f"module 'crosstrain' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
