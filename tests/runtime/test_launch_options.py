"""What `crosstrain launch` makes of its options, and how it refuses what cannot be done. Starts no rank."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain.cli import main
from crosstrain.comm.xla import chips
from crosstrain.launch import agent, rendezvous
from crosstrain.launch.options import Devices, LaunchOptions, UsageError, resolve, usable_cores
from typer.testing import CliRunner

NO_DEVICE = Devices()
FOUR_GPUS = Devices("cuda", 4)
HOSTS = {"num_machines": 2, "machine_rank": 1, "main_process_ip": "10.0.0.1", "num_processes": 2}


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
    "restarts in a file": (["--config-file", "bad.yaml", "train.py"], "-1 (--config-file bad.yaml)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_line_and_code_2(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

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


@pytest.mark.parametrize("option", ["--gpus", "-m", "--help", "--version"])
def test_script_options_are_not_the_launchers(option: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    command = ["launch", "--cpu", "--print-config", str(tmp_path / "train.py"), option]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "num_processes = 1" in result.output) == (0, True), result.output


@pytest.mark.parametrize(
    ("options", "devices", "processes"),
    [
        ({}, NO_DEVICE, (1, 1)),
        ({}, FOUR_GPUS, (4, 4)),
        ({"cpu": True}, FOUR_GPUS, (1, 1)),
        ({"gpu_ids": "0,2"}, FOUR_GPUS, (2, 2)),
        ({"num_processes": 5}, NO_DEVICE, (5, 5)),
        ({"num_processes": 5}, FOUR_GPUS, "only 4 visible devices here"),
        ({**HOSTS, "num_processes": 8}, FOUR_GPUS, (4, 8)),  # counted over all machines
        ({**HOSTS, "num_processes": 3}, NO_DEVICE, "a multiple of the 2 machines"),
        ({**HOSTS, "machine_rank": None}, NO_DEVICE, "--machine-rank"),
        ({**HOSTS, "machine_rank": None, "rdzv_backend": "c10d"}, NO_DEVICE, (1, 2)),
        ({"tpu": True, "cpu": True}, NO_DEVICE, "--tpu and --cpu exclude each other"),
        ({"tpu": True, "gpu_ids": "0"}, NO_DEVICE, "--tpu and --gpu-ids exclude each other"),
        ({"tpu": True, "num_processes": 8}, NO_DEVICE, "one process of each host drives all its chips"),
    ],
)
def test_number_of_processes_here_and_of_all_machines(options: Any, devices: Devices, processes: Any) -> None:
    if isinstance(processes, str):
        with pytest.raises(UsageError, match=processes):
            resolve(LaunchOptions(**options), devices, {})
    else:
        resolved = resolve(LaunchOptions(**options), devices, {})
        assert (resolved.num_processes, resolved.world_size) == processes


def test_chosen_devices_are_those_of_the_caller() -> None:
    within = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    for ids, devices, environment, chosen in (
        ("0,2", FOUR_GPUS, {}, ("CUDA_VISIBLE_DEVICES", "0,2")),
        ("6", FOUR_GPUS, within, ("CUDA_VISIBLE_DEVICES", "6")),
        ("1", Devices("xpu", 2), {}, ("ZE_AFFINITY_MASK", "1")),
    ):
        assert chosen in resolve(LaunchOptions(gpu_ids=ids), devices, environment).environment.items()
    for ids, message in (("0", "0 not visible .CUDA_VISIBLE_DEVICES=4"), ("4,4", "the same device twice")):
        with pytest.raises(UsageError, match=message):
            resolve(LaunchOptions(gpu_ids=ids), FOUR_GPUS, within)


def test_a_script_on_the_cpu_finds_no_cuda_by_itself() -> None:
    """`torch.cuda.set_device(accelerator.device)` under `if torch.cuda.is_available():` would stop with the CPU."""
    within = {"CUDA_VISIBLE_DEVICES": "4,5"}
    assert resolve(LaunchOptions(cpu=True), FOUR_GPUS, within).environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in resolve(LaunchOptions(), FOUR_GPUS, within).environment


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
def test_a_tpu_needs_its_driver(installed: set[str], wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chips, "tpu_chips", lambda: 4)
    monkeypatch.setattr(chips, "find_spec", lambda name: name if name in installed else None)
    assert chips.xla_wanted({}) is wanted


@pytest.mark.parametrize(
    ("options", "devices", "environment", "expected"),
    [
        ({"tpu": True}, Devices(), {}, (1, 1, "TPU")),
        ({}, TPU_HOST, {}, (1, 1, "TPU")),
        ({"tpu": True}, Devices(), {"PJRT_DEVICE": "CPU"}, (1, 1, None)),  # the environment's choice stays
        ({"cpu": True, "num_processes": 2}, TPU_HOST, {}, (2, 2, None)),
        ({"tpu": True, **HOSTS}, TPU_HOST, {}, (1, 2, "TPU")),
    ],
)
def test_one_process_drives_all_chips_of_a_host(
    options: Any, devices: Devices, environment: dict[str, str], expected: tuple[int, int, str | None]
) -> None:
    resolved = resolve(LaunchOptions(**options), devices, environment)
    chosen = resolved.environment.get("PJRT_DEVICE")
    assert (resolved.num_processes, resolved.world_size, chosen) == expected


# -- How the machines of a launch find each other, as torch's agent is told --------------------------------


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
