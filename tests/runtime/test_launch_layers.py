"""Command line over environment over file, a file of Accelerate's, `crosstrain config` and `crosstrain test`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from crosstrain.cli import main
from crosstrain.launch.layers import default_file, layered, read_file
from crosstrain.launch.options import Devices, UsageError, resolve
from typer.testing import CliRunner


def test_first_of_command_line_environment_and_file(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text(
        "num_processes: 4\nmixed_precision: fp16\nsplit_batches: true\ngradient_accumulation_steps: 8\n"
    )
    environ = {"CROSSTRAIN_CONFIG": json.dumps({"mixed_precision": "bf16", "gradient_accumulation_steps": 2})}
    given = {"gradient_accumulation_steps": 3, "cpu": False, "tee": None}
    options, origin = layered(given, file, environ)
    assert (options.gradient_accumulation_steps, options.mixed_precision, options.num_processes) == (
        3,
        "bf16",
        4,
    )
    assert origin == {
        "gradient_accumulation_steps": "command line",
        "mixed_precision": "environment (CROSSTRAIN_CONFIG)",
        "num_processes": str(file),
        "split_batches": str(file),
    }
    resolved = resolve(options, Devices(), environ, origin)
    assert resolved.config == {
        "gradient_accumulation_steps": 3,
        "mixed_precision": "bf16",
        "split_batches": True,
        "even_batches": "weighted",
    }
    shown = {line.split(" = ")[0]: line.rpartition("  (")[2] for line in resolved.describe().splitlines()}
    assert shown["num_processes"] == f"{file})"
    assert shown["gradient_accumulation_steps"] == "command line)"
    assert shown["even_batches"] == "--split-batches)"


def test_place_of_the_default_file(tmp_path: Path) -> None:
    assert default_file({"CROSSTRAIN_HOME": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a/launch.yaml")
    assert default_file({"XDG_CACHE_HOME": "/b"}) == Path("/b/crosstrain/launch.yaml")
    assert default_file({}) == Path.home() / ".cache" / "crosstrain" / "launch.yaml"
    (tmp_path / "launch.yaml").write_text("num_processes: 3\n")
    assert layered({}, None, {"CROSSTRAIN_HOME": str(tmp_path)})[0].num_processes == 3
    assert layered({}, None, {"CROSSTRAIN_HOME": str(tmp_path / "none")})[0].num_processes is None


ACCELERATES = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: no
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
use_cpu: false
"""


def test_file_of_accelerates_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "default_config.yaml"
    file.write_text(ACCELERATES)
    assert read_file(file) == {"mixed_precision": "no", "num_machines": 1, "num_processes": 2}
    file.write_text(
        ACCELERATES.replace("gpu_ids: all", "gpu_ids: 1").replace("use_cpu: false", "use_cpu: true")
    )
    assert read_file(file)["gpu_ids"] == "1"
    assert read_file(file)["cpu"] is True
    file.write_text(ACCELERATES + "deepspeed_config: {zero_stage: 2}\n")
    with pytest.raises(UsageError, match="deepspeed_config has no counterpart"):
        read_file(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_procs: 2", "'num_procs' is not an option"),
        ("num_processes: two", "num_processes must be of type int, not 'two'"),
        ("num_processes: true", "num_processes must be of type int"),
        ("mixed_precision: fp8", "mixed_precision must be one of no, fp16, bf16"),
        ("- a", "expected `name: value`"),
        ("a: [", "is not YAML"),
        ("cpu: !!python/object/apply:os.getpid []", "is not YAML"),
    ],
)
def test_wrong_file_is_named_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text(text)
    (tmp_path / "train.py").write_text("")
    result = CliRunner().invoke(main, ["launch", "--config-file", str(file), str(tmp_path / "train.py")])
    assert result.exit_code == 2
    assert message in result.output
    assert str(file) in result.output


def test_config_writes_what_launch_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSTRAIN_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(main, ["config"], input="y\n2\nbf16\ny\n")
    assert result.exit_code == 0, result.output
    written = yaml.safe_load((tmp_path / "home" / "launch.yaml").read_text())
    assert written == {"cpu": True, "num_processes": 2, "mixed_precision": "bf16", "split_batches": True}
    assert layered({})[0].num_processes == 2
    assert CliRunner().invoke(main, ["config", "--default"]).exit_code == 0
    assert layered({})[0].num_processes is None


def test_test_command_runs_every_check_on_every_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from crosstrain.cli import main; main()",
            "test",
            "--cpu",
            "--num-processes",
            "2",
        ],
        env=os.environ | {"CROSSTRAIN_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, *checks = done.stdout.splitlines()
    assert first == "2 processes, cpu, backend gloo"
    assert len(checks) == 5
    assert all(line.startswith("ok ") for line in checks)
