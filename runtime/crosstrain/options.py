"""The Accelerator's arguments as it uses them: an explicit one, else the launcher's choice, else a default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from crosstrain.comm.protocol import Comm
from crosstrain.compat import not_supported
from crosstrain.config import ELSEWHERE, LaunchConfig, parse_flag
from crosstrain.utils.dataclasses import (
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ParallelismConfig,
    ProfileKwargs,
    ProjectConfiguration,
    TorchDynamoPlugin,
)


@dataclass
class Handlers:
    """The kwargs handlers of one Accelerator, by kind."""

    autocast: AutocastKwargs | None = None
    scaler: GradScalerKwargs | None = None
    ddp: DistributedDataParallelKwargs = field(default_factory=DistributedDataParallelKwargs)
    group: InitProcessGroupKwargs | None = None
    profile: ProfileKwargs | None = None


def sort_handlers(handlers: Iterable[KwargsHandler] | None, first: Handlers | None = None) -> Handlers:
    """Sort the handlers by kind; those of ``first``, the first Accelerator's, count where none is given.

    Raises TypeError for an unknown one, ValueError for two of a kind, and for another fp16 scaler than the first one's.
    """
    names: dict[type, str] = {
        AutocastKwargs: "autocast",
        GradScalerKwargs: "scaler",
        DistributedDataParallelKwargs: "ddp",
        InitProcessGroupKwargs: "group",
        ProfileKwargs: "profile",
    }
    if isinstance(handlers, KwargsHandler):
        raise TypeError(f"kwargs_handlers is a list: kwargs_handlers=[{type(handlers).__name__}(...)].")
    chosen: dict[str, Any] = {}
    for handler in handlers or ():
        name = names.get(type(handler))
        if name is None:
            known = ", ".join(sorted(kind.__name__ for kind in names))
            raise TypeError(f"kwargs_handlers holds a {type(handler).__name__}; known are {known}.")
        if name in chosen:
            raise ValueError(f"kwargs_handlers holds two {type(handler).__name__}; give one.")
        chosen[name] = handler
    if first is None:
        return Handlers(**chosen)
    if chosen.get("scaler", first.scaler) != first.scaler:
        raise ValueError(
            "GradScalerKwargs must be given to the first Accelerator() of the process: all of them share one scaler."
        )
    return replace(first, **chosen)


def device(cpu: bool | None, given: torch.device | str | int | None) -> tuple[bool | None, int | None]:
    """Whether to stay on the CPU, and the index of the device; None where ``given`` does not say it."""
    if given is None or isinstance(given, bool):
        return cpu, None
    if isinstance(given, int) or (isinstance(given, str) and given.isdigit()):
        return cpu, int(given) if int(given) >= 0 else None
    try:
        named = torch.device(given)
    except RuntimeError:
        return cpu, None
    return (True, None) if named.type == "cpu" else (cpu, named.index)


def refuse(options: dict[str, Any]) -> None:
    """Raise for unknown options: NotImplementedError, naming the alternative, for Accelerate's, else TypeError."""
    for name, value in options.items():
        if name not in ELSEWHERE:
            raise TypeError(f"Accelerator() has no option {name!r}; see help(crosstrain.Accelerator).")
        if value is not None:
            not_supported.refuse(name, ELSEWHERE[name])


def loader_options(
    config: DataLoaderConfiguration | None,
    said: Mapping[str, Any],
    launch: LaunchConfig,
    loss_reduction: str,
    first: DataLoaderConfiguration | None,
) -> DataLoaderConfiguration:
    """The loaders' options: the arguments ``said``, else ``config``, else the launcher's choice.

    Without ``config`` the options of ``first``, the first Accelerator's, count in place of the launcher's.

    Where nothing sets `even_batches`, a loss that is a sum over rows gets "weighted", because rows that complete the
    last batch would count twice. Raises ValueError where an argument contradicts ``config``, and for an unknown
    ``loss_reduction``.
    """
    if loss_reduction not in ("mean", "sum"):
        raise ValueError(f"loss_reduction={loss_reduction!r} is unknown; choose 'mean' or 'sum'.")
    if first is not None and config is None:
        changed: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        return replace(first, **changed) if changed else first
    exact: Literal["weighted"] | None = "weighted" if loss_reduction == "sum" else None
    launched = {"split_batches": launch.split_batches, "even_batches": launch.even_batches or exact}
    chosen = config or DataLoaderConfiguration()
    default = DataLoaderConfiguration()
    changes: dict[str, Any] = {}
    for name, value in said.items():
        configured = getattr(chosen, name)
        if value is not None:
            if configured not in (value, getattr(default, name)):
                raise ValueError(
                    f"{name}={value!r} contradicts dataloader_config.{name}={configured!r}; give one of them."
                )
            changes[name] = value
        elif configured == getattr(default, name) and launched.get(name) is not None:
            changes[name] = launched[name]
    return replace(chosen, **changes)


