"""What the environment says about this run: this process's place among the others, and the launcher's defaults.

Imports no torch, because the launcher and the command line read the same values.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

CONFIG_VARIABLE = "CROSSTRAIN_CONFIG"
COMMON_DRAWS = "CROSSTRAIN_COMMON_DRAWS"
PRECISIONS = ("no", "fp16", "bf16")
# Options of Accelerate's that do not exist here, and what to do instead.
ELSEWHERE = {
    "deepspeed_plugin": "shard with FullyShardedDataParallelPlugin (torch's FSDP2), or stay on accelerate",
    "deepspeed_plugins": "shard with FullyShardedDataParallelPlugin (torch's FSDP2), or stay on accelerate",
    "megatron_lm_plugin": "use Megatron-LM's or torchtitan's own training loop",
    "torch_tp_plugin": "apply torch.distributed.tensor.parallel.parallelize_module before `prepare`",
    "parallelism_config": "pass Accelerator(parallelism_config=ParallelismConfig(...)) in the script",
}
PLUGIN_VARIABLES = {
    "ACCELERATE_USE_DEEPSPEED": "deepspeed_plugin",
    "ACCELERATE_USE_MEGATRON_LM": "megatron_lm_plugin",
    "ACCELERATE_USE_TP": "torch_tp_plugin",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "parallelism_config",
}
_STARTED = "CROSSTRAIN_STARTED"
_TRUE = {"1", "true", "yes", "on", "y", "t"}
_FALSE = {"0", "false", "no", "off", "n", "f", ""}


@dataclass(frozen=True)
class Place:
    """The place of one process among all that a launcher started together."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    master_addr: str | None = None
    master_port: int | None = None


@dataclass(frozen=True)
class LaunchConfig:
    """Defaults that the launcher hands to a script; None where it sets none. ``timeout`` is in seconds."""

    cpu: bool | None = None
    mixed_precision: str | None = None
    split_batches: bool | None = None
    even_batches: bool | Literal["weighted"] | None = None
    gradient_accumulation_steps: int | None = None
    fsdp: dict[str, Any] | None = field(default=None)  # options of FullyShardedDataParallelPlugin
    dynamo: dict[str, Any] | None = field(default=None)  # options of TorchDynamoPlugin
    timeout: float | None = None
    common_draws: bool | None = None


def parse_flag(text: str, name: str) -> bool:
    """``"true"``, ``"1"``, ``"no"`` and the like as a bool.

    Raises ValueError, with the variable's ``name``, for other text.
    """
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{name}={text!r} is not a yes or a no; write true or false.")


def parse_count(text: str, name: str) -> int:
    """A whole number; ValueError, with the variable's ``name``, for other text."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a whole number.") from None


def read_place(env: Mapping[str, str] = os.environ) -> Place | None:
    """This process's place, by torchrun's variables, else by those of SLURM's ``srun``; None for a plain ``python``.

    Raises RuntimeError when the variables contradict each other.
    """
    if "RANK" in env and "WORLD_SIZE" in env:
        place = _torchrun_place(env)
    elif int(env.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in env:
        place = _slurm_place(env)
    else:
        return None
    if not 0 <= place.rank < place.world:
        raise RuntimeError(
            f"RANK={place.rank} and WORLD_SIZE={place.world} contradict each other: ranks run from 0 to "
            f"{place.world - 1}. Start the script with `crosstrain launch` or `torchrun`."
        )
    return place


def mark_started(env: MutableMapping[str, str]) -> None:
    """Say to the processes that this one may start that it has joined the launcher's group."""
    env[_STARTED] = f"{os.getpid()} {_group_of(env)}"


def is_workers(env: Mapping[str, str]) -> bool:
    """Whether this is no rank, but a process that a rank started and that has its variables: a loader's worker that is spawned imports the
    script again, and must not join the group as its parent. It keeps the parent's rank, and is alone."""
    process, _, group = env.get(_STARTED, "").partition(" ")
    return process not in ("", str(os.getpid())) and group == _group_of(env)


