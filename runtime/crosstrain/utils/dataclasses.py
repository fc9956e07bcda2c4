"""The options of an Accelerator, as small dataclasses with Accelerate's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

# Scripts import these from here, too.
from crosstrain.comm.types import DistributedType as DistributedType
from crosstrain.comm.types import RNGType as RNGType
from crosstrain.comm.types import Words
from crosstrain.config import parse_flag


class LoggerType(Words):
    """Trackers that `Accelerator(log_with=...)` knows by name."""

    ALL = "all"
    AIM = "aim"
    CLEARML = "clearml"
    COMETML = "comet_ml"
    DVCLIVE = "dvclive"
    JSONL = "jsonl"
    MLFLOW = "mlflow"
    SWANLAB = "swanlab"
    TENSORBOARD = "tensorboard"
    TRACKIO = "trackio"
    WANDB = "wandb"


class PrecisionType(Words):
    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"


class DDPCommunicationHookType(Words):
    """Ways to compress gradients while they are averaged."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"


class DynamoBackend(Words):
    """Compilers with Accelerate's names; every other name that torch.compile knows works, too."""

    NO = "no"
    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    INDUCTOR = "inductor"
    CUDAGRAPHS = "cudagraphs"


@dataclass
class KwargsHandler:
    """Options that are passed on to torch. Only those that differ from their defaults are."""

    def to_kwargs(self) -> dict[str, Any]:
        default = type(self)()
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != getattr(default, f.name)}


@dataclass
class AutocastKwargs(KwargsHandler):
    """Options of autocast: ``enabled`` and ``cache_enabled`` are torch.autocast's.

    ``convert_outputs_to_fp32``: a prepared model returns float32 where it computed in half precision.
    """

    enabled: bool = True
    cache_enabled: bool | None = None
    convert_outputs_to_fp32: bool = True


@dataclass
class GradScalerKwargs(KwargsHandler):
    """torch.amp.GradScaler's options, for mixed_precision="fp16"."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True


@dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """How the process group is started: torch.distributed.init_process_group's options."""

    backend: str | None = None
    init_method: str | None = None
    timeout: timedelta | None = None


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """How gradients are averaged.

    These options have an effect: ``bucket_cap_mb`` (MiB), ``broadcast_buffers``, ``comm_hook`` with ``comm_state_option``,
    and ``gradient_as_bucket_view``, with which gradients stay in the buffers in which they are averaged; that saves the
    memory of one copy of all gradients. The others are accepted because scripts pass them: unused parameters are always
    found, and nothing depends on a static graph.
    """

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int | None = None
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    comm_hook: DDPCommunicationHookType | Callable[..., Any] = DDPCommunicationHookType.NO
    comm_wrapper: Literal["no", "fp16", "bf16"] = "no"
    comm_state_option: dict[str, Any] = field(default_factory=dict)


@dataclass
class ProfileKwargs(KwargsHandler):
    """torch.profiler.profile's options; ``output_trace_dir`` receives one Chrome trace per rank."""

    activities: list[str] | None = None
    schedule_option: dict[str, int] | None = None
    on_trace_ready: Callable[..., Any] | None = None
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    output_trace_dir: str | None = None


@dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """How micro-batches are accumulated to an optimizer step. ValueError if ``num_steps`` is less than 1.

    Args:
        num_steps: micro-batches of a step (a window).
        adjust_scheduler: a prepared scheduler counts the micro-batches that it skips.
        sync_with_dataloader: a loader's last batch always ends the window.
        sync_each_batch: average gradients at every micro-batch: less memory under sharding, more communication.
        scale_last_window: divide the loss in a shorter last window by its true size instead of ``num_steps``.
    """

    num_steps: int = 1
    adjust_scheduler: bool = True
    sync_with_dataloader: bool = True
    sync_each_batch: bool = False
    scale_last_window: bool = False

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"gradient_accumulation_steps={self.num_steps} must be 1 or more")


