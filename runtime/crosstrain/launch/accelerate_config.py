"""Reads Accelerate's configuration file (`default_config.yaml`) as this launcher's options.

Every key is either converted, known to have no effect here, or refused by name: a file that asks for DeepSpeed must not
silently start something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crosstrain.config import accelerate_plugins
from crosstrain.launch.options import UsageError

SAME = (
    "debug",
    "gradient_accumulation_steps",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "mixed_precision",
    "num_machines",
    "num_processes",
    "rdzv_backend",
)
ONLY_BETWEEN_MACHINES = ("machine_rank", "main_process_ip", "rdzv_backend")
# Keys whose values this launcher finds out itself (kinds of devices, networks), that change the speed alone, or that tell how
# to reach a TPU pod by ssh.
WITHOUT_EFFECT = (
    "compute_environment",
    "distributed_type",
    "enable_cpu_affinity",
    "gpu_ids",
    "main_training_function",
    "mpirun_config",
    "same_network",
    "tpu_name",
    "tpu_zone",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "command_file",
    "commands",
    "tpu_vm",
    "tpu_env",
)
KINDS_OF_TRAINING = (
    "NO",
    "MULTI_CPU",
    "MULTI_GPU",
    "MULTI_NPU",
    "MULTI_XPU",
    "MULTI_MLU",
    "MULTI_HPU",
    "XLA",
    "FSDP",
)
PLUGINS = ("dynamo_config", "fsdp_config")
# Keys whose environment variables have other names.
VARIABLES = {
    "fsdp_backward_prefetch_policy": "FSDP_BACKWARD_PREFETCH",
    "fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
}


def is_accelerates(data: Mapping[str, Any]) -> bool:
    """Whether `accelerate config` wrote the file; this launcher's own files have none of these keys."""
    return "compute_environment" in data or "distributed_type" in data


def from_accelerate(path: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """The options under this launcher's names. Raises UsageError, which names the file, for a key without an equivalent."""
    _refuse(path, data)
    options = {name: data[name] for name in SAME if data.get(name) is not None}
    if data.get("use_cpu"):
        options["cpu"] = True
    if str(data.get("gpu_ids", "all")) != "all" and not data.get("use_cpu"):
        options["gpu_ids"] = str(data["gpu_ids"])
    if options.get("num_processes") == -1:  # decided at the launch
        del options["num_processes"]
    if not options.get("debug"):
        options.pop("debug", None)
    if options.get("num_machines", 1) == 1:
        for name in ONLY_BETWEEN_MACHINES:
            options.pop(name, None)
    return options | _plugins(path, data)


def _plugins(path: Path, data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The plug-ins' options in `fsdp_config` and `dynamo_config`, read as the variables that Accelerate sets for them."""
    variables = {}
    if _kind(data) == "FSDP":
        variables["ACCELERATE_USE_FSDP"] = "true"
        for name, value in (data.get("fsdp_config") or {}).items():
            variables[VARIABLES.get(name, name.upper())] = "" if value is None else str(value)
    for name, value in (data.get("dynamo_config") or {}).items():
        if (name, value) == ("dynamo_backend", False):
            value = "no"  # YAML reads an unquoted no as false
        variables[f"ACCELERATE_{name.upper()}"] = "" if value is None else str(value)
    try:
        return accelerate_plugins(variables)
    except (ValueError, NotImplementedError) as error:
        raise UsageError(f"{path}: {error}") from None


def _kind(data: Mapping[str, Any]) -> str:
    return str(data.get("distributed_type") or "NO")  # YAML reads an unquoted NO as false


def _refuse(path: Path, data: Mapping[str, Any]) -> None:
    if data.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        raise UsageError(f"{path}: compute_environment {data['compute_environment']} is not supported")
    kind = _kind(data)
    known = {*SAME, "use_cpu", *WITHOUT_EFFECT, *(PLUGINS if kind == "FSDP" else PLUGINS[:1])}
    lacking = sorted(name for name in data if name not in known and data[name] not in (None, False, "no", {}))
    if kind not in KINDS_OF_TRAINING:
        lacking.insert(0, f"distributed_type {kind}")
    if lacking:
        raise UsageError(f"{path}: {', '.join(lacking)} has no counterpart here; remove it from the file")
