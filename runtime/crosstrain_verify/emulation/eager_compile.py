"""`torch.compile` in a run wraps what it gets, as always, but compiles nothing.

It would write kernels to a cache and start a C++ compiler, which a confined run cannot do; it changes only speed and
rounding. `client.clean_environment` switches it off, and this module notes that a script called it.

`torch.jit.script` compiles as always. It recognises torch's functions by their identity, so functions that a run replaces
must be registered with it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.jit._builtins

from crosstrain_verify.emulation.emulated import COMPILE, asked


def install() -> None:
    """Note calls of `torch.compile` and `Module.compile`, for the rest of this process."""
    module: Any = torch.nn.Module
    whole: Any = torch
    whole.compile = _noting(whole.compile)
    module.compile = _noting(module.compile)


def _noting(real: Any) -> Any:
    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        asked.add(COMPILE)
        return real(*args, **kwargs)

    return call


def scripted_as(replacement: Any, real: Any) -> Any:
    """The replacement, registered so that `torch.jit.script` compiles it as the operator that it replaces."""
    builtins: Any = torch.jit._builtins
    operator = builtins._find_builtin(real)
    if operator is not None:
        builtins._register_builtin(replacement, operator)
    return replacement


def replace_batch_norm(wrapped: Any) -> None:
    """Put `wrapped(real, values, weight, bias, mean, var, training, *rest)` in the place of `torch.batch_norm`."""
    module: Any = torch
    real = module.batch_norm

    @functools.wraps(real)
    def batch_norm(*args: Any) -> Any:
        return wrapped(real, *args)

    module.batch_norm = scripted_as(batch_norm, real)
