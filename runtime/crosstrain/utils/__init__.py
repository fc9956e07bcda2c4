"""The names that scripts import from ``accelerate.utils``, and helpers for every room.

- Helpers, which import at most the configuration and the names of devices: `checks` and `script_frames` (the line of the
  script that a check concerns), `nested` and `splitting` (structures of tensors), `bounded` (calls with a limit), `files`,
  `messages`, `run_summary`, `dataclasses` (the Accelerator's options).
- Modules with Accelerate's names for scripts, which other rooms seldom import: `operations`, `random`, `memory`,
  `modeling`, `imports`, `environment`, `other`, `padding`, `progress`, `xla_report`.

tests/unit/test_rooms.py has the table of which room may import which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crosstrain.compat.lazy import homes, resolver

if TYPE_CHECKING:
    from crosstrain.comm.frames import DistributedOperationException
    from crosstrain.comm.types import DistributedType
    from crosstrain.step.compilation import compile_regions, has_compiled_regions
    from crosstrain.utils.dataclasses import (
        AutocastKwargs,
        DataLoaderConfiguration,
        DDPCommunicationHookType,
        DistributedDataParallelKwargs,
        DynamoBackend,
        FullyShardedDataParallelPlugin,
        GradientAccumulationPlugin,
        GradScalerKwargs,
        InitProcessGroupKwargs,
        KwargsHandler,
        LoggerType,
        ParallelismConfig,
        PrecisionType,
        ProfileKwargs,
        ProjectConfiguration,
        RNGType,
        TorchDynamoPlugin,
    )
    from crosstrain.utils.environment import (
        clear_environment,
        get_int_from_env,
        parse_choice_from_env,
        parse_flag_from_env,
        patch_environment,
        str_to_bool,
    )
    from crosstrain.utils.imports import (
        is_bf16_available,
        is_fp8_available,
        is_fp16_available,
        is_weights_only_available,
    )
    from crosstrain.utils.memory import (
        clear_device_cache,
        find_executable_batch_size,
        release_memory,
        should_reduce_batch_size,
    )
    from crosstrain.utils.modeling import (
        find_tied_parameters,
        is_peft_model,
        load_checkpoint_in_model,
        retie_parameters,
        set_module_tensor_to_device,
    )
    from crosstrain.utils.nested import (
        concatenate,
        convert_to_fp32,
        find_batch_size,
        find_device,
        recursively_apply,
        send_to_device,
        slice_tensors,
    )
    from crosstrain.utils.operations import (
        broadcast,
        broadcast_object_list,
        copy_tensor_to_devices,
        gather,
        gather_object,
        pad_across_processes,
        reduce,
    )
    from crosstrain.utils.other import (
        compare_versions,
        convert_bytes,
        extract_model_from_parallel,
        is_compiled_module,
        is_torch_version,
        load,
        merge_dicts,
        model_has_dtensor,
        recursive_getattr,
        save,
        wait_for_everyone,
    )
    from crosstrain.utils.padding import pad_collate
    from crosstrain.utils.progress import tqdm
    from crosstrain.utils.random import set_seed, synchronize_rng_state, synchronize_rng_states

__all__ = [
    "AutocastKwargs",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedOperationException",
    "DistributedType",
    "DynamoBackend",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "LoggerType",
    "ParallelismConfig",
    "PrecisionType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "TorchDynamoPlugin",
    "broadcast",
    "broadcast_object_list",
    "clear_device_cache",
    "clear_environment",
    "compare_versions",
    "compile_regions",
    "concatenate",
    "convert_bytes",
    "convert_to_fp32",
    "copy_tensor_to_devices",
    "extract_model_from_parallel",
    "find_batch_size",
    "find_device",
    "find_executable_batch_size",
    "find_tied_parameters",
    "gather",
    "gather_object",
    "get_int_from_env",
    "has_compiled_regions",
    "is_bf16_available",
    "is_compiled_module",
    "is_fp8_available",
    "is_fp16_available",
    "is_peft_model",
    "is_torch_version",
    "is_weights_only_available",
    "load",
    "load_checkpoint_in_model",
    "merge_dicts",
    "model_has_dtensor",
    "pad_across_processes",
    "pad_collate",
    "parse_choice_from_env",
    "parse_flag_from_env",
    "patch_environment",
    "recursive_getattr",
    "recursively_apply",
    "reduce",
    "release_memory",
    "retie_parameters",
    "save",
    "send_to_device",
    "set_module_tensor_to_device",
    "set_seed",
    "should_reduce_batch_size",
    "slice_tensors",
    "str_to_bool",
    "synchronize_rng_state",
    "synchronize_rng_states",
    "tqdm",
    "wait_for_everyone",
]

__getattr__ = resolver(
    __name__,
    homes(
        {
            "comm.frames": "DistributedOperationException",
            "comm.types": "DistributedType",
            "step.compilation": "compile_regions has_compiled_regions",
            "utils.memory": "clear_device_cache find_executable_batch_size release_memory should_reduce_batch_size",
            "utils.operations": """broadcast broadcast_object_list concatenate convert_to_fp32 copy_tensor_to_devices
                find_batch_size find_device gather gather_object pad_across_processes recursively_apply
                reduce send_to_device slice_tensors""",
            "utils.padding": "pad_collate",
            "utils.random": "set_seed synchronize_rng_state synchronize_rng_states",
            "utils.dataclasses": """AutocastKwargs DDPCommunicationHookType DataLoaderConfiguration
                DistributedDataParallelKwargs DynamoBackend FullyShardedDataParallelPlugin
                GradScalerKwargs GradientAccumulationPlugin InitProcessGroupKwargs KwargsHandler
                LoggerType ParallelismConfig PrecisionType ProfileKwargs ProjectConfiguration RNGType
                TorchDynamoPlugin""",
            "utils.environment": """clear_environment get_int_from_env parse_choice_from_env parse_flag_from_env
                patch_environment str_to_bool""",
            "utils.imports": "is_bf16_available is_fp16_available is_fp8_available is_weights_only_available",
            "utils.modeling": """find_tied_parameters is_peft_model load_checkpoint_in_model retie_parameters
                set_module_tensor_to_device""",
            "utils.other": """compare_versions convert_bytes extract_model_from_parallel is_compiled_module
                is_torch_version load merge_dicts model_has_dtensor recursive_getattr save
                wait_for_everyone""",
            "utils.progress": "tqdm",
        }
    ),
    globals(),
    others=("compat.not_supported", "utils.imports"),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
