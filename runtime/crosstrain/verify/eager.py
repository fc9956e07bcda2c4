"""`torch.compile` in a run: it wraps what it is given, as always, and compiles nothing.

A compiler that writes kernels to a cache and starts a C++ compiler has no place in a confined run, and what it changes
is speed and rounding. `client.clean_environment` switches it off; this module notes that a script asked for it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


class Compiling:
    """`asked`: whether the script has called `torch.compile` or `module.compile`."""

    def __init__(self) -> None:
        self.asked = False

    def install(self) -> None:
        """Watch both functions of this process, for good."""
        module: Any = torch.nn.Module
        whole: Any = torch
        whole.compile = self._noting(whole.compile)
        module.compile = self._noting(module.compile)

    def _noting(self, real: Any) -> Any:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.asked = True
            return real(*args, **kwargs)

        return call
