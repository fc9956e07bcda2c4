"""CT303: a collective of the author's that the loss goes through stays, with what is computed around it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crosstrain_migrate.results import Severity

from tests.support.ranks import run_ranks

from .as_one import ALIVE
from .support import check_invariants, migrate, unwound

GOLDEN = Path(__file__).parents[2] / "golden"
HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

"""
BODY = """
dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=8 // dist.get_world_size(), sampler=sampler)
model = DDP({model})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = {loss}
        loss.backward()
        optimizer.step()
weights = [p.tolist() for p in model.parameters()]
dist.destroy_process_group()
"""
IN_FORWARD = (
    HEAD
    + """
class Twins(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.net = nn.Linear(4, 3)

    def forward(self, a, b):
        c = self.net(a).T @ self.net(b)
        c.div_(self.size)
        dist.all_reduce(c)  # all products of the batch
        return (c - torch.eye(3)).pow(2).sum()

"""
    + BODY.format(model="Twins(8)", loss="model(x, x + 1)")
)
IN_FUNCTIONS = (
    HEAD
    + """
class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if dist.is_initialized() and dist.get_world_size() > 1:
            x = x.contiguous() / dist.get_world_size()
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grads):
        return grads


def criterion(p, y):
    mean = Mean.apply(p.mean(0))
    count = torch.tensor(float(len(p)))
    dist.all_reduce(count)
    return nn.functional.cross_entropy(p, y, reduction="sum") / count + mean.pow(2).sum()

"""
    + BODY.format(model="nn.Linear(4, 3)", loss="criterion(model(x), y)")
)
SCRIPTS = pytest.mark.parametrize("text", [IN_FORWARD, IN_FUNCTIONS], ids=["in forward", "in functions"])


def _weights(text: str) -> Any:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ALIVE.append(namespace)
    exec(compile(text, "train.py", "exec"), namespace)
    return namespace["weights"]


@SCRIPTS
def test_two_processes_train_as_the_original_does_on_two(text: str) -> None:
    import torch

    result = migrate(text)
    check_invariants(text, result)
    assert not result.refused, result.findings
    assert "DDP" not in result.after
    before, after = run_ranks(_weights, 2, text), run_ranks(_weights, 2, result.after)
    for mine, own in zip((after[0], after[1]), (before[0], before[0]), strict=True):
        for weight, other in zip(mine, own, strict=True):
            torch.testing.assert_close(torch.tensor(weight), torch.tensor(other))


@SCRIPTS
def test_it_runs_without_a_launcher(text: str, tmp_path: Path) -> None:
    """One process has no group, and its own sum is the whole one."""
    script = tmp_path / "train.py"
    script.write_text(unwound(text).after + "\nprint(weights)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[[[")


def test_what_is_kept_is_said_once() -> None:
    result = unwound(IN_FORWARD)
    said = [f for f in result.findings if "is part of the loss" in f.reason]
    assert [f.severity for f in said] == [Severity.NOTE]
    assert "        if dist.is_initialized():\n            dist.all_reduce(c)  # all" in result.after


def test_a_collective_that_cannot_be_left_out_needs_a_group() -> None:
    text = IN_FORWARD.replace(
        "        dist.all_reduce(c)  # all products of the batch\n",
        "        parts = [torch.zeros_like(c)] * dist.get_world_size()\n        dist.all_gather(parts, c)\n"
        "        c = c + sum(parts).detach()\n",
    )
    result = unwound(text)
    assert not result.refused, result.findings
    assert "dist.all_gather(parts, c)" in result.after
    assert [f.kind for f in result.assumptions] == ["group"]


def test_a_metric_that_is_reduced_is_the_accelerators() -> None:
    """The legal neighbour: nothing goes backward through it."""
    text = IN_FUNCTIONS.replace("        optimizer.step()\n", "        optimizer.step()\n        shown = loss.detach()\n"
        "        dist.all_reduce(shown)\n        print(shown.item() / dist.get_world_size())\n")  # fmt: skip
    after = unwound(text).after
    assert "dist.all_reduce(shown)" not in after
    assert "dist.all_reduce(count)" in after


def test_a_model_that_is_cut_over_the_ranks_is_refused_whatever_group_adds_it_up() -> None:
    """`prepare` would give every process the first one's part, and train another model without a word."""
    own_group = (GOLDEN / "tensor_parallel" / "before.py").read_text()
    default_group = own_group.replace(", group=ctx.group", "").replace(", group=group", "")
    for text, said in ((own_group, "only some of the processes"), (default_group, "depends on the rank")):
        result = migrate(text)
        assert [f.severity for f in result.findings if said in f.reason] == [Severity.REFUSED]
        assert result.after == text
