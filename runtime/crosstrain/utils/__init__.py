"""What scripts import from ``accelerate.utils``, under the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crosstrain._lazy import homes, resolver

if TYPE_CHECKING:
    from crosstrain.comm import DistributedType
    from crosstrain.memory import (
        clear_device_cache,
        find_executable_batch_size,
        release_memory,
        should_reduce_batch_size,
    )
    from crosstrain.ops import (
        broadcast,
        broadcast_object_list,
        concatenate,
        convert_to_fp32,
        find_batch_size,
        gather,
        gather_object,
        pad_across_processes,
        reduce,
        send_to_device,
        slice_tensors,
    )
    from crosstrain.seeding import set_seed, synchronize_rng_state, synchronize_rng_states
    from crosstrain.utils.dataclasses import (
        AutocastKwargs,
        DataLoaderConfiguration,
        DDPCommunicationHookType,
        DistributedDataParallelKwargs,
        FullyShardedDataParallelPlugin,
        GradientAccumulationPlugin,
        GradScalerKwargs,
        InitProcessGroupKwargs,
        KwargsHandler,
        LoggerType,
        PrecisionType,
        ProfileKwargs,
        ProjectConfiguration,
        RNGType,
        TorchDynamoPlugin,
    )

__all__ = [
    "AutocastKwargs",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "LoggerType",
    "PrecisionType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "TorchDynamoPlugin",
    "broadcast",
    "broadcast_object_list",
    "clear_device_cache",
    "concatenate",
    "convert_to_fp32",
    "find_batch_size",
    "find_executable_batch_size",
    "gather",
    "gather_object",
    "pad_across_processes",
    "reduce",
    "release_memory",
    "send_to_device",
    "set_seed",
    "should_reduce_batch_size",
    "slice_tensors",
    "synchronize_rng_state",
    "synchronize_rng_states",
]

__getattr__ = resolver(
    __name__,
    homes(
        {
            "comm": "DistributedType",
            "memory": "clear_device_cache find_executable_batch_size release_memory should_reduce_batch_size",
            "ops": """broadcast broadcast_object_list concatenate convert_to_fp32 find_batch_size gather
                gather_object pad_across_processes reduce send_to_device slice_tensors""",
            "seeding": "set_seed synchronize_rng_state synchronize_rng_states",
            "utils.dataclasses": """AutocastKwargs DDPCommunicationHookType DataLoaderConfiguration
                DistributedDataParallelKwargs FullyShardedDataParallelPlugin GradScalerKwargs GradientAccumulationPlugin
                InitProcessGroupKwargs KwargsHandler LoggerType PrecisionType ProfileKwargs
                ProjectConfiguration RNGType TorchDynamoPlugin""",
        }
    ),
    globals(),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
