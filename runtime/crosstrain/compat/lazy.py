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
    others: tuple[str, ...],
) -> Callable[[str], Any]:
    """A package's ``__getattr__``, which imports public names on first use.

    Args:
        package: the package's name.
        homes: by public name, the module that defines it, relative to crosstrain.
        namespace: the package's globals, which get the imported names.
        others: modules that are asked for any other name.
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
    """The module of each name, from a table such as ``{"state": "PartialState GradientState"}``."""
    return {name: module for module, names in table.items() for name in names.split()}
