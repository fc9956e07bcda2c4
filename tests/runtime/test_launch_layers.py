"""Command line over environment over file, a file of Accelerate's, `crosstrain config` and `crosstrain test`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from crosstrain import Accelerator, PartialState
from crosstrain.cli import main
from crosstrain.config import read_launch_config
from crosstrain.launch.config import layered, read_file
from crosstrain.launch.options import Devices, LaunchOptions, UsageError, resolve
from crosstrain.utils import FullyShardedDataParallelPlugin
from torch import nn
from typer.testing import CliRunner

from tests.support.ranks import free_port, run_ranks

pytestmark = pytest.mark.usefixtures("empty_home")


def test_first_of_command_line_environment_and_files(tmp_path: Path) -> None:
    file, home = tmp_path / "own.yaml", tmp_path / "launch.yaml"
    text = "num_processes: 4\nmixed_precision: fp16\nsplit_batches: true\n"
    file.write_text(f"{text}gradient_accumulation_steps: 8\n")
    home.write_text("num_processes: 7\ntee: '3'\n")
    environ = {
        "CROSSTRAIN_CONFIG": json.dumps({"mixed_precision": "bf16", "gradient_accumulation_steps": 2}),
        "ACCELERATE_MIXED_PRECISION": "no",
        "CROSSTRAIN_HOME": str(tmp_path),
    }
    options, origin = layered({"gradient_accumulation_steps": 3, "cpu": None, "tee": None}, file, environ)
    seen = {"gradient_accumulation_steps": 3, "mixed_precision": "bf16", "num_processes": 4}
    assert options == LaunchOptions(**seen, split_batches=True, tee="3")  # type: ignore[arg-type]
    assert origin == {
        "gradient_accumulation_steps": "command line",
        "mixed_precision": "environment (CROSSTRAIN_CONFIG)",
        "num_processes": f"--config-file {file}",
        "split_batches": f"--config-file {file}",
        "tee": f"default file {home}",
    }
    resolved = resolve(options, Devices(), environ, origin)
    config = {"gradient_accumulation_steps": 3, "mixed_precision": "bf16"}
    assert resolved.config == config | {"split_batches": True, "even_batches": "weighted"}
    shown = {line.split(" = ")[0]: line.rpartition("  (")[2] for line in resolved.describe().splitlines()}
    assert shown["num_processes"] == f"--config-file {file})"
    assert shown["gradient_accumulation_steps"] == "command line)"
    assert shown["even_batches"] == "split_batches)"
    assert shown["max_restarts"] == "built in)"


def test_switching_off_wins_over_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text("cpu: true\nsplit_batches: true\n")
    environ = {"ACCELERATE_USE_CPU": "true"}
    assert layered({}, file, environ)[0].cpu
    options, origin = layered({"cpu": False, "split_batches": False}, file, environ)
    assert resolve(options, Devices(), environ, origin).config == {"cpu": False, "split_batches": False}


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
    file.write_text(ACCELERATES.replace("affinity: false", "affinity: true"))
    assert read_file(file) == {"mixed_precision": "no", "num_machines": 1, "num_processes": 2}
    text = ACCELERATES.replace("num_processes: 2", "num_processes: -1")
    file.write_text(text.replace("gpu_ids: all", "gpu_ids: 1"))
    assert read_file(file) == {"mixed_precision": "no", "num_machines": 1, "gpu_ids": "1"}
    file.write_text(ACCELERATES.replace("use_cpu: false", "use_cpu: true"))
    assert read_file(file)["cpu"] is True
    assert "gpu_ids" not in read_file(file)


FSDP = """
dynamo_config:
  dynamo_backend: INDUCTOR
  dynamo_mode: default
  dynamo_use_dynamic: false
  dynamo_use_fullgraph: true
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_min_num_params:
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: Block,Head
  fsdp_version: 2