def _group_of(env: Mapping[str, str]) -> str:
    """A rank and its group, as the launcher names them: a script may set others for processes of its own."""
    return " ".join(env.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def _torchrun_place(env: Mapping[str, str]) -> Place:
    rank, world = parse_count(env["RANK"], "RANK"), parse_count(env["WORLD_SIZE"], "WORLD_SIZE")
    port = env.get("MASTER_PORT")
    return Place(
        rank=rank,
        world=world,
        local_rank=int(env.get("LOCAL_RANK", rank)),
        local_world=int(env.get("LOCAL_WORLD_SIZE", world)),
        master_addr=env.get("MASTER_ADDR"),
        master_port=int(port) if port else None,
    )


def _slurm_place(env: Mapping[str, str]) -> Place:
    """``srun`` starts every process itself; the first host of the step serves as the meeting point."""
    world = int(env["SLURM_STEP_NUM_TASKS"])
    nodes = int(env.get("SLURM_STEP_NUM_NODES", env.get("SLURM_NNODES", "1")))
    hosts = env.get("SLURM_STEP_NODELIST", env.get("SLURM_NODELIST", "localhost"))
    port = env.get("MASTER_PORT") or str(15000 + int(env.get("SLURM_JOB_ID", "0")) % 15000)
    return Place(
        rank=int(env["SLURM_PROCID"]),
        world=world,
        local_rank=int(env.get("SLURM_LOCALID", "0")),
        local_world=-(-world // nodes),
        master_addr=env.get("MASTER_ADDR") or first_host(hosts),
        master_port=int(port),
    )


def first_host(hosts: str) -> str:
    """The first name in SLURM's compact host list: ``gpu[03-07,12],cpu1`` gives ``gpu03``."""
    match = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\])?([^,]*)", hosts.strip())
    if match is None:
        raise RuntimeError(f"cannot read the SLURM host list {hosts!r}; set MASTER_ADDR yourself.")
    head, number, tail = match.groups()
    return f"{head}{number or ''}{tail}"


def read_launch_config(env: Mapping[str, str] = os.environ) -> LaunchConfig:
    """The launcher's options: those of CROSSTRAIN_CONFIG (one JSON object), else those of the ACCELERATE_* variables.

    Raises ValueError for text that is no JSON object, and for an unknown option or value; NotImplementedError for a
    plug-in of Accelerate's that does not exist here.
    """
    values = accelerate_values(env) | accelerate_plugins(env)
    said = config_object(env)
    known = {f.name for f in fields(LaunchConfig)}
    if unknown := sorted(set(said) - known):
        raise ValueError(f"{CONFIG_VARIABLE} has unknown options {unknown}; known are {sorted(known)}.")
    values.update(said)
    if COMMON_DRAWS in env:
        values["common_draws"] = parse_flag(env[COMMON_DRAWS], COMMON_DRAWS)
    config = LaunchConfig(**values)
    if config.mixed_precision is not None:
        check_precision(config.mixed_precision)
    return config


