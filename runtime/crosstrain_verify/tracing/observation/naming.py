"""Where a function or class is found: in which file of the project, or under which public name of a library."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

from crosstrain_verify.records.observations import Defined

# Where a library shows what it keeps elsewhere, the likeliest first.
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
    """A function of the project, by the line of its first decorator or of its `def`."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType) or not covers(code.co_filename):
        return None
    return Defined(_inner(function.__qualname__), code.co_filename, code.co_firstlineno)


def own_class(cls: type, covers: Callable[[str], bool]) -> Defined | None:
    """A class of the project. Python keeps no line of it: its qualified name has to do."""
    codes = (getattr(one, "__code__", None) for one in vars(cls).values())
    files = [code.co_filename for code in codes if isinstance(code, types.CodeType)]
    file = next((file for file in files if covers(file)), None)  # also of a notebook's cell
    file = file or getattr(sys.modules.get(cls.__module__), "__file__", None)
    return Defined(_inner(cls.__qualname__), file) if file and covers(file) else None


def public_name(value: Any) -> Defined | None:
    """The name by which scripts import a function or class of a library."""
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
    """Import what names are looked up in; what is not installed has none."""
    for name in SHOWN_IN:
        if name.startswith("torch."):
            importlib.import_module(name)


def _inner(qualified: str) -> str:
    """`f.<locals>.g` is `f.g`."""
    return qualified.replace(".<locals>", "")
