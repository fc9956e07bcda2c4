"""`torch.compile` in a run: it wraps what it is given, as always, and compiles nothing.

A compiler that writes kernels to a cache and starts a C++ compiler has no place in a confined run, and what it changes
is speed and rounding. `client.clean_environment` switches it off; this module notes that a script asked for it.

`torch.jit.script` compiles as always. It knows torch's functions by their identity, so it is told of those that a run
replaces.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.jit._builtins

from crosstrain_verify.emulation.emulated import COMPILE, asked


def install() -> None:
    """Watch `torch.compile` and `module.compile` of this process, for good."""
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
    """The replacement, which scripted code takes for the operator that it replaces."""
    builtins: Any = torch.jit._builtins
    operator = builtins._find_builtin(real)
    if operator is not None:
        builtins._register_builtin(replacement, operator)
    return replacement
