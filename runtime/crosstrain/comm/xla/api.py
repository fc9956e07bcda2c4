"""torch_xla, imported in one place. Everything from it is untyped: it ships no type information."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import Any

from crosstrain.requirements import install

_handlers = list(logging.root.handlers)
try:
    torch_xla: Any = import_module("torch_xla")
except ImportError as error:
    raise RuntimeError(
        f"PJRT_DEVICE={os.environ.get('PJRT_DEVICE')} asks for XLA, but torch_xla cannot be imported ({error}): "
        f"{install('tpu')}; or unset PJRT_DEVICE, or use Accelerator(cpu=True)."
    ) from None
model: Any = import_module("torch_xla.core.xla_model")
spmd: Any = import_module("torch_xla.distributed.spmd")
runtime: Any = import_module("torch_xla.runtime")
metrics: Any = import_module("torch_xla.debug.metrics")
internals: Any = torch_xla._XLAC
# The import logs a warning through the root logger, which configures logging. Undo that: it is the script's choice.
for _handler in set(logging.root.handlers) - set(_handlers):
    logging.root.removeHandler(_handler)
