"""Accelerate's names that this package does not implement. They can be imported; using one raises an error that names the
alternative.

If accelerate is installed, its own functions for big-model inference are returned.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, NoReturn

BIG = "install accelerate for big-model inference (it works beside crosstrain)"
_SHARD = "shard with FullyShardedDataParallelPlugin (torch's FSDP2), or stay on accelerate for DeepSpeed"
_PARALLEL = "apply torch's parallel styles before `prepare`, or use torchtitan"

INSTEAD = {
    "cpu_offload": BIG,
    "cpu_offload_with_hook": BIG,
    "disk_offload": BIG,
    "dispatch_model": BIG,
    "infer_auto_device_map": BIG,
    "init_empty_weights": BIG,
    "init_on_device": BIG,
    "load_checkpoint_and_dispatch": BIG,
    "prepare_pippy": "use torch.distributed.pipelining",
    "DeepSpeedPlugin": _SHARD,
    "DummyOptim": _SHARD,
    "DummyScheduler": _SHARD,
    "MegatronLMPlugin": "use Megatron-LM's or torchtitan's own training loop",
    "TorchTensorParallelPlugin": _PARALLEL,
    "AORecipeKwargs": "convert the model with torchao before `prepare`",
    "FP8RecipeKwargs": "use mixed_precision='bf16', or torchao's float8 training",
    "MSAMPRecipeKwargs": "use mixed_precision='bf16'",
    "TERecipeKwargs": "use transformer_engine's own layers and autocast",
}

# Members of an Accelerator that are not implemented.
MEMBERS = {
    "deepspeed_plugin": _SHARD,
    "get_active_deepspeed_plugin": _SHARD,
    "deepspeed_ulysses_dl_adapter": _SHARD,
    "lomo_backward": "use lomo_optim's own fused_backward, without `prepare`",
    "fp8_backend": "use mixed_precision='bf16', or torchao's float8 training",
    "maybe_context_parallel": _PARALLEL,
    "tensor_parallel_rank": _PARALLEL,
    "pipeline_parallel_rank": _PARALLEL,
    "context_parallel_rank": _PARALLEL,
    "_prepare_megatron_lm": "use Megatron-LM's or torchtitan's own training loop",
    "_prepare_msamp": "use mixed_precision='bf16'",
    "_prepare_te": "use transformer_engine's own layers and autocast",
    "_prepare_ao": "convert the model with torchao before `prepare`",
    "_prepare_deepspeed": _SHARD,
    "join_uneven_inputs": "a prepared model has DistributedDataParallel's own `join`: `with model.join():`",
    "trigger_sync_in_backward": "make the loss outside of `no_sync`",
    "log_images": "give them to the library's own run: `get_tracker(name, unwrap=True)`",
}


class NotOurs(NotImplementedError, AttributeError):
    """A name is not part of crosstrain; the message names the alternative. `hasattr` returns False for it."""


def refuse(name: str, instead: str) -> NoReturn:
    """Raise NotOurs for ``name``. instead: what to do, for the message."""
    raise NotOurs(f"{name} is not part of crosstrain: {instead}.")


def __getattr__(name: str) -> Any:
    if name not in INSTEAD:
        raise AttributeError(f"module 'crosstrain' has no attribute {name!r}")
    instead = INSTEAD[name]
    if instead is BIG and importlib.util.find_spec("accelerate") is not None:
        return getattr(importlib.import_module("accelerate"), name)

    def use(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, instead)

    if name[0].islower():
        return use
    return type(name, (), {"__init__": use, "__module__": "crosstrain", "__doc__": f"Not ours: {instead}."})
