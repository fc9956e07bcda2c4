"""Lets a torchvision that was built for CUDA be imported beside a torch for the CPU: its operators are not there."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None:
            import torch

            real = torch.library.register_fake

            def register_fake(op: Any, *args: Any, **kwargs: Any) -> Callable[..., Any]:
                missing = str(op).startswith("torchvision::")
                decorate: Callable[..., Any] = (
                    real(op, *args, **kwargs) if not missing else lambda function: function
                )
                return decorate

            torch.library.register_fake = register_fake
        return spec


sys.meta_path.insert(0, _Finder())