"""


def test_plugins_in_a_file_of_accelerates_reach_the_ranks(tmp_path: Path) -> None:
    file = tmp_path / "default_config.yaml"
    file.write_text(ACCELERATES.replace("MULTI_GPU", "FSDP") + FSDP)
    options, origin = layered({"cpu": True}, file, {})
    assert options.dynamo == {"backend": "inductor", "mode": "default", "dynamic": False, "fullgraph": True}
    names = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "state_dict_type": "SHARDED_STATE_DICT"}
    names |= {"transformer_cls_names_to_wrap": "Block,Head"}
    switches = {"cpu_ram_efficient_loading": True, "cpu_offload": False, "reshard_after_forward": True}
    assert options.fsdp == {**names, **switches, "fsdp_version": 2}
    ranks = read_launch_config(resolve(options, Devices(), {}, origin).environment)
    assert (ranks.fsdp, ranks.dynamo) == (options.fsdp, options.dynamo)
    assert FullyShardedDataParallelPlugin(**options.fsdp).transformer_cls_names_to_wrap == ["Block", "Head"]
    said = {"ACCELERATE_DYNAMO_BACKEND": "eager"}  # the environment comes before the file
    assert layered({}, file, said)[0].dynamo == {"backend": "eager"}
    file.write_text(ACCELERATES + "fsdp_config: {}\ndynamo_config: {dynamo_backend: NO}\n")
    assert layered({}, file, {})[0].fsdp is layered({}, file, {})[0].dynamo is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("...\ndeepspeed_config: {zero_stage: 2}", "deepspeed_config has no counterpart"),
        ("...\nfp8_config: {a: TE}\nipex_config: {ipex: true}", "fp8_config, ipex_config has"),
        ("...\nfsdp_config: {fsdp_version: 2}", "fsdp_config has no counterpart"),
        ("...\ndistributed_type: FSDP\nfsdp_config: {fsdp_odd: 2}", "FSDP_ODD: .*no such option"),
        ("...\ndynamo_config: {dynamo_backend: a, dynamo_use_dynamic: so}", "='so' is not a yes"),
        ("...\ndowncast_bf16: true", "downcast_bf16 has no counterpart"),
        ("...\ndistributed_type: DEEPSPEED", "distributed_type DEEPSPEED has no counterpart"),
        ("...\ncompute_environment: AMAZON_SAGEMAKER", "AMAZON_SAGEMAKER is not supported"),
        ("num_procs: 2", "'num_procs' is not an option"),
        ("num_processes: two", "num_processes must be of type int, not 'two'"),
        ("num_processes: true", "num_processes must be of type int"),
        ("mixed_precision: fp8", "mixed_precision must be one of no, fp16, bf16"),
        ("- a", "expected `name: value`"),
        ("a: [", "is not YAML"),
        ("cpu: !!python/object/apply:os.getpid []", "is not YAML"),
    ],
)
def test_what_a_file_asks_for_in_vain_is_refused_by_its_name(tmp_path: Path, text: str, message: str) -> None:
    file, script = tmp_path / "default_config.yaml", tmp_path / "train.py"
    file.write_text(text.replace("...\n", ACCELERATES))
    script.write_text("")
    result = CliRunner().invoke(main, ["launch", "--config-file", str(file), str(script)])
    assert result.exit_code == 2
    assert re.search(message, result.output)
    assert str(file) in result.output


def test_config_writes_what_launch_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSTRAIN_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(main, ["config"], input="y\n1\n2\nbf16\ny\n0\n")
    assert result.exit_code == 0, result.output
    written = yaml.safe_load((tmp_path / "home" / "launch.yaml").read_text())
    assert written == {"cpu": True, "num_processes": 2, "mixed_precision": "bf16", "split_batches": True}
    assert layered({})[0].num_processes == 2
    assert CliRunner().invoke(main, ["config", "--default"]).exit_code == 0
    assert layered({})[0].num_processes is None
    answers = "n\n2\n1\n10.0.0.1\n\n8\n\nn\n3\n"
    result = CliRunner().invoke(main, ["config", "--config-file", str(tmp_path / "two.yaml")], input=answers)
    assert result.exit_code == 0, result.output
    told = {"num_machines": 2, "machine_rank": 1, "num_processes": 8, "max_restarts": 3}
    told |= {"main_process_ip": "10.0.0.1", "main_process_port": 29500, "mixed_precision": "no"}
    assert layered({}, tmp_path / "two.yaml")[0] == LaunchOptions(**told)  # type: ignore[arg-type]


SELFTEST = ["-m", "crosstrain.launch.selftest"]
STARTED_BY = {
    "crosstrain": ["-c", "from crosstrain.cli import main; main()", "test", "--cpu", "--num-processes", "2"],
    "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node", "2", *SELFTEST],
    "srun": SELFTEST,  # it starts every process itself, and says with variables of its own which is which
}
SRUN = {"STEP_NUM_TASKS": "2", "STEP_NUM_NODES": "1", "STEP_NODELIST": "localhost", "JOB_ID": "1"}


@pytest.mark.parametrize("launcher", STARTED_BY)
def test_every_check_runs_on_every_process_whoever_starts_them(tmp_path: Path, launcher: str) -> None:
    environ = os.environ | {"CROSSTRAIN_HOME": str(tmp_path), "ACCELERATE_USE_CPU": "1"}
    tasks: list[dict[str, str]] = [{}]
    if launcher == "srun":
        environ |= {f"SLURM_{name}": value for name, value in SRUN.items()}
        environ["MASTER_PORT"] = str(free_port())
        tasks = [{"SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in ("0", "1")]
    command = [sys.executable, *STARTED_BY[launcher]]
    how: Any = {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, env=environ | task, **how) for task in tasks]
    said, *others = [task.communicate(timeout=300)[0] for task in started]
    assert [task.returncode for task in started] == [0] * len(tasks)
    first, *checks, last = said.splitlines()
    assert first == "2 processes, cpu, backend gloo"
    assert len(checks) == 6
    assert all(line.startswith("pass  ") for line in checks)
    assert (last, others) == ("6 passed, 0 failed", [""] * (len(tasks) - 1))
    assert list(tmp_path.iterdir()) == []


# -- Accelerate's variables for plug-ins: honoured or refused as the constructor's arguments are, never ignored ---


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"FSDP_SHARDING_STRATEGY": "3"}, "'NO_SHARD' is not part of FSDP2"),
        ({"FSDP_SHARDING_STRATEGY": "9"}, "FSDP_SHARDING_STRATEGY='9' is unknown"),
        ({"FSDP_OFFLOAD_PARAM": "true"}, "FSDP_OFFLOAD_PARAM: .* has no such option"),
        ({"FSDP_OFFLOAD_PARAMS": "maybe"}, "FSDP_OFFLOAD_PARAMS='maybe' is not a yes or a no"),
    ],
)
def test_what_sharding_cannot_do_is_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"ACCELERATE_USE_FSDP": "true", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        Accelerator(cpu=True)


def _sharded() -> tuple[str, list[str]]:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(4, 4))
    return accelerator.distributed_type.name, [type(param).__name__ for param in model.parameters()]


def test_a_job_that_is_launched_as_sharded_trains_sharded() -> None:
    """It trained whole copies, without a word."""
    seen = run_ranks(_sharded, 2, env={"ACCELERATE_USE_FSDP": "true"})
    assert seen == [("FSDP", ["DTensor", "DTensor"])] * 2
    assert run_ranks(_sharded, 2)[0] == ("MULTI_CPU", ["Parameter", "Parameter"])


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("ACCELERATE_USE_DEEPSPEED", "shard with FullyShardedDataParallelPlugin"),
        ("ACCELERATE_USE_MEGATRON_LM", "torchtitan"),
        ("ACCELERATE_USE_PARALLELISM_CONFIG", "parallelism_config=ParallelismConfig"),
    ],
)
def test_every_start_refuses_other_plugins(name: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "true")
    for start in (Accelerator, PartialState):
        with pytest.raises(NotImplementedError, match=f"{name}=true .*{instead}"):
            start(cpu=True)
    with pytest.raises(UsageError, match=name):
        layered({}, environ={name: "true"})
    monkeypatch.setenv(name, "false")
    assert Accelerator(cpu=True).num_processes == 1


def test_models_are_compiled_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[dict[str, Any]] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compiled.append(options))
    said = {"BACKEND": "AOT_EAGER", "MODE": "default", "USE_FULLGRAPH": "True", "USE_DYNAMIC": "False"}
    for name, value in said.items():
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", value)
    Accelerator(cpu=True).prepare(nn.Linear(1, 1))
    (options,) = compiled
    expected = {"backend": "aot_eager", "mode": "default", "fullgraph": True, "dynamic": False}
    assert options.items() >= expected.items()
