"""Where launch options come from. The first of these that has a value for an option counts: the command line, the
environment, the file that `--config-file` names, the default file, the built-in value.

The files are YAML. The default file is `launch.yaml` in CROSSTRAIN_HOME, else in `crosstrain/` under XDG_CACHE_HOME, else
under `~/.cache`; it need not exist. Both may also be files that `accelerate config` wrote (see `accelerate_config`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from crosstrain.config import CONFIG_VARIABLE, accelerate_plugins, accelerate_values
from crosstrain.launch import accelerate_config
from crosstrain.launch.options import LaunchOptions, UsageError, option_kinds, read_config

FILE_NAME = "launch.yaml"
KINDS = option_kinds()
LEAST = {
    "num_machines": 1,
    "gradient_accumulation_steps": 1,
    "max_restarts": 0,
    "monitor_interval": 0.01,
    "timeout": 1,
}
TEE = re.compile(r"[0-3]|(\d:[0-3],)*\d:[0-3]")  # as the agent reads it


def default_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The path of the default configuration file."""
    if environ.get("CROSSTRAIN_HOME"):
        return Path(environ["CROSSTRAIN_HOME"]) / FILE_NAME
    cache = Path(environ["XDG_CACHE_HOME"]) if environ.get("XDG_CACHE_HOME") else Path.home() / ".cache"
    return cache / "crosstrain" / FILE_NAME


def layered(
    given: Mapping[str, Any], config_file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[LaunchOptions, dict[str, str]]:
    """The options, and the origin of each one that is not built in.

    given: the command line's options by name; None for one that was not given.

    Raises UsageError for a file that does not exist, is not YAML, or has an unknown option, and for a value out of range.
    """
    layers = [("command line", {name: value for name, value in given.items() if value is not None})]
    layers += _environment(environ)
    if config_file is not None:
        layers.append((f"--config-file {config_file}", _read_named(config_file)))
    if (path := default_file(environ)).is_file() and path != config_file:
        layers.append((f"default file {path}", read_file(path)))
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for place, layer in layers:
        for name in layer.keys() & KINDS.keys() - values.keys():
            values[name], origin[name] = layer[name], place
    if values.get("num_machines", 1) > 1 and "machine_rank" not in values and "SLURM_NODEID" in environ:
        values["machine_rank"] = int(environ["SLURM_NODEID"])
        origin["machine_rank"] = "environment (SLURM_NODEID)"
    for name, value in values.items():
        if problem := _out_of_range(name, value):
            raise UsageError(f"--{name.replace('_', '-')} {value} ({origin[name]}): {problem}")
    return LaunchOptions(**values), origin


def _out_of_range(name: str, value: Any) -> str | None:
    """What is wrong with a value of the right type; None if nothing is."""
    if name in LEAST and value < LEAST[name]:
        return f"must be at least {LEAST[name]}"
    if name == "main_process_port" and not 0 <= value < 2**16:
        return "a port is a number from 1 to 65535, or 0 for a free one"
    if name == "tee" and not TEE.fullmatch(value):
        return (
            "write 1 for stdout, 2 for stderr, 3 for both, 0 for neither, or each rank's own, such as 0:3,1:1"
        )
    return None


def _environment(environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """The options in CROSSTRAIN_CONFIG, then those in Accelerate's variables, both checked like a file's."""
    own = {name: value for name, value in read_config(environ).items() if name in KINDS}
    try:
        accelerates = accelerate_values(environ) | accelerate_plugins(environ)
    except (ValueError, NotImplementedError) as error:
        raise UsageError(str(error)) from None
    return [
        (f"environment ({CONFIG_VARIABLE})", _checked(CONFIG_VARIABLE, own)),
        ("environment (ACCELERATE_*)", _checked("ACCELERATE_*", accelerates)),
    ]


def _read_named(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"--config-file {path}: {'is a directory' if path.is_dir() else 'no such file'}")
    return read_file(path)


def read_file(path: Path) -> dict[str, Any]:
    """The checked options of a file. Raises UsageError, which names the file and the key."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected `name: value` lines")
    if accelerate_config.is_accelerates(data):
        data = accelerate_config.from_accelerate(path, data)
    return _checked(path, data)


def _checked(place: object, data: Mapping[str, Any]) -> dict[str, Any]:
    """The values, converted to their options' types. Raises UsageError, which names the place and the key."""
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in KINDS:
            raise UsageError(f"{place}: {name!r} is not an option; known are {', '.join(KINDS)}")
        kind, words = KINDS[name]
        if words and value is False and "no" in words:
            value = "no"  # YAML reads an unquoted no as false
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (kind is not bool and isinstance(value, bool)):
            raise UsageError(f"{place}: {name} must be of type {kind.__name__}, not {value!r}")
        if words and value not in words:
            raise UsageError(f"{place}: {name} must be one of {', '.join(words)}, not {value!r}")
        values[name] = kind(value)
    return values


def write_file(path: Path, options: Mapping[str, Any]) -> None:
    """Write a configuration file, completely or not at all, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(yaml.safe_dump(dict(options), sort_keys=True), encoding="utf-8")
    partial.replace(path)
