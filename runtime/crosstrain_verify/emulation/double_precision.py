"""Replaces single precision by double precision, to distinguish a mistake from rounding that training has amplified.

Several processes add in another order, so their weights differ in the last bits. If the input of a ReLU is near zero, or a
maximum is a tie, the next gradient may differ by far more, and no tolerance can distinguish that from a mistake. In double
precision the error is a billion times smaller and a mistake is as large as before, so what agrees there is the same
training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

# Functions that make tensors from other objects, in the precision of these.
CONVERTERS = ("as_tensor", "asarray", "from_numpy", "frombuffer", "tensor")


def install() -> None:
    """Replace float32 by float64 for the rest of this process. Call it before the script imports anything."""
    module: Any = torch
    single = torch.float32
    torch.set_default_dtype(torch.float64)
    for name in CONVERTERS:
        setattr(module, name, _doubled(getattr(module, name), single))
    module.set_default_dtype = lambda dtype: None
    module.set_default_tensor_type = lambda kind: None
    module.float32 = module.float = torch.float64
    module.FloatTensor = torch.DoubleTensor
    tensor: Any = torch.Tensor
    tensor.float = tensor.double
    module.nn.Module.float = module.nn.Module.double
    real_type: Callable[..., Any] = tensor.type

    @functools.wraps(real_type)
    def change_type(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(dtype, str):
            dtype = dtype.replace("FloatTensor", "DoubleTensor")
        return real_type(self, *(() if dtype is None else (dtype,)), *args, **kwargs)

    tensor.type = change_type


def _doubled(function: Callable[..., Any], single: torch.dtype) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return made.double() if made.dtype is single else made

    return call
