"""Crosstrain's runtime: Accelerate's interface on torch.distributed, exact and transparent.

Names are imported on first use, so that the command line can import this package without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crosstrain.compat.lazy import homes, resolver
from crosstrain.version import __version__ as __version__

if TYPE_CHECKING:
    from crosstrain.accelerator import Accelerator
    from crosstrain.comm.types import DistributedType
    from crosstrain.data.prepare import skip_first_batches
    from crosstrain.launch.notebook import debug_launcher, notebook_launcher
    from crosstrain.state import AcceleratorState, GradientState, PartialState
    from crosstrain.utils.dataclasses import (
        AutocastKwargs,
        DataLoaderConfiguration,
        DDPCommunicationHookType,
        DistributedDataParallelKwargs,
        FullyShardedDataParallelPlugin,
        GradientAccumulationPlugin,
        GradScalerKwargs,
        InitProcessGroupKwargs,
        ParallelismConfig,
        ProfileKwargs,
        ProjectConfiguration,
    )
    from crosstrain.utils.memory import find_executable_batch_size
    from crosstrain.utils.modeling import load_checkpoint_in_model
    from crosstrain.utils.random import synchronize_rng_states
    from crosstrain.utils.xla_report import xla_report

__all__ = [
    "Accelerator",
    "AcceleratorState",
    "AutocastKwargs",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "GradientState",
    "InitProcessGroupKwargs",
    "ParallelismConfig",
    "PartialState",
    "ProfileKwargs",
    "ProjectConfiguration",
    "debug_launcher",
    "find_executable_batch_size",
    "load_checkpoint_in_model",
    "notebook_launcher",
    "skip_first_batches",
    "synchronize_rng_states",
    "xla_report",
]

__getattr__ = resolver(
    __name__,
    homes(
        {
            "accelerator": "Accelerator",
            "comm.types": "DistributedType",
            "data.prepare": "skip_first_batches",
            "launch.notebook": "debug_launcher notebook_launcher",
            "state": "AcceleratorState GradientState PartialState",
            "utils.dataclasses": """AutocastKwargs DataLoaderConfiguration DDPCommunicationHookType
                DistributedDataParallelKwargs FullyShardedDataParallelPlugin GradientAccumulationPlugin
                GradScalerKwargs InitProcessGroupKwargs ParallelismConfig ProfileKwargs ProjectConfiguration""",
            "utils.memory": "find_executable_batch_size",
            "utils.modeling": "load_checkpoint_in_model",
            "utils.random": "synchronize_rng_states",
            "utils.xla_report": "xla_report",
        }
    ),
    globals(),
    others=("compat.not_supported", "utils.imports"),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
