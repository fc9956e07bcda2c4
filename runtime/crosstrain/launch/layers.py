"""Where launch options come from: command line, then environment, then a configuration file, then built in.

The file is YAML. Without `--config-file` it is `launch.yaml` in CROSSTRAIN_HOME, else in `crosstrain/` under
XDG_CACHE_HOME, else under `~/.cache`; it need not exist. A file that Accelerate's `accelerate config` wrote
is understood too, as far as its options have a meaning here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from crosstrain.launch.options import CONFIG_VARIABLE, LaunchOptions, UsageError, read_config

FILE_NAME = "launch.yaml"
KINDS: dict[str, type] = {
    "cpu": bool,
    "num_processes": int,
    "gpu_ids": str,
    "mixed_precision": str,
    "gradient_accumulation_steps": int,
    "split_batches": bool,
    "num_machines": int,
    "machine_rank": int,
    "main_process_ip": str,
    "main_process_port": int,
    "rdzv_backend": str,
    "max_restarts": int,
    "monitor_interval": float,
    "log_dir": str,
    "tee": str,
}
CHOICES = {"mixed_precision": ("no", "fp16", "bf16"), "rdzv_backend": ("static", "c10d")}
# Keys of Accelerate's file that select something which does not exist here.
FOREIGN = ("deepspeed_config", "megatron_lm_config", "parallelism_config", "fp8_config")


def default_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the configuration file is when nobody says."""
    if environ.get("CROSSTRAIN_HOME"):
        return Path(environ["CROSSTRAIN_HOME"]) / FILE_NAME
    cache = Path(environ["XDG_CACHE_HOME"]) if environ.get("XDG_CACHE_HOME") else Path.home() / ".cache"
    return cache / "crosstrain" / FILE_NAME


def layered(
    given: Mapping[str, Any], config_file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[LaunchOptions, dict[str, str]]:
    """The options and, for each that is not built in, its origin.

    given: the command line's options; None, False and missing ones were not given. Raises UsageError for a
    file that does not exist, is not YAML, or holds what is not an option.
    """
    path = config_file or default_file(environ)
    if config_file is not None and not config_file.is_file():
        raise UsageError(f"--config-file {config_file}: no such file")
    layers = [
        (
            "command line",
            {name: value for name, value in given.items() if value is not None and value is not False},
        ),
        (f"environment ({CONFIG_VARIABLE})", _from_environment(environ)),
        (str(path), read_file(path) if path.is_file() else {}),
    ]
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name in KINDS:
        for place, layer in layers:
            if name in layer:
                values[name], origin[name] = layer[name], place
                break
    return LaunchOptions(**values), origin


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the runtime's own variable says about options that the launcher has too."""
    return {name: value for name, value in read_config(environ).items() if name in KINDS}


def read_file(path: Path) -> dict[str, Any]:
    """The options in a file, checked. Raises UsageError with the file and the key."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected `name: value` lines")
    if "compute_environment" in data:
        data = _from_accelerate(path, data)
    for name, value in data.items():
        _check(path, name, value)
    return {name: KINDS[name](value) for name, value in data.items()}


def _check(path: Path, name: str, value: Any) -> None:
    if name not in KINDS:
        raise UsageError(f"{path}: {name!r} is not an option; known are {', '.join(KINDS)}")
    kind = KINDS[name]
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (kind is not bool and isinstance(value, bool)):
        raise UsageError(f"{path}: {name} must be of type {kind.__name__}, not {value!r}")
    if name in CHOICES and value not in CHOICES[name]:
        raise UsageError(f"{path}: {name} must be one of {', '.join(CHOICES[name])}, not {value!r}")


def _from_accelerate(path: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an Accelerate configuration that has a meaning here; None values are left out."""
    unsupported = [name for name in FOREIGN if data.get(name)]
    if unsupported:
        raise UsageError(f"{path}: {', '.join(unsupported)} has no counterpart here; take it out")
    known = {name: data[name] for name in KINDS if data.get(name) is not None}
    if data.get("use_cpu"):
        known["cpu"] = True
    if known.get("gpu_ids") == "all":
        del known["gpu_ids"]
    # YAML reads an unquoted `no` as false, and a single id as a number.
    if known.get("mixed_precision") is False:
        known["mixed_precision"] = "no"
    if "gpu_ids" in known:
        known["gpu_ids"] = str(known["gpu_ids"])
    if known.get("num_machines", 1) == 1:
        for name in ("machine_rank", "main_process_ip", "rdzv_backend"):
            known.pop(name, None)
    return known


def write_file(path: Path, options: Mapping[str, Any]) -> None:
    """Write a configuration file, whole or not at all; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(yaml.safe_dump(dict(options), sort_keys=True), encoding="utf-8")
    partial.replace(path)
