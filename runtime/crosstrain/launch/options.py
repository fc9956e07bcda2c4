"""What the user asked `crosstrain launch` for, checked against this machine, as the ranks' environment.

Every resolved value keeps its origin (see `layers`), which `--print-config` shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from crosstrain.comm.visible_devices import CHIPS, SHARE, VISIBLE_DEVICES, Devices
from crosstrain.config import CONFIG_VARIABLE

Precision = Literal["no", "fp16", "bf16"]
RendezvousBackend = Literal["static", "c10d"]

DEFAULT_PORT = 29500
# Options that the ranks are told in CONFIG_VARIABLE; the others are the launcher's own affair.
RUNTIME_OPTIONS = {
    "cpu",
    "mixed_precision",
    "gradient_accumulation_steps",
    "split_batches",
    "timeout",
    "fsdp",
    "dynamo",
}
# Sets of strings iterate in an order that depends on the hash seed: ranks must agree on it, also across
# machines that cannot ask each other before they start.
HASH_SEED = "0"


class UsageError(Exception):
    """The options cannot be carried out on this machine; the message says which and what to do."""


@dataclass(frozen=True)
class LaunchOptions:
    """The options as given; None means that the user did not say."""

    cpu: bool = False
    tpu: bool = False
    num_processes: int | None = None
    gpu_ids: str | None = None
    mixed_precision: Precision | None = None
    gradient_accumulation_steps: int | None = None
    split_batches: bool = False
    num_machines: int = 1
    machine_rank: int | None = None
    main_process_ip: str | None = None
    main_process_port: int | None = None
    rdzv_backend: RendezvousBackend | None = None
    max_restarts: int = 0
    monitor_interval: float = 0.1
    timeout: float | None = None
    bind_cores: bool = False
    debug: bool = False
    log_dir: str | None = None
    tee: str | None = None
    # Options of the plug-ins, from a file or the environment.
    fsdp: dict[str, Any] | None = None
    dynamo: dict[str, Any] | None = None


def option_kinds() -> dict[str, tuple[type, tuple[str, ...]]]:
    """For each option its type and, where only some words are allowed, the words."""
    kinds: dict[str, tuple[type, tuple[str, ...]]] = {}
    for name, hint in get_type_hints(LaunchOptions).items():
        inner = next((part for part in get_args(hint) if part is not type(None)), hint)
        if get_origin(inner) is Literal:
            kinds[name] = (str, get_args(inner))
        else:
            inner = get_origin(inner) or inner
            kinds[name] = (inner if isinstance(inner, type) else hint, ())
    return kinds


@dataclass(frozen=True)
class Resolved:
    """A launch that this machine can carry out.

    `environment` is added to the environment of every rank; `num_processes` counts this machine's ranks.
    `origin` says for each name shown by `--print-config` where its value is from.
    """

    options: LaunchOptions
    num_processes: int
    environment: dict[str, str]
    config: dict[str, Any]
    origin: dict[str, str] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        return self.num_processes * self.options.num_machines

    def describe(self) -> str:
        """One `name = value  (origin)` line for each value, for `--print-config`: options, then the variables
        that are set for the ranks."""
        options = asdict(self.options) | {"num_processes": self.world_size} | self.config
        variables = {name: value for name, value in self.environment.items() if name != CONFIG_VARIABLE}
        shown = [
            (f"{name} = {json.dumps(value)}", self.origin.get(name, "built in"))
            for values in (options, variables)
            for name, value in sorted(values.items())
        ]
        width = max(len(text) for text, _ in shown)
        return "\n".join(f"{text:<{width}}  ({origin})" for text, origin in shown)


def resolve(
    options: LaunchOptions,
    devices: Devices,
    environ: Mapping[str, str] = os.environ,
    origin: Mapping[str, str] | None = None,
) -> Resolved:
    """Check the options and work out what is left to the machine. Raises UsageError.

    origin: where the options are from, by name; without it all that differ from the built-in ones are the
    command line's.
    """
    _check_machines(options)
    environment: dict[str, str] = {}
    origin = dict(_given(options) if origin is None else origin)
    used = CHIPS if options.tpu else Devices() if options.cpu else devices
    count = 0 if environ.get(SHARE) == "1" else used.count
    if used.one_process:
        count = _processes_of_xla(options, environ)
        environment |= _pjrt(environ, origin)
    if options.gpu_ids is not None:
        variable, ids = _choose_devices(options, devices, environ)
        environment[variable] = ",".join(ids)
        count = len(ids)
    num_processes = _num_processes(options, count, origin)
    environment |= _threads(num_processes, environ, origin)
    environment |= _hash_seed(environ, origin)
    if options.debug:
        environment["CROSSTRAIN_DEBUG"], origin["CROSSTRAIN_DEBUG"] = "1", "debug"
    config = _config(options, environ, origin)
    if config:
        environment[CONFIG_VARIABLE] = json.dumps(config, sort_keys=True)
    return Resolved(options, num_processes, environment, config, origin)


def _given(options: LaunchOptions) -> dict[str, str]:
    built_in = asdict(LaunchOptions())
    return {name: "command line" for name, value in asdict(options).items() if value != built_in[name]}


def _check_machines(options: LaunchOptions) -> None:
    several = options.num_machines > 1
    if several and options.main_process_ip is None:
        raise UsageError(
            "--num-machines needs --main-process-ip: the address of machine 0, as the others reach it"
        )
    if several and options.machine_rank is None and options.rdzv_backend != "c10d":
        raise UsageError(
            "--num-machines needs --machine-rank (0 on the main machine, then 1, 2, ...), "
            "or --rdzv-backend c10d, which hands out the ranks itself"
        )
    if options.machine_rank is not None and not 0 <= options.machine_rank < options.num_machines:
        raise UsageError(f"--machine-rank {options.machine_rank} is not in 0..{options.num_machines - 1}")


def _choose_devices(
    options: LaunchOptions, devices: Devices, environ: Mapping[str, str]
) -> tuple[str, list[str]]:
    """The variable that hides devices and its new value, from `--gpu-ids 0,2`."""
    if options.cpu:
        raise UsageError("--cpu and --gpu-ids exclude each other")
    if devices.kind is None:
        raise UsageError("--gpu-ids: this machine has no accelerator that torch can see; use --cpu")
    variable = VISIBLE_DEVICES.get(devices.kind)
    if variable is None:
        raise UsageError(
            f"--gpu-ids: not known how to choose among {devices.kind} devices; set its own variable instead"
        )
    visible = environ.get(variable, "")
    known = (
        [entry.strip() for entry in visible.split(",")] if visible else [str(i) for i in range(devices.count)]
    )
    ids = [entry.strip() for entry in (options.gpu_ids or "").split(",")]
    unknown = [entry for entry in ids if entry not in known]
    if unknown or len(set(ids)) != len(ids):
        reason = f"{', '.join(unknown)} not visible" if unknown else "the same device twice"
        where = f"{variable}={visible}" if visible else f"visible: {', '.join(known)}"
        raise UsageError(f"--gpu-ids {options.gpu_ids}: {reason} ({where})")
    return variable, ids


def _processes_of_xla(options: LaunchOptions, environ: Mapping[str, str]) -> int:
    """One process drives all chips of a host. 0: as many as are asked for."""
    if options.cpu or options.gpu_ids is not None:
        raise UsageError(f"--tpu and {'--cpu' if options.cpu else '--gpu-ids'} exclude each other")
    if environ.get("CROSSTRAIN_XLA_APART") == "1":
        return 0
    if options.num_processes not in (None, options.num_machines):
        raise UsageError(
            f"--num-processes {options.num_processes}: on a TPU one process of each host drives all its chips; "
            f"leave the option out"
        )
    return 1


def _pjrt(environ: Mapping[str, str], origin: dict[str, str]) -> dict[str, str]:
    """What XLA computes on: as the environment says (CPU, to try things out), else the TPU."""
    if environ.get("PJRT_DEVICE"):
        origin["PJRT_DEVICE"] = "environment"
        return {}
    origin["PJRT_DEVICE"] = "tpu"
    return {"PJRT_DEVICE": "TPU"}


def _num_processes(options: LaunchOptions, devices: int, origin: dict[str, str]) -> int:
    """This machine's share of the ranks. `--num-processes` counts those of all machines together."""
    asked, machines = options.num_processes, options.num_machines
    if asked is None:
        origin["num_processes"] = "visible devices" if devices else "default"
        return max(1, devices)
    if asked < 1 or asked % machines:
        raise UsageError(
            f"--num-processes {asked}: must be at least 1"
            + (f" and a multiple of the {machines} machines (it counts all of them)" if machines > 1 else "")
        )
    if devices and asked // machines > devices:
        raise UsageError(
            f"--num-processes {asked}: only {devices} visible device{'s' if devices > 1 else ''} here; "
            f"ask for {devices * machines} or fewer, or use --cpu"
        )
    return asked // machines


