"""Crosstrain's runtime: Accelerate's interface on torch.distributed, exact and transparent.

Where to look: `step.gradients` averages a gradient, `data.sharding` says which rank gets which rows of a batch and
`data.samplers` deals them, `data.draws` changes the random streams that are drawn from. Each room's own file says what
its modules do.

Names are imported on first use, so that the command line can import this package without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crosstrain.compat.lazy import homes, resolver
from crosstrain.version import __version__ as __version__

if TYPE_CHECKING:
    from crosstrain.accelerator import Accelerator as Accelerator
    from crosstrain.comm.types import DistributedType as DistributedType
    from crosstrain.data.prepare import skip_first_batches as skip_first_batches
    from crosstrain.launch.notebook import debug_launcher as debug_launcher
    from crosstrain.launch.notebook import notebook_launcher as notebook_launcher
    from crosstrain.state import AcceleratorState as AcceleratorState
    from crosstrain.state import GradientState as GradientState
    from crosstrain.state import PartialState as PartialState
    from crosstrain.utils.dataclasses import AutocastKwargs as AutocastKwargs
    from crosstrain.utils.dataclasses import DataLoaderConfiguration as DataLoaderConfiguration
    from crosstrain.utils.dataclasses import DDPCommunicationHookType as DDPCommunicationHookType
    from crosstrain.utils.dataclasses import DistributedDataParallelKwargs as DistributedDataParallelKwargs
    from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin
    from crosstrain.utils.dataclasses import GradientAccumulationPlugin as GradientAccumulationPlugin
    from crosstrain.utils.dataclasses import GradScalerKwargs as GradScalerKwargs
    from crosstrain.utils.dataclasses import InitProcessGroupKwargs as InitProcessGroupKwargs
    from crosstrain.utils.dataclasses import ParallelismConfig as ParallelismConfig
    from crosstrain.utils.dataclasses import ProfileKwargs as ProfileKwargs
    from crosstrain.utils.dataclasses import ProjectConfiguration as ProjectConfiguration
    from crosstrain.utils.memory import find_executable_batch_size as find_executable_batch_size
    from crosstrain.utils.modeling import load_checkpoint_in_model as load_checkpoint_in_model
    from crosstrain.utils.random import synchronize_rng_states as synchronize_rng_states
    from crosstrain.utils.xla_report import xla_report as xla_report

_HOMES = homes(
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
)
__all__ = list(_HOMES)

__getattr__ = resolver(__name__, _HOMES, globals(), others=("compat.not_supported", "utils.imports"))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