def accumulation(
    plugin: GradientAccumulationPlugin | None, steps: int | None, launch: LaunchConfig | None
) -> GradientAccumulationPlugin | None:
    """The accumulation options; ValueError where ``steps`` contradicts the plugin.

    ``launch`` is None for an Accelerator that is not the first; what that is not given is the run's own, here None.
    """
    if plugin is not None:
        if steps not in (None, 1, plugin.num_steps):
            raise ValueError(
                f"gradient_accumulation_steps={steps} contradicts the plugin's num_steps={plugin.num_steps}."
            )
        return plugin
    if steps is None and launch is None:
        return None
    launched = None if launch is None else launch.gradient_accumulation_steps
    chosen = launched if steps is None else steps
    return GradientAccumulationPlugin(num_steps=1 if chosen is None else chosen)


def with_optimizer(first: bool | None, alias: bool | None) -> bool | None:
    """``step_scheduler_with_optimizer`` or its alias; ValueError where they differ, None where neither is given."""
    if None not in (first, alias) and first != alias:
        raise ValueError("step_scheduler_with_optimizer and step_with_optimizer are one option; give one.")
    return alias if first is None else first


def project(config: ProjectConfiguration | None, directory: str | Path | None) -> ProjectConfiguration:
    """Where the project keeps its files; ``directory`` counts where the configuration names none."""
    chosen = ProjectConfiguration() if config is None else config
    if directory is not None and chosen.project_dir is None:
        chosen.set_directories(directory)
    return chosen


def sharding(
    plugin: FullyShardedDataParallelPlugin | None,
    launch: LaunchConfig,
    comm: Comm,
    parallelism: ParallelismConfig | None = None,
) -> FullyShardedDataParallelPlugin | None:
    """How models are sharded: by the script's choice, else by the launcher's; None if they are not."""
    if plugin is None and launch.fsdp is not None:
        plugin = FullyShardedDataParallelPlugin(**launch.fsdp)
    if plugin is not None and not isinstance(plugin, FullyShardedDataParallelPlugin):
        raise TypeError(
            f"fsdp_plugin must be a FullyShardedDataParallelPlugin, not a {type(plugin).__name__}"
        )
    if parallelism is not None:
        plugin = _divided(plugin, parallelism, comm)
    if plugin is not None and not comm.averages and comm.replicas > 1:
        _check_one_program(plugin, comm)
    return plugin


def _divided(
    plugin: FullyShardedDataParallelPlugin | None, parallelism: ParallelismConfig, comm: Comm
) -> FullyShardedDataParallelPlugin | None:
    """The plugin that has the sizes of a ParallelismConfig; None where nothing is sharded.

    Raises ValueError where the sizes, the plugin and the number of processes contradict each other.
    """
    copies, shards = parallelism.dp_replicate_size, parallelism.dp_shard_size
    sizes = f"ParallelismConfig(dp_replicate_size={copies}, dp_shard_size={shards})"
    if parallelism.total_size != comm.replicas:
        raise ValueError(
            f"{sizes} is for {parallelism.total_size} processes, and this run has {comm.replicas}."
        )
    if shards == 1:
        if plugin is not None:
            raise ValueError(f"{sizes} shards nothing: leave the FSDP plugin out, or set dp_shard_size.")
        return None
    plugin = copy(plugin) if plugin is not None else FullyShardedDataParallelPlugin()
    if copies > 1:
        zero2 = plugin.reshard_after_forward is False
        plugin.sharding_strategy = "HYBRID_SHARD_ZERO2" if zero2 else "HYBRID_SHARD"
        plugin.hybrid_shard_size = shards
    elif plugin.is_hybrid:
        raise ValueError(f"{sizes} keeps one copy of the model: set dp_replicate_size for hybrid sharding.")
    return plugin


def _check_one_program(plugin: FullyShardedDataParallelPlugin, comm: Comm) -> None:
    """Raise NotImplementedError for options of sharding that XLA does not have, and for sharding over several hosts."""
    if comm.world > 1:
        not_supported.refuse(
            "sharding a model over the devices of several hosts",
            "leave the plugin out (every chip holds the whole model), or train on one host",
        )
    if plugin.is_hybrid:
        not_supported.refuse("hybrid sharding where XLA shards the model", "choose FULL_SHARD")
    for name in ("cpu_offload", "activation_checkpointing", "mixed_precision_policy"):
        if getattr(plugin, name):
            not_supported.refuse(f"{name} where XLA shards the model", f"leave {name} out of the FSDP plugin")


def as_flag(value: bool | str) -> bool:
    """``downcast_bf16`` as a bool; it may be written as text."""
    return value if isinstance(value, bool) else parse_flag(value, "downcast_bf16")


def dynamo(
    backend: str | None, plugin: TorchDynamoPlugin | None, launch: LaunchConfig
) -> TorchDynamoPlugin | None:
    """How prepared models are compiled: by the script's choice, else by the launcher's; None if they are not."""
    if plugin is None and backend is None and launch.dynamo is not None:
        plugin = TorchDynamoPlugin(**launch.dynamo)
    chosen = plugin or (TorchDynamoPlugin(backend=str(backend)) if backend is not None else None)
    if chosen is None or chosen.disable or str(chosen.backend).lower() in ("none", "no"):
        return None
    return replace(chosen, backend=str(chosen.backend).lower())