def _threads(num_processes: int, environ: Mapping[str, str], origin: dict[str, str]) -> dict[str, str]:
    """Ranks share the cores; one process alone keeps torch's own choice, as under plain `python`."""
    if "OMP_NUM_THREADS" in environ:
        origin["OMP_NUM_THREADS"] = "environment"
        return {}
    if num_processes == 1:
        return {}
    origin["OMP_NUM_THREADS"] = "cores / processes"
    return {"OMP_NUM_THREADS": str(max(1, usable_cores() // num_processes))}


def usable_cores() -> int:
    """The cores this process may run on, which a container or `taskset` may have reduced."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _hash_seed(environ: Mapping[str, str], origin: dict[str, str]) -> dict[str, str]:
    if environ.get("PYTHONHASHSEED", "random") != "random":
        origin["PYTHONHASHSEED"] = "environment"
        return {}
    origin["PYTHONHASHSEED"] = "default"
    return {"PYTHONHASHSEED": HASH_SEED}


def _config(options: LaunchOptions, environ: Mapping[str, str], origin: dict[str, str]) -> dict[str, Any]:
    """The runtime's defaults for this run: what the environment already says, under the command line."""
    given: dict[str, Any] = {}
    for name in ("cpu", "split_batches"):
        if getattr(options, name) or name in origin:  # switched off over an inherited variable counts too
            given[name] = getattr(options, name)
    for name in ("mixed_precision", "gradient_accumulation_steps", "timeout", "fsdp", "dynamo"):
        if (value := getattr(options, name)) is not None:
            given[name] = value
    if options.split_batches:
        given["even_batches"] = "weighted"
        origin["even_batches"] = "split_batches"
    launchers_own = set(asdict(options)) - RUNTIME_OPTIONS
    config = {name: value for name, value in read_config(environ).items() if name not in launchers_own}
    for name in config:
        origin.setdefault(name, f"environment ({CONFIG_VARIABLE})")
    return config | given


def read_config(environ: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object in CROSSTRAIN_CONFIG, {} where it is not set. Raises UsageError."""
    text = environ.get(CONFIG_VARIABLE)
    if not text:
        return {}
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{CONFIG_VARIABLE} is not JSON ({error}): {text}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{CONFIG_VARIABLE} must be a JSON object, not {text}")
    return config
