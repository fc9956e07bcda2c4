"""Accelerate's variables for plug-ins: honoured or refused as the constructor's arguments are, never ignored."""

from __future__ import annotations

from typing import Any

import pytest
from crosstrain import Accelerator, PartialState
from crosstrain.config import read_launch_config
from crosstrain.launch.config import layered
from crosstrain.launch.options import UsageError
from crosstrain.utils import FullyShardedDataParallelPlugin
from torch import nn

from tests.support.ranks import run_ranks

# What `accelerate launch --use_fsdp` leaves in the environment.
LAUNCHED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
    "FSDP_RESHARD_AFTER_FORWARD": "false",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_MIN_NUM_PARAMS": "100000000.0",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Block,Head",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_BACKWARD_PREFETCH": "NO_PREFETCH",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "True",
    "FSDP_ACTIVATION_CHECKPOINTING": "true",
}

pytestmark = pytest.mark.usefixtures("empty_home")


def test_the_fsdp_variables_are_the_plugins_options() -> None:
    options = read_launch_config(LAUNCHED).fsdp
    assert options is not None
    plugin = FullyShardedDataParallelPlugin(**options)
    assert (plugin.reshard_after_forward, plugin.cpu_offload, plugin.activation_checkpointing) == (
        False,
        False,
        True,
    )
    assert (plugin.min_num_params, plugin.transformer_cls_names_to_wrap) == (100_000_000, ["Block", "Head"])
    assert plugin.state_dict_type == "FULL_STATE_DICT"


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
def test_other_plugins_are_refused_by_every_way_to_start(
    name: str, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "AOT_EAGER")
    monkeypatch.setenv("ACCELERATE_DYNAMO_MODE", "default")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_FULLGRAPH", "True")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_DYNAMIC", "False")
    Accelerator(cpu=True).prepare(nn.Linear(1, 1))
    assert len(compiled) == 1
    assert {name: compiled[0][name] for name in ("backend", "mode", "fullgraph", "dynamic")} == {
        "backend": "aot_eager",
        "mode": "default",
        "fullgraph": True,
        "dynamic": False,
    }
