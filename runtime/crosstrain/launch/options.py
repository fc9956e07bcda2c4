"""The options of `crosstrain launch`, checked against this machine and turned into the ranks' environment.

Every resolved value keeps its origin (see `config.layered`), which `--print-config` shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from crosstrain.comm.visible_devices import CHIPS, SHARE, VISIBLE_DEVICES, Devices
from crosstrain.config import CONFIG_VARIABLE, config_object

Precision = Literal["no", "fp16", "bf16"]
RendezvousBackend = Literal["static", "c10d"]

DEFAULT_PORT = 29500
# Options that the ranks get in CONFIG_VARIABLE; the others concern only the launcher.
RUNTIME_OPTIONS = {
    "cpu",
    "mixed_precision",
    "gradient_accumulation_steps",
    "split_batches",
    "common_draws",
    "timeout",
    "fsdp",
    "dynamo",
}
# The order in which sets of strings iterate depends on the hash seed, so all ranks need the same one, also on machines that
# cannot communicate before they start.
HASH_SEED = "0"


class UsageError(Exception):
    """The options cannot be carried out on this machine; the message says which one, and what to do."""


@dataclass(frozen=True)
class LaunchOptions:
    """The options as given; None means that the user did not give one."""

    cpu: bool = False
    tpu: bool = False
    num_processes: int | None = None
    gpu_ids: str | None = None
    mixed_precision: Precision | None = None
    gradient_accumulation_steps: int | None = None
    split_batches: bool = False
    common_draws: bool = False
    num_machines: int = 1
    machine_rank: int | None = None
    main_process_ip: str | None = None
    main_process_port: int | None = None
    rdzv_backend: RendezvousBackend | None = None
    max_restarts: int = 0
    monitor_interval: float = 0.1
    timeout: float | None = None
    debug: bool = False
    log_dir: str | None = None
    tee: str | None = None
    # Options of the plug-ins, from a file or the environment.
    fsdp: dict[str, Any] | None = None
    dynamo: dict[str, Any] | None = None


def option_kinds() -> dict[str, tuple[type, tuple[str, ...]]]:
    """For each option its type and, if only some words are allowed, the words."""
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

    Args:
        num_processes: the number of this machine's ranks.
        environment: variables to add to the environment of every rank.
        config: the options that the ranks get in CONFIG_VARIABLE.
        origin: for each name that `--print-config` shows, where its value comes from.
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
        """A line `name = value  (origin)` for each option, then for each variable of the ranks, for `--print-config`."""
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
    """Check the options and decide what is left to the machine. Raises UsageError.

    origin: by name, where the options come from; None: all that differ from the built-in ones come from the command line.
    """
    _check_machines(options)
    environment: dict[str, str] = {}
    origin = dict(_given(options) if origin is None else origin)
    used = CHIPS if options.tpu else Devices() if options.cpu else devices
    count = 0 if environ.get(SHARE) == "1" else used.count
    if options.cpu:  # a script that asks for CUDA by itself finds none, and puts nothing there
        environment[VISIBLE_DEVICES["cuda"]] = ""
        origin[VISIBLE_DEVICES["cuda"]] = "cpu"
    if used.one_process:
        count = _processes_of_xla(options, environ)
        environment |= _unless_chosen("PJRT_DEVICE", "TPU", "tpu", environ, origin)
    if options.gpu_ids is not None:
        variable, ids = _choose_devices(options, devices, environ)
        environment[variable] = ",".join(ids)
        count = len(ids)
    num_processes = _num_processes(options, count, origin)
    if num_processes > 1 or environ.get("OMP_NUM_THREADS"):  # a single process keeps torch's own choice
        threads = str(max(1, usable_cores() // num_processes))
        environment |= _unless_chosen("OMP_NUM_THREADS", threads, "cores / processes", environ, origin)
    environment |= _unless_chosen("PYTHONHASHSEED", HASH_SEED, "default", environ, origin)
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
    """The variable that hides devices, and the devices that `--gpu-ids` leaves visible."""
    if options.cpu:
        raise UsageError("--cpu and --gpu-ids exclude each other")
    if devices.kind is None:
        raise UsageError("--gpu-ids: this machine has no accelerator that torch can see; use --cpu")
    variable = VISIBLE_DEVICES.get(devices.kind)
    if variable is None:
        raise UsageError(
            f"--gpu-ids cannot choose among {devices.kind} devices; set their own environment variable instead"
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
    """The processes of a host: 1, which drives all its chips; 0 to allow any number, for tests."""
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


def _unless_chosen(
    name: str, value: str, why: str, environ: Mapping[str, str], origin: dict[str, str]
) -> dict[str, str]:
    """A variable of the ranks, and why it has its value; nothing where the user has chosen another one."""
    # PYTHONHASHSEED=random is Python's own default.
    chosen = environ.get(name, "random") not in ("", "random")
    origin[name] = "environment" if chosen else why
    return {} if chosen else {name: value}


def _num_processes(options: LaunchOptions, devices: int, origin: dict[str, str]) -> int:
    """The number of this machine's ranks; `--num-processes` counts those of all machines."""
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


def usable_cores() -> int:
    """How many cores this process may use; a container or `taskset` may have reduced them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _config(options: LaunchOptions, environ: Mapping[str, str], origin: dict[str, str]) -> dict[str, Any]:
    """The options that the ranks get: those of the command line, then those of CONFIG_VARIABLE."""
    given: dict[str, Any] = {}
    for name in ("cpu", "split_batches", "common_draws"):
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
    """The JSON object in CROSSTRAIN_CONFIG; {} if it is not set. Raises UsageError if it is none."""
    try:
        return config_object(environ)
    except ValueError as error:
        raise UsageError(str(error)) from None
