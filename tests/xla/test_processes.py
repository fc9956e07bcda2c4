"""One process for each host: what is refused, and several of them with a gloo group between."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from crosstrain.utils import gather_object
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from tests.support.ranks import on_ranks, run_ranks
from tests.xla.support import difference, loader, model, on_four_devices, optimizer, plain_training

TWO_DEVICES = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "2"}
APART = TWO_DEVICES | {"CROSSTRAIN_XLA_APART": "1"}


@on_ranks(2, env=TWO_DEVICES)
def test_processes_that_xla_does_not_join_are_refused() -> None:
    with pytest.raises(RuntimeError, match="2 processes were started, but XLA on CPU joins 1"):
        Accelerator()


@on_four_devices
def test_a_tensor_on_xla_before_the_accelerator_is_an_error_that_says_so() -> None:
    from crosstrain.comm.xla.api import torch_xla

    torch.ones(2).to(torch_xla.device())
    with pytest.raises(RuntimeError, match=r"a tensor was put on an XLA device before Accelerator\(\)"):
        Accelerator()


@pytest.mark.parametrize("source", ["map", "dispatched stream", "stream"])
def test_two_processes_with_two_devices_each_train_as_one(source: str) -> None:
    """Each is a program of its own, and gradients meet on the hosts: the way several hosts can be tried here."""
    first, second = run_ranks(train, 2, source, env=APART)
    assert difference(first, second) == 0.0
    if source == "map":
        assert difference(first, plain_training("mlp", "sgd", 32, 8)[1]) < 1e-6


def train(source: str) -> dict[str, Tensor]:
    accelerator = Accelerator(dispatch_batches={"dispatched stream": True, "stream": False}.get(source))
    module = model("mlp")
    with torch.no_grad():
        module.first.weight.add_(accelerator.process_index)  # the first process's model counts
    optim = optimizer("sgd", module)
    plain = loader("mlp", 32, 2) if source == "map" else DataLoader(Stream(), batch_size=2)
    module, optim, batches = accelerator.prepare(module, optim, plain)
    rows = []
    for x, y in batches:
        optim.zero_grad()
        accelerator.backward(F.cross_entropy(module(x), y))
        optim.step()
        rows.append(len(x))
    gathered: list[int] = []
    for row in accelerator.prepare(DataLoader(torch.arange(22), batch_size=2)):  # type: ignore[arg-type]
        gathered += accelerator.gather_for_metrics(row).tolist()
    assert gathered == list(range(22))
    mine = torch.tensor(accelerator.process_index + 1.0, device=accelerator.device)
    assert accelerator.reduce(mine, "sum").item() == 3.0
    assert gather_object([f"rank {accelerator.process_index}"]) == ["rank 0", "rank 1"]
    assert (accelerator.num_replicas, accelerator.num_processes, rows) == (4, 2, [4, 4, 4, 4])
    return accelerator.get_state_dict(module)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(loader("mlp", 30, 2).dataset)


def test_the_migrated_digits_reach_the_plain_accuracy(tmp_path: Path) -> None:
    """PJRT_DEVICE=CPU CPU_NUM_DEVICES=4 crosstrain launch --tpu --split-batches digits.py"""
    root = Path(__file__).parents[2]
    script = tmp_path / "digits.py"
    script.write_text((root / "tests" / "demo_assets" / "digits.py").read_text())
    plain = said([sys.executable, str(script)], tmp_path)
    subprocess.run([beside("migrate"), str(script), "--write"], check=True, cwd=tmp_path)
    assert "accelerator.prepare" in script.read_text()
    launch = [beside("crosstrain"), "launch", "--tpu", "--split-batches", str(script)]
    migrated = said(launch, tmp_path)
    assert migrated == plain
    assert (tmp_path / "digits.pt").is_file()


def beside(command: str) -> str:
    """The command of this interpreter's environment."""
    return str(Path(sys.executable).with_name(command))


def said(command: list[str], folder: Path) -> list[str]:
    env = os.environ | {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "4", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--epochs", "1"],
        cwd=folder,
        env=env,
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.stdout.splitlines()