@dataclass
class DataLoaderConfiguration:
    """How loaders are prepared.

    Args:
        split_batches: the processes share each batch of the loader; by default each process takes whole batches.
        dispatch_batches: process 0 reads for all processes; None: only streams that cannot be sharded.
        even_batches: complete the last batches so that all processes have equally many of equal size. "weighted": split any
            batch size as evenly as possible, and weight every rank's loss by its rows.
        use_seedable_sampler: the order of each epoch depends only on the seed and the epoch.
        data_seed: the seed for that order.
        non_blocking: copy batches to the device asynchronously.
        use_stateful_dataloader: continue a data set or iterator that has ``state_dict`` and ``load_state_dict`` by these.

    Every prepared loader has a ``state_dict``, and after `load_state` continues where the checkpoint was saved; a stream is
    read again up to there, unless it is stateful. torchdata's StatefulDataLoader is always continued by its own state.
    """

    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool | Literal["weighted"] = True
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    use_stateful_dataloader: bool = False


@dataclass
class ProjectConfiguration:
    """Where a project keeps its checkpoints and logs, and how many checkpoints.

    Args:
        project_dir: folder of the checkpoints.
        logging_dir: folder of the logs; by default the project's.
        automatic_checkpoint_naming: `save_state()` writes ``checkpoints/checkpoint_<iteration>``.
        total_limit: how many of these checkpoints are kept, the newest ones.
        iteration: number of the next checkpoint.
        save_on_each_node: the first process of every machine writes, not only that of one machine.
    """

    project_dir: str | None = None
    logging_dir: str | None = None
    automatic_checkpoint_naming: bool = False
    total_limit: int | None = None
    iteration: int = 0
    save_on_each_node: bool = False

    def __post_init__(self) -> None:
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: str | Path | None = None) -> None:
        """Set the project directory, and the log directory if none was given."""
        self.project_dir = None if project_dir is None else str(project_dir)
        if self.logging_dir is None:
            self.logging_dir = self.project_dir


@dataclass
class TorchDynamoPlugin(KwargsHandler):
    """torch.compile's options for prepared models; with ``backend`` None or "no" nothing is compiled.

    ``use_regional_compilation``: compile the repeated blocks of a model (the modules of one class in a ModuleList) one by
    one, and its other parts. Blocks of one class share the compiled code, so the first step starts much earlier.
    """

    backend: str | None = None
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    options: dict[str, Any] | None = None
    disable: bool = False
    use_regional_compilation: bool = False

    def to_kwargs(self) -> dict[str, Any]:
        """The arguments for torch.compile."""
        options = super().to_kwargs()
        options.pop("use_regional_compilation", None)
        return options


@dataclass
class ParallelismConfig:
    """How processes are divided: ``dp_replicate_size`` copies of the model, each sharded over ``dp_shard_size`` processes.

    The product of both is the number of processes. With a ``dp_shard_size`` of 1 every process has the whole model. Models
    are sharded as by `FullyShardedDataParallelPlugin`, whose other options can be given as well.

    Raises NotImplementedError for any other size that is not 1, and ValueError for a size less than 1.
    """

    dp_replicate_size: int = 1
    dp_shard_size: int = 1
    tp_size: int = 1
    cp_size: int = 1
    sp_size: int = 1

    def __post_init__(self) -> None:
        for name in ("tp_size", "cp_size", "sp_size"):
            if getattr(self, name) != 1:
                raise NotImplementedError(
                    f"{name}={getattr(self, name)} is not part of crosstrain: apply torch's parallel styles before "
                    f"`prepare`, or use torchtitan."
                )
        if min(self.dp_replicate_size, self.dp_shard_size) < 1:
            raise ValueError(
                f"dp_replicate_size={self.dp_replicate_size} and dp_shard_size={self.dp_shard_size} must be 1 or more"
            )

    @property
    def total_size(self) -> int:
        return self.dp_replicate_size * self.dp_shard_size

    @property
    def non_data_parallel_size(self) -> int:
        return 1

    @property
    def dp_shard_enabled(self) -> bool:
        return self.dp_shard_size > 1


