"""Finds where a function or class is defined: in a file of the project, or under a public name of a library."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

from crosstrain_verify.records.observations import Defined

# The modules from which scripts import what is defined elsewhere, the likeliest first.
SHOWN_IN = (
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.utils.data",
    "torchvision.models",
    "torchvision.datasets",
    "torchvision.transforms",
)


def own_function(function: Any, covers: Callable[[str], bool]) -> Defined | None:
    """A function of the project, with the line of its first decorator or of its `def`; None for any other."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType) or not covers(code.co_filename):
        return None
    return Defined(_inner(function.__qualname__), code.co_filename, code.co_firstlineno)


def own_class(cls: type, covers: Callable[[str], bool]) -> Defined | None:
    """A class of the project, without a line, which Python does not keep; None for any other."""
    codes = (getattr(one, "__code__", None) for one in vars(cls).values())
    files = [code.co_filename for code in codes if isinstance(code, types.CodeType)]
    file = next((file for file in files if covers(file)), None)  # a notebook's cell is found only in this way
    file = file or getattr(sys.modules.get(cls.__module__), "__file__", None)
    return Defined(_inner(cls.__qualname__), file) if file and covers(file) else None


def public_name(value: Any) -> Defined | None:
    """The name by which scripts import a function or class of a library; None if there is none."""
    name, home = getattr(value, "__name__", ""), getattr(value, "__module__", "") or ""
    if not isinstance(name, str) or not isinstance(home, str) or not name.isidentifier():
        return None
    root = home.split(".")[0]
    shown = [place for place in SHOWN_IN if place.split(".")[0] == root and place in sys.modules]
    for place in (*shown, root, home):
        module = sys.modules.get(place)
        if module is not None and vars(module).get(name) is value:
            return Defined(f"{place}.{name}")
    return None


def load_names() -> None:
    """Import torch's modules of SHOWN_IN, so that names can be looked up in them."""
    for name in SHOWN_IN:
        if name.startswith("torch."):
            importlib.import_module(name)


def _inner(qualified: str) -> str:
    """The qualified name without `<locals>`: `f.<locals>.g` becomes `f.g`."""
    return qualified.replace(".<locals>", "")
