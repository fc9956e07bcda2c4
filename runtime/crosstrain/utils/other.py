"""Small functions that scripts import under Accelerate's names."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crosstrain.checkpoint.weights import save_object
from crosstrain.state import PartialState
from crosstrain.step.model import is_sharded, unwrap
from crosstrain.step.precision import compiled_inner


def wait_for_everyone() -> None:
    """Wait until every process has called this."""
    PartialState().wait_for_everyone()


def save(obj: Any, f: str | Path, save_on_each_node: bool = False, safe_serialization: bool = False) -> None:
    """Save an object on the main process, atomically.

    save_on_each_node: on the main process of every machine. safe_serialization: as safetensors, not by torch.save.
    """
    state = PartialState()
    if state.is_local_main_process if save_on_each_node else state.is_main_process:
        save_object(obj, Path(f), safe_serialization)


def load(f: str | Path, map_location: Any = None, **kwargs: Any) -> Any:
    """torch.load with ``weights_only=True``, which does not run code in the file."""
    return torch.load(f, map_location=map_location, weights_only=True, **kwargs)


def extract_model_from_parallel(
    model: nn.Module,
    keep_fp32_wrapper: bool = True,
    keep_torch_compile: bool = True,
    recursive: bool = False,
) -> nn.Module:
    """The user's own module, without wrappers: see `Accelerator.unwrap_model`."""
    return unwrap(model, keep_fp32_wrapper, keep_torch_compile)


def is_compiled_module(module: nn.Module) -> bool:
    """Whether torch.compile wraps the module."""
    return compiled_inner(module) is not module


def model_has_dtensor(model: nn.Module) -> bool:
    """Whether the model's parameters are sharded."""
    return is_sharded(model) or any(hasattr(param, "full_tensor") for param in model.parameters())


def recursive_getattr(obj: Any, attr: str) -> Any:
    """``obj.a.b.c`` for "a.b.c"."""
    return operator.attrgetter(attr)(obj)


def merge_dicts(source: dict[Any, Any], destination: dict[Any, Any]) -> dict[Any, Any]:
    """Merge ``source`` into ``destination``, including nested dictionaries; returns ``destination``."""
    for key, value in source.items():
        if isinstance(value, dict):
            merge_dicts(value, destination.setdefault(key, {}))
        else:
            destination[key] = value
    return destination


def convert_bytes(size: float) -> str:
    """A number of bytes as text, such as "1.5 KB"."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    return f"{round(size, 2)} PB"


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


def compare_versions(library_or_version: Any, operation: str, requirement_version: str) -> bool:
    """Compare versions, such as ``compare_versions("numpy", ">=", "2.0")``.

    library_or_version: the name of an installed library, or a packaging Version. Raises ValueError for an unknown operation,
    and TypeError for anything else that is compared.
    """
    from importlib.metadata import version

    from packaging.version import Version, parse

    if operation not in _COMPARISONS:
        raise ValueError(f"operation={operation!r} is unknown; choose one of {', '.join(_COMPARISONS)}.")
    have = library_or_version
    if isinstance(have, str):
        have = parse(version(have))
    if not isinstance(have, Version):
        raise TypeError(f"a library's name or a packaging Version is compared, not a {type(have).__name__}")
    return _COMPARISONS[operation](have, parse(requirement_version))


def is_torch_version(operation: str, version: str) -> bool:
    """Compare the installed torch's version, such as ``is_torch_version(">=", "2.9")``."""
    return compare_versions("torch", operation, version)