def config_object(env: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object in CROSSTRAIN_CONFIG; {} if it is not set. Raises ValueError if it is none."""
    text = env.get(CONFIG_VARIABLE)
    if not text:
        return {}
    try:
        said = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{CONFIG_VARIABLE} is not JSON ({error}): {text!r}") from None
    if not isinstance(said, dict):
        raise ValueError(f"{CONFIG_VARIABLE} must be one JSON object, not {text!r}")
    return said


def accelerate_values(env: Mapping[str, str]) -> dict[str, Any]:
    """The options that Accelerate's own variables set and that exist here too."""
    values: dict[str, Any] = {}
    if precision := env.get("ACCELERATE_MIXED_PRECISION"):
        values["mixed_precision"] = precision.lower()
    if steps := env.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"):
        values["gradient_accumulation_steps"] = parse_count(steps, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
    if cpu := env.get("ACCELERATE_USE_CPU"):
        values["cpu"] = parse_flag(cpu, "ACCELERATE_USE_CPU")
    return values


def accelerate_plugins(env: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The options of the plug-ins that Accelerate's variables ask for, by `LaunchConfig`'s names.

    Raises NotImplementedError for a plug-in that does not exist here, because a job that asks for sharding must not
    train unsharded, and ValueError for an unknown option or value.
    """
    for name, plugin in PLUGIN_VARIABLES.items():
        if parse_flag(env.get(name, ""), name):
            raise NotImplementedError(
                f"{name}={env[name]} asks for what is not part of crosstrain: {ELSEWHERE[plugin]}."
            )
    plugins: dict[str, dict[str, Any]] = {}
    if parse_flag(env.get("ACCELERATE_USE_FSDP", ""), "ACCELERATE_USE_FSDP"):
        plugins["fsdp"] = _fsdp_options(env)
    if _said(env, "ACCELERATE_DYNAMO_BACKEND").lower() not in ("", "no"):
        plugins["dynamo"] = _dynamo_options(env)
    return plugins


def _fsdp_options(env: Mapping[str, str]) -> dict[str, Any]:
    """The FSDP_* variables as options of FullyShardedDataParallelPlugin."""
    texts = {name: _said(env, name) for name in env if name.startswith("FSDP_")}
    if unknown := sorted(texts.keys() - FSDP_VARIABLES.keys()):
        raise ValueError(
            f"{', '.join(unknown)}: FullyShardedDataParallelPlugin has no such option; known are "
            f"{', '.join(FSDP_VARIABLES)}."
        )
    reshard = texts.get("FSDP_RESHARD_AFTER_FORWARD", "")
    if reshard and reshard.lower() not in _TRUE | _FALSE:  # the first version's strategy under its new name
        texts["FSDP_SHARDING_STRATEGY"] = reshard
        del texts["FSDP_RESHARD_AFTER_FORWARD"]
    elif reshard and texts.get("FSDP_VERSION") == "2":  # which knows no strategies
        texts.pop("FSDP_SHARDING_STRATEGY", None)
    options: dict[str, Any] = {}
    for name, text in texts.items():
        option, read = FSDP_VARIABLES[name]
        if text:
            options[option] = read(text, name)
    return options


def _dynamo_options(env: Mapping[str, str]) -> dict[str, Any]:
    """The ACCELERATE_DYNAMO_* variables as options of TorchDynamoPlugin."""
    prefix = "ACCELERATE_DYNAMO_"
    options: dict[str, Any] = {"backend": env[f"{prefix}BACKEND"].lower()}
    if mode := _said(env, f"{prefix}MODE"):
        options["mode"] = mode
    for option in ("fullgraph", "dynamic", "use_regional_compilation"):
        name = f"{prefix}USE_{option.upper().removeprefix('USE_')}"
        if text := _said(env, name):
            options[option] = parse_flag(text, name)
    return options


def _said(env: Mapping[str, str], name: str) -> str:
    """A variable's text, without spaces around it.

    It is "" where the variable is missing, or "none", which Accelerate's launcher writes for an option not given.
    """
    text = env.get(name, "").strip()
    return "" if text.lower() == "none" else text


def _strategy(text: str, name: str) -> str:
    """A sharding strategy, given by its name or by its number in torch's first FSDP."""
    if not text.isdigit():
        return text
    number = int(text)
    if not 1 <= number <= len(STRATEGIES):
        raise ValueError(f"{name}={text!r} is unknown; choose one of {', '.join(STRATEGIES)}.")
    return STRATEGIES[number - 1]


def _round_count(text: str, name: str) -> int:
    """A whole number, which Accelerate's launcher may write as 100000000.0."""
    return parse_count(text.removesuffix(".0"), name)


def _as_it_is(text: str, name: str) -> str:
    return text


STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
FSDP_VARIABLES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "FSDP_VERSION": ("fsdp_version", parse_count),
    "FSDP_SHARDING_STRATEGY": ("sharding_strategy", _strategy),
    "FSDP_RESHARD_AFTER_FORWARD": ("reshard_after_forward", parse_flag),
    "FSDP_OFFLOAD_PARAMS": ("cpu_offload", parse_flag),
    "FSDP_ACTIVATION_CHECKPOINTING": ("activation_checkpointing", parse_flag),
    "FSDP_AUTO_WRAP_POLICY": ("auto_wrap_policy", _as_it_is),
    "FSDP_TRANSFORMER_CLS_TO_WRAP": ("transformer_cls_names_to_wrap", _as_it_is),
    "FSDP_MIN_NUM_PARAMS": ("min_num_params", _round_count),
    "FSDP_STATE_DICT_TYPE": ("state_dict_type", _as_it_is),
    "FSDP_BACKWARD_PREFETCH": ("backward_prefetch", _as_it_is),
    "FSDP_FORWARD_PREFETCH": ("forward_prefetch", parse_flag),
    "FSDP_USE_ORIG_PARAMS": ("use_orig_params", parse_flag),
    "FSDP_SYNC_MODULE_STATES": ("sync_module_states", parse_flag),
    "FSDP_CPU_RAM_EFFICIENT_LOADING": ("cpu_ram_efficient_loading", parse_flag),
}


def check_precision(precision: str) -> str:
    """Return the precision if it is one of PRECISIONS; else NotImplementedError for "fp8", ValueError for any other."""
    if precision == "fp8":
        raise NotImplementedError(
            "mixed_precision='fp8' is not part of crosstrain: use 'bf16', or torchao's float8 training "
            "(torchao.float8.convert_to_float8_training) on the model before `prepare`."
        )
    if precision not in PRECISIONS:
        raise ValueError(f"mixed_precision={precision!r} is unknown; choose one of {', '.join(PRECISIONS)}.")
    return precision


def debug_mode(env: Mapping[str, str] = os.environ) -> bool:
    """Whether CROSSTRAIN_DEBUG or ACCELERATE_DEBUG_MODE asks the ranks to compare every collective before they make it.

    They then compare operation, shapes and dtypes, which costs one more message for each collective. Without it they
    compare those of objects and of tensors on the CPU, which costs nothing, and others only at the first call of each
    kind.
    """
    for name in ("CROSSTRAIN_DEBUG", "ACCELERATE_DEBUG_MODE"):
        if name in env:
            return parse_flag(env[name], name)
    return False
