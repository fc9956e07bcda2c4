"""Lets torchvision be imported and its models be made without what cannot be had here.

Built for CUDA, it registers operators that are not there beside a torch for the CPU. Trained weights would be downloaded:
models that ask for them get random ones.
"""

from __future__ import annotations

import importlib
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
        sys.meta_path.insert(0, self)  # who only asked whether it is there will ask again
        if spec is not None and spec.loader is not None:
            _without_missing_operators()
            _then(spec.loader, _complete)
        return spec


def _without_missing_operators() -> None:
    import torch

    real = torch.library.register_fake

    def register_fake(op: Any, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        missing = str(op).startswith("torchvision::")
        decorate: Callable[..., Any] = real(op, *args, **kwargs) if not missing else lambda function: function
        return decorate

    torch.library.register_fake = register_fake


def _then(loader: Any, change: Callable[[], None]) -> None:
    """Change a module right after it was imported."""
    real: Callable[[ModuleType], None] = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        real(module)
        change()

    loader.exec_module = exec_module


def _complete() -> None:
    _without_trained_weights()
    _without_image_library()
    _with_suppression()


def _with_suppression() -> None:
    """Of overlapping boxes those with the highest scores stay."""
    import torch

    boxes: Any = importlib.import_module("torchvision.ops.boxes")

    def nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
        left = scores.argsort(descending=True, stable=True)
        kept = []
        while len(left):
            kept.append(left[0])
            overlaps = boxes.box_iou(dets[left[:1]], dets[left[1:]])[0]
            left = left[1:][overlaps <= iou_threshold]
        return torch.stack(kept) if kept else left

    operators = torch.library.Library("torchvision", "DEF")
    operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    operators.impl("nms", nms, "CPU")
    boxes._operators, boxes._assert_has_ops = operators, lambda: None


def _without_image_library() -> None:
    """Where torchvision was built without it, pictures are read by PIL."""
    io: Any = importlib.import_module("torchvision.io")
    if not importlib.import_module("torchvision.extension")._has_ops():
        io.read_image = _read_image


def _read_image(path: str, *_: Any) -> Any:
    import numpy as np
    import torch
    from PIL import Image

    with Image.open(path) as picture:
        return torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1)


def _without_trained_weights() -> None:
    weights: Any = importlib.import_module("torchvision.models").WeightsEnum
    weights.verify = classmethod(lambda cls, chosen: None)


sys.meta_path.insert(0, _Finder())
