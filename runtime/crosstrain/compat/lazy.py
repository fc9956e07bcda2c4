"""Packages whose public names are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from crosstrain.requirements import install


def resolver(
    package: str,
    homes: Mapping[str, str],
    namespace: dict[str, Any],
    others: tuple[str, ...] = ("compat.not_supported",),
) -> Callable[[str], Any]:
    """A module's ``__getattr__``: each public name comes from the module (relative to crosstrain) in ``homes``.

    A name that is not there may be known to one of the modules ``others``.
    """

    def resolve(name: str) -> Any:
        if name not in homes:
            if find_spec(f"{package}.{name}") is not None:  # `from package import module` asks here first
                raise AttributeError(f"module {package!r} has not imported its module {name!r} yet")
            for module in others:
                home = import_module(f"crosstrain.{module}")
                with suppress(AttributeError):
                    return getattr(home, name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"crosstrain.{homes[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(
                f"crosstrain trains with PyTorch, which is not installed here: {install('torch')}"
            ) from None
        namespace[name] = value
        return value

    return resolve


def homes(table: Mapping[str, str]) -> dict[str, str]:
    """``{"state": "PartialState GradientState"}`` as name -> module."""
    return {name: module for module, names in table.items() for name in names.split()}
