"""The process that starts the ranks with torch's elastic agent, waits for them and ends them."""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from crosstrain.comm.visible_devices import prepare_torch_tpu
from crosstrain.launch import failure, loopback, network, rendezvous, worker
from crosstrain.launch.options import DEFAULT_PORT, LaunchOptions, Resolved, UsageError
from crosstrain.launch.target import Target
from crosstrain.launch.unconverted import is_unconverted_training
from crosstrain.utils import run_summary
from crosstrain.utils.messages import quiet as quiet_run


def launch(resolved: Resolved, target: Target) -> int:
    """Run the target on every rank of this machine and return the exit code for the shell.

    The code is 0 if every rank succeeded, that of the rank that failed first (128 + n for signal n), 2 if the log folder
    cannot be made, or 75 if the machines cannot connect. A failure is reported once, on standard error. No rank is left when
    this returns, or when this process is killed.
    """
    if problem := _no_log_dir(resolved.options):
        print(f"crosstrain launch: {problem}", file=sys.stderr)
        return failure.USAGE_ERROR
    _warn_of_plain_script(resolved, target)
    if not resolved.options.debug:
        quiet()
    os.environ.update(_between_machines(resolved.options) | resolved.environment)
    if not resolved.options.cpu:
        prepare_torch_tpu(resolved.options.num_machines, resolved.num_processes)
    arguments = [
        str(Path(worker.__file__).resolve()),
        "module" if target.is_module else "script",
        target.name,
        *target.arguments,
    ]
    try:
        with (
            TemporaryDirectory(prefix="crosstrain-") as scratch,
            _summary_at_the_end(resolved, Path(scratch)),
        ):
            config = launch_config(resolved, Path(resolved.options.log_dir or scratch))
            elastic_launch(config, sys.executable)(*arguments)
    except ChildFailedError as error:
        failures = failure.order_of_failure(error.failures)
        print(failure.describe(failures, resolved.world_size), file=sys.stderr)
        return failures[0].process_exit_code()
    except (RendezvousError, DistError) as error:
        options = resolved.options
        print(
            f"crosstrain launch: the {options.num_machines} machines could not connect at "
            f"{options.main_process_ip}:{options.main_process_port or DEFAULT_PORT}, or one of them was lost "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no further details'})",
            file=sys.stderr,
        )
        return failure.MACHINES_APART
    except (SignalException, KeyboardInterrupt) as error:
        number = int(error.sigval) if isinstance(error, SignalException) else 2
        print("crosstrain launch: stopped; every rank was ended.", file=sys.stderr)
        return 128 + number
    return 0


def _warn_of_plain_script(resolved: Resolved, target: Target) -> None:
    if resolved.world_size > 1 and not resolved.options.machine_rank and is_unconverted_training(target):
        print(
            f"crosstrain launch: {target.name} has no Accelerator and starts no process group: each of the "
            f"{resolved.world_size} processes will do the whole training for itself, and they will overwrite each "
            f"other's files. Convert it with `migrate {target.name}`, or launch it with --num-processes 1.",
            file=sys.stderr,
        )


def _no_log_dir(options: LaunchOptions) -> str | None:
    """Why the folder for the logs cannot be made; None if it exists now, or none was asked for."""
    if options.log_dir is None:
        return None
    try:
        Path(options.log_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"--log-dir {options.log_dir}: {error.strerror}"
    return None


@contextmanager
def _summary_at_the_end(resolved: Resolved, scratch: Path) -> Iterator[None]:
    """Print a summary of the training on standard error when it ends, on the main machine."""
    path = scratch / "summary.jsonl"
    os.environ[run_summary.VARIABLE] = str(path)
    try:
        yield
    finally:
        line = run_summary.describe(path, resolved.world_size)
        if line and not quiet_run():
            print(f"crosstrain: {line}", file=sys.stderr)


def _between_machines(options: LaunchOptions) -> dict[str, str]:
    """The variables by which several machines connect, without those that the user has set."""
    if options.num_machines == 1:
        return {}
    # If agents and ranks share a store, torch announces its address only in the first round, and a machine that returns
    # after a restart would wait for it in vain.
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    address = network.address_towards(options.main_process_ip or "")
    if name := network.interface_of(address) if address else None:
        variables["GLOO_SOCKET_IFNAME"] = name
    return {name: value for name, value in variables.items() if name not in os.environ}


def quiet() -> None:
    """Silence the agent, whose log would repeat what `failure.describe` says."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(("torch.distributed.elastic", "torch.multiprocessing")):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def launch_config(resolved: Resolved, logs: Path) -> LaunchConfig:
    """The agent's configuration. Error files go to ``logs``, even if no other logs are kept."""
    options = resolved.options
    # --log-dir keeps logs in files; --tee shows them on the terminal, too.
    redirect = Std.ALL if options.log_dir and not options.tee else Std.NONE
    tee = Std.from_str(options.tee) if options.tee else Std.NONE
    common = LaunchConfig(
        min_nodes=options.num_machines,
        max_nodes=options.num_machines,
        nproc_per_node=resolved.num_processes,
        run_id="crosstrain" if options.num_machines > 1 else uuid.uuid4().hex,
        role="rank",
        max_restarts=options.max_restarts,
        monitor_interval=options.monitor_interval,
        log_line_prefix_template="[${role_name} ${rank}] " if options.tee else None,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=redirect, tee=tee),
    )
    rendezvous.register()
    if options.num_machines == 1:
        common.rdzv_backend = rendezvous.LOCAL_BACKEND
        common.rdzv_configs["port"] = options.main_process_port or 0
        common.local_addr = loopback.ADDRESS
        return common
    # To restart together, machines must notify each other, which a static rendezvous cannot do.
    common.rdzv_backend = options.rdzv_backend or ("c10d" if options.max_restarts else "static")
    common.local_addr = network.address_towards(options.main_process_ip or "")
    common.rdzv_endpoint = f"{options.main_process_ip}:{options.main_process_port or DEFAULT_PORT}"
    if options.timeout is not None:
        common.rdzv_configs |= {"timeout": int(options.timeout), "join_timeout": int(options.timeout)}
    if common.rdzv_backend == "static":
        common.rdzv_configs["rank"] = options.machine_rank
        return common
    common.rdzv_backend = rendezvous.BOUNDED_BACKEND
    patience = int(options.timeout or rendezvous.JOIN_SECONDS)
    # A cluster may start machine 0 last; torch would wait only 60 seconds for it.
    common.rdzv_configs |= {"read_timeout": patience, rendezvous.PATIENCE: patience}
    if options.machine_rank is not None:  # else torch compares this machine's names with the address
        common.rdzv_configs["is_host"] = options.machine_rank == 0
    return common


def check_port(options: LaunchOptions) -> None:
    """Raise UsageError if `--main-process-port` of a single machine is in use, before anything starts."""
    if options.num_machines > 1 or not options.main_process_port:
        return
    try:
        listener, _ = loopback.listen(options.main_process_port)
    except OSError as error:
        raise UsageError(
            f"--main-process-port {options.main_process_port}: {error.strerror}; "
            "leave it out to get a free one"
        ) from None
    listener.close()
