"""What `crosstrain launch` makes of its options, and how it refuses what cannot be done. Starts no rank."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crosstrain.cli import main
from crosstrain.launch.failure import order_of_failure
from crosstrain.launch.options import Devices, LaunchOptions, UsageError, resolve, usable_cores
from typer.testing import CliRunner

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
    import torch

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


class Failure:
    """As the agent reports it."""

    def __init__(self, exitcode: int, text: str = "", time_ns: int = 0, **extra: Any) -> None:
        self.exitcode = exitcode
        self.error_file_data: dict[str, Any] = {"message": "<NONE>"}
        if text:
            detail = {
                "message": text,
                "extraInfo": {"py_callstack": f"Traceback\n{text}\n", "timestamp": "1"},
            }
            self.error_file_data = {"message": detail, "time_ns": time_ns, **extra}


def order(*failures: Failure) -> list[int]:
    return [failure.rank for failure in order_of_failure(dict(enumerate(failures)))]


def test_first_failure_is_the_cause() -> None:
    assert order(Failure(1, "Lost", 20), Failure(1, "Boom", 10)) == [1, 0]
    assert order(Failure(1, "Lost", 20), Failure(-9)) == [1, 0]
    assert order(Failure(-15), Failure(1, "Boom", 10)) == [1]
    assert order(Failure(-15), Failure(-15)) == [0, 1]


def test_env_report_has_the_versions() -> None:
    result = CliRunner().invoke(main, ["env"])
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.output.splitlines()]
    assert {"platform", "python", "crosstrain", "torch", "cores", "accelerators", "backends"} <= set(names)