@dataclass
class FullyShardedDataParallelPlugin(KwargsHandler):
    """Shard parameters, gradients and optimizer state over the processes: torch's `fully_shard` (FSDP2).

    Args:
        sharding_strategy: FULL_SHARD or SHARD_GRAD_OP set ``reshard_after_forward`` to True or False. HYBRID_SHARD and
            HYBRID_SHARD_ZERO2 do the same and shard within groups of processes, each of which has a copy of the model;
            gradients are averaged between the groups.
        reshard_after_forward: free a unit's full parameters between forward and backward.
        mixed_precision_policy: torch's MixedPrecisionPolicy; by default the run's precision, with float32 reductions.
        auto_wrap_policy: which modules are units: "transformer_based_wrap" (the classes in
            ``transformer_cls_names_to_wrap``, or the model's own ``_no_split_modules``), "size_based_wrap" (modules with
            ``min_num_params`` parameters of their own), "no_wrap", or a function (module) -> bool.
        cpu_offload, activation_checkpointing: use less device memory.
        ignored_modules: modules that are not sharded.
        state_dict_type: how `save_state` writes: "SHARDED_STATE_DICT" (every process its part) or "FULL_STATE_DICT".
        forward_methods: other methods of the model that use its parameters.
        param_init_fn: initialises the modules of a model on the meta device; by default their ``reset_parameters`` does.
        sync_module_states: send the main process's weights to the others; False keeps each process's own.
        cpu_ram_efficient_loading: make transformers load weights on the main process only.
        hybrid_shard_size: processes of a group; by default those of a machine.

    The remaining options are Accelerate's; they are accepted, and have no meaning in FSDP2.

    A model is moved to the device in parts, so a device never holds more than its share and one unit. The model may be on
    the meta device, or have weights on the main process only.

    On one XLA host, parameters are spread over its chips by rows, optimizer state follows, and the compiler decides what is
    gathered when. Only ``ignored_modules`` has an effect there, and checkpoints are whole files.

    Raises ValueError for an unknown strategy, group size or ``state_dict_type``.
    """

    fsdp_version: int = 2
    sharding_strategy: str | None = None
    reshard_after_forward: bool | str = True
    mixed_precision_policy: Any = None
    auto_wrap_policy: str | Callable[..., bool] | None = None
    transformer_cls_names_to_wrap: list[str] | str | None = None
    min_num_params: int | None = None
    cpu_offload: bool = False
    activation_checkpointing: bool = False
    ignored_modules: Any = None
    state_dict_type: str = "SHARDED_STATE_DICT"
    forward_methods: tuple[str, ...] = ()
    backward_prefetch: Any = None
    forward_prefetch: bool | None = None
    limit_all_gathers: bool = True
    use_orig_params: bool | None = None
    sync_module_states: bool | None = None
    cpu_ram_efficient_loading: bool | None = None
    param_init_fn: Any = None
    hybrid_shard_size: int | None = None

    @property
    def is_hybrid(self) -> bool:
        """Whether each of several groups of processes has a copy of the model."""
        return self.sharding_strategy is not None and "HYBRID" in self.sharding_strategy

    def _set_strategy(self, strategy: object) -> None:
        reshards = {
            "FULL_SHARD": True,
            "SHARD_GRAD_OP": False,
            "HYBRID_SHARD": True,
            "HYBRID_SHARD_ZERO2": False,
        }
        name = str(strategy).rpartition(".")[2].upper().removeprefix("_")  # torch has a _HYBRID_SHARD_ZERO2
        if name not in reshards:
            raise ValueError(
                f"sharding_strategy={name!r} is not part of FSDP2; choose one of {', '.join(reshards)}, or leave the "
                f"plugin out to train without sharding"
            )
        self.sharding_strategy, self.reshard_after_forward = name, reshards[name]

    def __post_init__(self) -> None:
        if self.sharding_strategy is not None:
            self._set_strategy(self.sharding_strategy)
        if self.hybrid_shard_size is not None and (self.hybrid_shard_size < 1 or not self.is_hybrid):
            raise ValueError(
                f"hybrid_shard_size={self.hybrid_shard_size} must be 1 or more, and needs "
                f"sharding_strategy='HYBRID_SHARD'"
            )
        if isinstance(self.reshard_after_forward, str):
            self.reshard_after_forward = parse_flag(self.reshard_after_forward, "reshard_after_forward")
        self.state_dict_type = str(self.state_dict_type).rpartition(".")[2].upper()
        if self.state_dict_type not in ("SHARDED_STATE_DICT", "FULL_STATE_DICT"):
            raise ValueError(
                f"state_dict_type={self.state_dict_type!r} is unknown; choose SHARDED_STATE_DICT or FULL_STATE_DICT"
            )
        if isinstance(self.transformer_cls_names_to_wrap, str):
            self.transformer_cls_names_to_wrap = self.transformer_cls_names_to_wrap.split(",")
