"""A mapped script does on two processes, rank by rank, what the original does on them: weights and lines to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import run_ranks

from .as_one import run
from .distributed import WRAP
from .support import Case, check_invariants, migrate
from .test_distribution import POSITIVE as SCRIPTS

# By hand averaged gradients are none of DistributedDataParallel's, and there is no such module as `tracker`.
RUN = [case for case in SCRIPTS if WRAP in case.script and "tracker" not in case.script]
LEAVES = "\nweights = [p.tolist() for p in model.parameters()]\n"


def _in_folder(text: str, folder: str) -> tuple[Any, str]:
    os.chdir(folder)
    return run(text)


def _portable(text: str) -> str:
    """The original on CPUs, which has no batch statistics over processes and no devices by number."""
    text = text.replace("torch.cuda.set_device(local_rank)\n", "").replace('f"cuda:{local_rank}"', '"cpu"')
    return text.replace("nn.SyncBatchNorm.convert_sync_batchnorm(model)", "model")


@pytest.mark.parametrize("case", RUN, ids=[case.name for case in RUN])
def test_each_rank_does_what_it_did(case: Case, tmp_path: Path) -> None:
    result = migrate(case.script)
    assert not result.refused, result.findings
    assert "DDP(" not in result.after and "init_process_group" not in result.after
    check_invariants(case.script, result)
    before = run_ranks(_in_folder, 2, _portable(case.script) + LEAVES, str(tmp_path))
    after = run_ranks(_in_folder, 2, result.after + LEAVES, str(tmp_path))
    assert after == before


UNLAUNCHED = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def join(rank, size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "29511"
    dist.init_process_group("gloo", rank=rank, world_size=size)


def train(rank, size):
    join(rank, size)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"{dist.get_rank()} of {dist.get_world_size()}: {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    devices = torch.cuda.device_count()
    if devices > 1:
        mp.spawn(train, args=(devices,), nprocs=devices)
    else:
        train(0, 1)
"""


def test_what_ran_under_plain_python_still_does(tmp_path: Path) -> None:
    """There, too, the samplers and collectives that stay have a group."""
    result = migrate(UNLAUNCHED)
    assert "PartialState(group_of_one=True)" in result.after
    check_invariants(UNLAUNCHED, result)
    said = []
    for text in (UNLAUNCHED, result.after):
        script = tmp_path / "train.py"
        script.write_text(text)
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1] and said[0].startswith("0 of 1: ")


def test_what_only_runs_when_launched_asks_for_no_group_of_its_own() -> None:
    launched = UNLAUNCHED.split('if __name__ == "__main__":')[0] + (
        'if "RANK" in os.environ:\n    train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))\n'
    )
    result = migrate(launched)
    assert "    PartialState()\n" in result.after, result.after


FIRST = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(3)
rank = dist.get_rank()
if rank != 0:
    dist.barrier()
model = nn.Linear(4, 1)
if rank == 0:
    dist.barrier()
model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4) * (rank + step)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(rank, loss.item())
"""


def test_an_accelerator_that_is_made_while_the_others_wait() -> None:
    """Nothing of it waits for them."""
    result = migrate(FIRST)
    assert not result.refused and result.after.count("dist.barrier()") == 2, result.findings
    check_invariants(FIRST, result)
    assert run_ranks(run, 2, result.after + LEAVES) == run_ranks(run, 2, FIRST + LEAVES)
