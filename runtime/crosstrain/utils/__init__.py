"""The names that scripts import from ``accelerate.utils``, and helpers for every room.

- Helpers, which import at most the configuration and the names of devices: `checks` and `script_frames` (the line of the
  script that a check concerns), `nested` and `splitting` (structures of tensors), `bounded` (calls with a limit), `files`,
  `messages`, `run_summary`, `dataclasses` (the Accelerator's options).
- Modules with Accelerate's names for scripts, which other rooms seldom import: `operations`, `random`, `memory`,
  `modeling`, `imports`, `other`, `padding`, `progress`, `xla_report`.

tests/unit/test_rooms.py has the table of which room may import which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crosstrain.compat.lazy import homes, resolver

if TYPE_CHECKING:
    from crosstrain.comm.frames import DistributedOperationException as DistributedOperationException
    from crosstrain.comm.types import DistributedType as DistributedType
    from crosstrain.step.compilation import compile_regions as compile_regions
    from crosstrain.step.compilation import has_compiled_regions as has_compiled_regions
    from crosstrain.utils.dataclasses import AutocastKwargs as AutocastKwargs
    from crosstrain.utils.dataclasses import DataLoaderConfiguration as DataLoaderConfiguration
    from crosstrain.utils.dataclasses import DDPCommunicationHookType as DDPCommunicationHookType
    from crosstrain.utils.dataclasses import DistributedDataParallelKwargs as DistributedDataParallelKwargs
    from crosstrain.utils.dataclasses import DynamoBackend as DynamoBackend
    from crosstrain.utils.dataclasses import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin
    from crosstrain.utils.dataclasses import GradientAccumulationPlugin as GradientAccumulationPlugin
    from crosstrain.utils.dataclasses import GradScalerKwargs as GradScalerKwargs
    from crosstrain.utils.dataclasses import InitProcessGroupKwargs as InitProcessGroupKwargs
    from crosstrain.utils.dataclasses import KwargsHandler as KwargsHandler
    from crosstrain.utils.dataclasses import LoggerType as LoggerType
    from crosstrain.utils.dataclasses import ParallelismConfig as ParallelismConfig
    from crosstrain.utils.dataclasses import PrecisionType as PrecisionType
    from crosstrain.utils.dataclasses import ProfileKwargs as ProfileKwargs
    from crosstrain.utils.dataclasses import ProjectConfiguration as ProjectConfiguration
    from crosstrain.utils.dataclasses import RNGType as RNGType
    from crosstrain.utils.dataclasses import TorchDynamoPlugin as TorchDynamoPlugin
    from crosstrain.utils.imports import is_bf16_available as is_bf16_available
    from crosstrain.utils.imports import is_fp16_available as is_fp16_available
    from crosstrain.utils.memory import clear_device_cache as clear_device_cache
    from crosstrain.utils.memory import find_executable_batch_size as find_executable_batch_size
    from crosstrain.utils.memory import release_memory as release_memory
    from crosstrain.utils.memory import should_reduce_batch_size as should_reduce_batch_size
    from crosstrain.utils.modeling import load_checkpoint_in_model as load_checkpoint_in_model
    from crosstrain.utils.nested import convert_to_fp32 as convert_to_fp32
    from crosstrain.utils.operations import broadcast as broadcast
    from crosstrain.utils.operations import broadcast_object_list as broadcast_object_list
    from crosstrain.utils.operations import gather as gather
    from crosstrain.utils.operations import gather_object as gather_object
    from crosstrain.utils.operations import pad_across_processes as pad_across_processes
    from crosstrain.utils.operations import reduce as reduce
    from crosstrain.utils.operations import send_to_device as send_to_device
    from crosstrain.utils.other import extract_model_from_parallel as extract_model_from_parallel
    from crosstrain.utils.other import load as load
    from crosstrain.utils.other import patch_environment as patch_environment
    from crosstrain.utils.other import save as save
    from crosstrain.utils.other import wait_for_everyone as wait_for_everyone
    from crosstrain.utils.padding import pad_collate as pad_collate
    from crosstrain.utils.progress import tqdm as tqdm
    from crosstrain.utils.random import set_seed as set_seed
    from crosstrain.utils.random import synchronize_rng_state as synchronize_rng_state
    from crosstrain.utils.random import synchronize_rng_states as synchronize_rng_states

_HOMES = homes(
    {
        "comm.frames": "DistributedOperationException",
        "comm.types": "DistributedType",
        "step.compilation": "compile_regions has_compiled_regions",
        "utils.memory": "clear_device_cache find_executable_batch_size release_memory should_reduce_batch_size",
        "utils.operations": """broadcast broadcast_object_list convert_to_fp32 gather gather_object
        pad_across_processes reduce send_to_device""",
        "utils.other": "extract_model_from_parallel load patch_environment save wait_for_everyone",
        "utils.padding": "pad_collate",
        "utils.random": "set_seed synchronize_rng_state synchronize_rng_states",
        "utils.dataclasses": """AutocastKwargs DDPCommunicationHookType DataLoaderConfiguration
        DistributedDataParallelKwargs DynamoBackend FullyShardedDataParallelPlugin
        GradScalerKwargs GradientAccumulationPlugin InitProcessGroupKwargs KwargsHandler
        LoggerType ParallelismConfig PrecisionType ProfileKwargs ProjectConfiguration RNGType
        TorchDynamoPlugin""",
        "utils.imports": "is_bf16_available is_fp16_available",
        "utils.modeling": "load_checkpoint_in_model",
        "utils.progress": "tqdm",
    }
)
__all__ = list(_HOMES)

__getattr__ = resolver(__name__, _HOMES, globals(), others=("compat.not_supported", "utils.imports"))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
