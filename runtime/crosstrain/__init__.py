"""Crosstrain's runtime: Accelerate's interface on torch.distributed, exact and transparent.

Names are imported on first use, so that the command line can import this package without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crosstrain._lazy import homes, resolver

if TYPE_CHECKING:
    from crosstrain.accelerator import Accelerator
    from crosstrain.comm import DistributedType
    from crosstrain.data import skip_first_batches
    from crosstrain.memory import find_executable_batch_size
    from crosstrain.notebook import debug_launcher, notebook_launcher
    from crosstrain.seeding import synchronize_rng_states
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
        ProfileKwargs,
        ProjectConfiguration,
    )
    from crosstrain.utils.modeling import load_checkpoint_in_model
    from crosstrain.xla.report import xla_report

__version__ = "0.1.0"

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
            "comm": "DistributedType",
            "data": "skip_first_batches",
            "memory": "find_executable_batch_size",
            "notebook": "debug_launcher notebook_launcher",
            "seeding": "synchronize_rng_states",
            "state": "AcceleratorState GradientState PartialState",
            "utils.dataclasses": """AutocastKwargs DataLoaderConfiguration DDPCommunicationHookType
                DistributedDataParallelKwargs FullyShardedDataParallelPlugin GradientAccumulationPlugin
                GradScalerKwargs InitProcessGroupKwargs ProfileKwargs ProjectConfiguration""",
            "utils.modeling": "load_checkpoint_in_model",
            "xla.report": "xla_report",
        }
    ),
    globals(),
    others=("elsewhere", "utils.imports"),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
