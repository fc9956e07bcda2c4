"""Small deterministic stand-ins for torchvision's data sets whose files are missing.

Only construction, length and items of the classes change, and only for instances whose files are missing. Pictures have a
pattern that depends on their class, so that there is something to learn.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Colour mode, size in pixels, number of classes.
KINDS = {
    "MNIST": ("L", 28, 10),
    "FashionMNIST": ("L", 28, 10),
    "KMNIST": ("L", 28, 10),
    "QMNIST": ("L", 28, 10),
    "EMNIST": ("L", 28, 26),
    "USPS": ("L", 16, 10),
    "SVHN": ("RGB", 32, 10),
    "CIFAR10": ("RGB", 32, 10),
    "CIFAR100": ("RGB", 32, 100),
    "STL10": ("RGB", 96, 10),
    "ImageFolder": ("RGB", 64, 4),
    "ImageNet": ("RGB", 224, 1000),
    "Caltech101": ("RGB", 64, 101),
    "Flowers102": ("RGB", 64, 102),
    "OxfordIIITPet": ("RGB", 64, 37),
    "Food101": ("RGB", 64, 101),
    "LSUN": ("RGB", 64, 1),
}
# Neither number is divisible by 2 or by a usual batch size.
TRAINING, TESTING = 203, 91
MISSING = (RuntimeError, OSError, ImportError, ValueError)
DATA = "_synthetic_data"


def install(folder: Path) -> None:
    """Replace the classes of torchvision.datasets, if a script in ``folder`` can import it."""
    sys.path.insert(0, str(folder))
    try:
        if importlib.util.find_spec("torchvision") is None:
            return
        datasets: Any = importlib.import_module("torchvision.datasets")
    except (ImportError, RuntimeError):  # broken; the script will say so itself
        return
    finally:
        sys.path.remove(str(folder))
    for name, kind in KINDS.items():
        if hasattr(datasets, name):
            _replace(getattr(datasets, name), kind)


def _replace(cls: Any, kind: tuple[str, int, int]) -> None:
    real_init: Callable[..., None] = cls.__init__
    real_len: Callable[[Any], int] = cls.__len__
    real_item: Callable[[Any, int], Any] = cls.__getitem__

    @functools.wraps(real_init)
    def init(self: Any, root: Any = None, *args: Any, **kwargs: Any) -> None:
        if DATA in self.__dict__:  # called by the constructor of a subclass, which has filled it already
            return
        try:
            real_init(self, root, *args, **(kwargs | ({"download": False} if "download" in kwargs else {})))
        except MISSING:
            _fill(self, root, kind, args, kwargs)

    @functools.wraps(real_len)
    def length(self: Any) -> int:
        return len(self.__dict__[DATA]) if DATA in self.__dict__ else real_len(self)

    @functools.wraps(real_item)
    def item(self: Any, index: int) -> Any:
        return _item(self, index, kind) if DATA in self.__dict__ else real_item(self, index)

    cls.__init__, cls.__len__, cls.__getitem__ = init, length, item


def _fill(self: Any, root: Any, kind: tuple[str, int, int], args: Any, kwargs: Any) -> None:
    """Give an instance synthetic data and the attributes that scripts read."""
    train = kwargs.get("train", args[0] if args and isinstance(args[0], bool) else True)
    words = (kwargs.get("split", ""), *(arg for arg in args if isinstance(arg, str)), str(root))
    if any(word.rstrip("/").endswith(("test", "val", "valid")) for word in words):
        train = False
    count = TRAINING if train else TESTING
    _, _, classes = kind
    names = [f"class {number}" for number in range(classes)]
    labels = [number % classes for number in range(count)]
    pictures = np.stack([picture(number, label, kind) for number, label in enumerate(labels)])
    # MNIST and similar data sets have tensors, the others an array and a list.
    tensors = kind[0] == "L"
    values = {
        "root": root,
        "train": train,
        "transform": kwargs.get("transform", next((arg for arg in args if callable(arg)), None)),
        "target_transform": kwargs.get("target_transform"),
        "transforms": None,
        "classes": names,
        "class_to_idx": {name: number for number, name in enumerate(names)},
        "targets": torch.tensor(labels) if tensors else labels,
        "labels": labels,
        "data": torch.from_numpy(pictures) if tensors else pictures,
    }
    self.__dict__[DATA] = labels
    for name, value in values.items():
        # A property of the class stays as it is.
        if not isinstance(getattr(type(self), name, None), property):
            setattr(self, name, value)


def _item(self: Any, index: int, kind: tuple[str, int, int]) -> Any:
    labels = self.__dict__[DATA]
    if not -len(labels) <= index < len(labels):
        raise IndexError(index)
    image: Any = np.asarray(self.data[index])
    if importlib.util.find_spec("PIL") is not None:
        pictures: Any = importlib.import_module("PIL.Image")
        image = pictures.fromarray(image)
    label: Any = labels[index]
    if self.transform is not None:
        image = self.transform(image)
    return image, label if self.target_transform is None else self.target_transform(label)


def picture(number: int, label: int, kind: tuple[str, int, int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A picture, uint8 of (size, size) or (size, size, 3): stripes whose direction and width depend on the class, and noise."""
    mode, size, _ = kind
    rows, columns = np.mgrid[0:size, 0:size]
    angle = 0.61 * label
    waves = np.sin((rows * np.cos(angle) + columns * np.sin(angle)) * (0.2 + 0.05 * (label % 7)))
    noise = np.random.RandomState(number).uniform(-40, 40, (size, size))
    grey = np.clip(127 + 80 * waves + noise, 0, 255).astype(np.uint8)
    return grey if mode == "L" else np.stack([grey, np.roll(grey, 1, 0), 255 - grey], axis=-1)
