"""Compiling prepared models in place, as a whole or block by block."""

from __future__ import annotations

from typing import Any

from torch import nn

from crosstrain.step.precision import compiled_inner
from crosstrain.utils.dataclasses import TorchDynamoPlugin


def compile_prepared(model: nn.Module, plugin: TorchDynamoPlugin) -> None:
    """Compile the model in place with the plugin's options; a model that torch.compile wraps is not changed."""
    options = plugin.to_kwargs()
    if compiled_inner(model) is not model:
        return
    if plugin.use_regional_compilation:
        compile_regions(model, **options)
    else:
        model.compile(**options)


def compile_regions(module: nn.Module, **options: Any) -> nn.Module:
    """Compile repeated blocks one by one, and the largest parts without such blocks; returns the same module.

    Repeated blocks are the modules of a ModuleList that are of one class: torch compiles the first and reuses the code
    for the others. A module without any is compiled as a whole. ``options`` are torch.compile's.
    """
    for region in _regions(module):
        if not is_compiled_in_place(region):
            region.compile(**options)
    return module


def has_compiled_regions(module: nn.Module) -> bool:
    """Whether any part of the module is compiled by itself."""
    return any(
        part is not module and (is_compiled_in_place(part) or compiled_inner(part) is not part)
        for part in module.modules()
    )


def is_compiled_in_place(module: nn.Module) -> bool:
    """Whether `Module.compile` was called on the module."""
    return getattr(module, "_compiled_call_impl", None) is not None


def _regions(module: nn.Module) -> list[nn.Module]:
    if _is_repeated(module):
        return list(module.children())
    if any(map(_is_repeated, module.modules())):
        return [region for child in module.children() for region in _regions(child)]
    return [module]


def _is_repeated(module: nn.Module) -> bool:
    blocks = list(module.children())
    return (
        isinstance(module, nn.ModuleList)
        and bool(blocks)
        and all(isinstance(b, type(blocks[0])) for b in blocks)
    )
