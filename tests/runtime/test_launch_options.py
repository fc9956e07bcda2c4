"""What `crosstrain launch` makes of its options, and how it refuses what cannot be done. Starts no rank."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain.cli import main
from crosstrain.comm.xla import chips
from crosstrain.launch import agent, rendezvous
from crosstrain.launch.options import Devices, LaunchOptions, UsageError, resolve, usable_cores
from crosstrain.launch.rendezvous import BoundedRendezvous
from torch.distributed.elastic.rendezvous import (
    RendezvousParameters,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)
from typer.testing import CliRunner

from tests.support.proxy import Proxy
from tests.support.ranks import free_port

NO_DEVICE = Devices()
FOUR_GPUS = Devices("cuda", 4)


def test_help_and_wrong_options_need_no_torch() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom crosstrain.cli import main\n"
        "for line in (['--help'], ['launch', '--help'], ['verify', '--help'], ['launch', 'nope.py']):\n"
        "    CliRunner().invoke(main, line)\n"
        "print([name for name in sys.modules if name in ('torch', 'numpy', 'rich')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


REFUSED = {
    "no script": (["nope.py"], "no script 'nope.py' in "),
    "folder": (["."], "is a directory"),
    "no module": (["-m", "nope.sub"], "no module 'nope' in "),
    "no submodule": (["-m", "json.nope"], "no module 'json.nope' in "),
    "option": (["--gpus", "2", "train.py"], "there is no option --gpus"),
    "value": (["--mixed-precision", "fp8", "train.py"], "fp8"),
    "no target": ([], "SCRIPT [ARGS]... is missing"),
    "zero processes": (["--cpu", "--num-processes", "0", "train.py"], "must be at least 1"),
    "gpu on a cpu machine": (["--gpu-ids", "0", "train.py"], "no accelerator that torch can see"),
    "cpu and gpu": (["--cpu", "--gpu-ids", "0", "train.py"], "exclude each other"),
    "two machines, no address": (["--num-machines", "2", "train.py"], "--main-process-ip"),
    "rank too high": (["--machine-rank", "1", "train.py"], "not in 0..0"),
    "port": (["--main-process-port", "99999", "train.py"], "from 1 to 65535"),
    "tee": (["--tee", "9", "train.py"], "--tee 9 (command line): write 1 for stdout"),
    "tee in a job": (["--emit", "slurm", "--num-processes", "2", "--tee", "x", "train.py"], "--tee x"),
    "log folder": (["--cpu", "--log-dir", "/proc/logs", "train.py"], "--log-dir /proc/logs: No such file"),
    "folder as configuration": (["--config-file", ".", "train.py"], "--config-file .: is a directory"),
    "restarts in a file": (
        ["--config-file", "bad.yaml", "train.py"],
        "--max-restarts -1 (--config-file bad.yaml)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_is_one_message_and_exit_code_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    if name == "gpu on a cpu machine" and torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    arguments, message = REFUSED[name]
    (tmp_path / "train.py").write_text("")
    (tmp_path / "bad.yaml").write_text("max_restarts: -1")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["launch", *arguments])
    assert result.exit_code == 2, result.output
    (line,) = result.output.splitlines()
    assert line.startswith("crosstrain launch: ")
    assert message in line


def test_config_that_is_not_answered_writes_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["config", "--config-file", str(tmp_path / "launch.yaml")], input="y\n")
    assert result.exit_code == 2
    assert "crosstrain config: stopped before the last answer: nothing was written" in result.output
    assert not list(tmp_path.iterdir())


def test_script_options_are_not_the_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(
        main, ["launch", "--cpu", "--print-config", "train.py", "--gpus", "-m", "--help"]
    )
    assert result.exit_code == 0, result.output
    assert "num_processes = 1" in result.output


def test_number_of_processes_defaults_to_the_visible_devices() -> None:
    assert resolve(LaunchOptions(), NO_DEVICE, {}).num_processes == 1
    assert resolve(LaunchOptions(), FOUR_GPUS, {}).num_processes == 4
    assert resolve(LaunchOptions(cpu=True), FOUR_GPUS, {}).num_processes == 1
    assert resolve(LaunchOptions(gpu_ids="0,2"), FOUR_GPUS, {}).num_processes == 2
    with pytest.raises(UsageError, match="only 4 visible devices here"):
        resolve(LaunchOptions(num_processes=5), FOUR_GPUS, {})
    assert resolve(LaunchOptions(num_processes=5), NO_DEVICE, {}).num_processes == 5


def test_chosen_devices_are_those_of_the_caller() -> None:
    chosen = resolve(LaunchOptions(gpu_ids="0,2"), FOUR_GPUS, {})
    assert chosen.environment["CUDA_VISIBLE_DEVICES"] == "0,2"
    within = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    assert resolve(LaunchOptions(gpu_ids="6"), FOUR_GPUS, within).environment["CUDA_VISIBLE_DEVICES"] == "6"
    for ids, message in [
        ("0", "0 not visible .CUDA_VISIBLE_DEVICES=4,5,6,7"),
        ("4,4", "the same device twice"),
    ]:
        with pytest.raises(UsageError, match=message):
            resolve(LaunchOptions(gpu_ids=ids), FOUR_GPUS, within)
    xpu = resolve(LaunchOptions(gpu_ids="1"), Devices("xpu", 2), {})
    assert xpu.environment["ZE_AFFINITY_MASK"] == "1"


def test_processes_of_several_machines_are_counted_together() -> None:
    machines = LaunchOptions(num_machines=2, machine_rank=1, main_process_ip="10.0.0.1", num_processes=8)
    resolved = resolve(machines, FOUR_GPUS, {})
    assert (resolved.num_processes, resolved.world_size) == (4, 8)
    with pytest.raises(UsageError, match="a multiple of the 2 machines"):
        resolve(
            LaunchOptions(num_machines=2, machine_rank=1, main_process_ip="x", num_processes=3), NO_DEVICE, {}
        )
    with pytest.raises(UsageError, match="--machine-rank"):
        resolve(replace(machines, machine_rank=None), NO_DEVICE, {})
    resolve(LaunchOptions(num_machines=2, main_process_ip="x", rdzv_backend="c10d"), NO_DEVICE, {})


def test_threads_and_hash_seed_unless_the_caller_chose_them() -> None:
    two = resolve(LaunchOptions(num_processes=2), NO_DEVICE, {}).environment
    assert two["OMP_NUM_THREADS"] == str(max(1, usable_cores() // 2))
    assert two["PYTHONHASHSEED"].isdigit()
    assert "OMP_NUM_THREADS" not in resolve(LaunchOptions(), NO_DEVICE, {}).environment
    own = {"OMP_NUM_THREADS": "3", "PYTHONHASHSEED": "7"}
    assert resolve(LaunchOptions(num_processes=2), NO_DEVICE, own).environment == {}
    random = resolve(LaunchOptions(), NO_DEVICE, {"PYTHONHASHSEED": "random"}).environment
    assert random["PYTHONHASHSEED"].isdigit()


def test_env_report_has_the_versions() -> None:
    result = CliRunner().invoke(main, ["env"])
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.output.splitlines()]
    assert {"platform", "python", "crosstrain", "torch", "cores", "accelerators", "backends"} <= set(names)


# -- `crosstrain launch` on a machine with a TPU, or with XLA's CPU client in its place: one process for each host ---


TPU_HOST = Devices("xla", 1)


def pci(folder: Path, *devices: tuple[str, str]) -> Path:
    for index, (vendor, number) in enumerate(devices):
        entry = folder / f"0000:00:{index:02x}.0"
        entry.mkdir()
        (entry / "vendor").write_text(vendor + "\n")
        (entry / "device").write_text(number + "\n")
    return folder


@pytest.fixture(autouse=True)
def fresh() -> None:
    chips.tpu_chips.cache_clear()


def test_chips_are_counted_and_network_cards_are_not(tmp_path: Path) -> None:
    cards = ("0x1ae0", "0x0063"), ("0x1ae0", "0x0042"), ("0x8086", "0x0063")
    assert chips.tpu_chips(pci(tmp_path, *cards)) == 1
    assert chips.tpu_chips(tmp_path / "absent") == 0


@pytest.mark.parametrize(
    ("installed", "wanted"), [({"torch_xla"}, True), ({"torch_xla", "torch_tpu"}, False), (set(), False)]
)
def test_a_tpu_is_used_by_what_can_drive_it(
    installed: set[str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chips, "tpu_chips", lambda: 4)
    monkeypatch.setattr(chips, "find_spec", lambda name: name if name in installed else None)
    assert chips.xla_wanted({}) is wanted


HOSTS = {"num_machines": 2, "machine_rank": 1, "main_process_ip": "10.0.0.1", "num_processes": 2}


@pytest.mark.parametrize(
    ("options", "devices", "environment", "processes", "world", "chosen"),
    [
        ({"tpu": True}, Devices(), {}, 1, 1, "TPU"),
        ({}, TPU_HOST, {}, 1, 1, "TPU"),
        ({"tpu": True}, Devices(), {"PJRT_DEVICE": "CPU"}, 1, 1, None),  # the environment's choice stays
        ({"cpu": True, "num_processes": 2}, TPU_HOST, {}, 2, 2, None),
        ({"tpu": True, **HOSTS}, TPU_HOST, {}, 1, 2, "TPU"),
    ],
)
def test_one_process_drives_all_chips_of_a_host(
    options: Any,
    devices: Devices,
    environment: dict[str, str],
    processes: int,
    world: int,
    chosen: str | None,
) -> None:
    resolved = resolve(LaunchOptions(**options), devices, environment)
    assert (resolved.num_processes, resolved.world_size) == (processes, world)
    assert resolved.environment.get("PJRT_DEVICE") == chosen


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (LaunchOptions(tpu=True, cpu=True), "--tpu and --cpu exclude each other"),
        (LaunchOptions(tpu=True, gpu_ids="0"), "--tpu and --gpu-ids exclude each other"),
        (LaunchOptions(tpu=True, num_processes=8), "one process of each host drives all its chips"),
    ],
)
def test_what_makes_no_sense_on_a_tpu_is_refused(options: LaunchOptions, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        resolve(options, Devices(), {})


# -- How the machines of a launch find each other, as torch's agent is told --------------------------------


LONG, SHORT = 120.0, 4.0  # seconds that a machine waits for an answer


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 600), (45, 45)])
def test_machine_0_may_come_up_last(timeout: float | None, seconds: int, tmp_path: Path) -> None:
    """Left to itself torch waits for 60 seconds, which an image that is still being pulled takes longer than."""
    options = LaunchOptions(
        num_machines=2, machine_rank=1, main_process_ip="127.0.0.1", rdzv_backend="c10d", timeout=timeout
    )
    config = agent.launch_config(resolve(options, Devices(), {}), tmp_path)
    assert config.rdzv_configs["read_timeout"] == seconds
    assert config.rdzv_configs.get("join_timeout", rendezvous.JOIN_SECONDS) == seconds
    assert config.rdzv_configs["is_host"] is False


def handler(port: int, *, machines: int = 1, is_host: bool = True, patience: float) -> BoundedRendezvous:
    rendezvous.register()
    config = {"is_host": is_host, "read_timeout": 20, rendezvous.PATIENCE: patience}
    endpoint = f"127.0.0.1:{port}"
    parameters = RendezvousParameters(
        rendezvous.BOUNDED_BACKEND, endpoint, "run", machines, machines, **config
    )
    made = rendezvous_handler_registry.create_handler(parameters)
    assert isinstance(made, BoundedRendezvous)
    return made


@pytest.fixture
def linked() -> Iterator[tuple[Proxy, BoundedRendezvous]]:
    """A machine that has met machine 0, and the link between them."""
    port = free_port()
    first = handler(port, machines=2, patience=LONG)
    link = Proxy(port)
    second = handler(link.port, machines=2, is_host=False, patience=LONG)
    meeting = threading.Thread(target=first.next_rendezvous)
    meeting.start()
    second.next_rendezvous()
    meeting.join()
    try:
        yield link, second
    finally:
        link.heal()
        second.shutdown()
        first.shutdown()
        link.close()


def ask_for(machine: BoundedRendezvous, seconds: float) -> None:
    """As the agent does; for a second after an answer torch gives it again without asking."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert machine.num_nodes_waiting() == 0
        time.sleep(0.1)


def test_an_answer_over_a_link_that_is_soon_back_is_waited_for(
    linked: tuple[Proxy, BoundedRendezvous],
) -> None:
    link, machine = linked
    link.cut()
    healing = threading.Timer(1, link.heal)
    healing.start()
    ask_for(machine, 4)
    healing.join()


def test_a_machine_0_behind_a_link_that_stays_cut_is_given_up(
    linked: tuple[Proxy, BoundedRendezvous],
) -> None:
    link, machine = linked
    link.cut()
    machine._patience = SHORT
    with pytest.raises(RendezvousTimeoutError, match="machine 0 has not answered for 4 s"):
        ask_for(machine, LONG)
    assert not machine.shutdown()
