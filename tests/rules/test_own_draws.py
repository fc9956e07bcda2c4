"""CT303: scripts in which every process draws its own data, and others that share a step's batches out by hand."""

from __future__ import annotations

import re

import pytest

from .support import check_invariants, migrate, unwound

DRAWN = '''\
"""A model of random pieces, on one device or on several by torchrun."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

steps = 4
use_compile = False
device = "cuda" if torch.cuda.is_available() else "cpu"
several = int(os.environ.get("RANK", -1)) != -1
if several:
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    local = int(os.environ["LOCAL_RANK"])
    world = int(os.environ["WORLD_SIZE"])
    device = f"cuda:{local}"
    torch.cuda.set_device(device)
    main = rank == 0
    offset = rank
    assert steps % world == 0, "every process takes as many steps"
    steps //= world
else:
    main = True
    offset = 0
    world = 1
rows = steps * world * 8
print(f"{rows} rows a step")
torch.manual_seed(7 + offset)
data = torch.arange(640.0).view(80, 8) / 640


def draw():
    x = data[torch.randint(len(data), (8,))].to(device)
    return x, (x.sum(1) > 4).long()


@torch.no_grad()
def estimate():
    return sum(F.cross_entropy(model(x), y).item() for x, y in (draw() for _ in range(3))) / 3


model = nn.Linear(8, 2)
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if use_compile:
    plain_model = model
    model = torch.compile(model)
if several:
    model = DDP(model, device_ids=[local])

best = 9.0
for epoch in range(3):
    if main and epoch % 2 == 0:
        value = estimate()
        print(f"{epoch}: {value:.4f}")
        if value < best:
            best = value
            torch.save(model.state_dict(), "best.pt")
    for step in range(steps):
        if several:
            model.require_backward_grad_sync = step == steps - 1
        x, y = draw()
        loss = F.cross_entropy(model(x), y) / steps
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()

if several:
    dist.destroy_process_group()
'''


def test_a_script_that_draws_by_rank_goes_on_to_share_its_steps() -> None:
    """Seeds, sizes and shares are the accelerator's numbers; what the main process decided by its draws stays its own."""
    result = unwound(DRAWN)
    check_invariants(DRAWN, result)
    assert result.changed, result.findings
    for line in (
        'assert steps % accelerator.num_processes == 0, "every process takes as many steps"',
        "steps //= accelerator.num_processes",
        "rows = steps * accelerator.num_processes * 8",
        "torch.manual_seed(7 + accelerator.process_index)",
        "model, optimizer = accelerator.prepare(model, optimizer)",
        "    if accelerator.is_main_process and epoch % 2 == 0:",
        "        accelerator.backward(loss)",
    ):
        assert line + "\n" in result.after, line
    said = {f.rule: f.reason for f in result.findings}
    assert "because its seed is its own" in said["CT303"]
    assert "CT902" not in said  # it repeats nothing


def test_renaming_everything_changes_nothing() -> None:
    names = {
        "steps": "accum",
        "world": "n",
        "rank": "r",
        "offset": "shift",
        "main": "first",
        "several": "ddp",
    }
    pattern = re.compile(r"\b(" + "|".join(names) + r")\b")
    renamed = pattern.sub(
        lambda m: names[m[1]], DRAWN.replace("step == steps", "k == steps").replace("for step", "for k")
    )
    assert "accum //= accelerator.num_processes\n" in unwound(renamed).after


@pytest.mark.parametrize(
    ("old", "new"),
    [("7 + offset", "7"), ("torch.manual_seed(7 + offset)\n", ""), ("7 + offset", "7 + world")],
    ids=["one seed", "no seed", "a seed that is the same on all"],
)
def test_without_a_seed_by_rank_nothing_is_shared(old: str, new: str) -> None:
    """All processes would draw the same, so a share of the steps would be a part of the work."""
    assert "    steps //= world\n" in migrate(DRAWN.replace(old, new)).after, "as the author has it"
    result = unwound(DRAWN.replace(old, new))
    assert result.refused
    found = [f for f in result.findings if "divides by the number of processes" in f.reason]
    assert [f.line for f in found] == [DRAWN.splitlines().index("    steps //= world") + 1]


def test_the_same_division_outside_of_a_branch_is_refused_too() -> None:
    text = DRAWN.replace("    steps //= world\n", "").replace("rows = ", "steps //= world\nrows = ")
    assert "steps //= accelerator.num_processes\n" in unwound(text).after
    assert unwound(text.replace("7 + offset", "7")).refused


def test_a_seed_that_loses_its_rank_is_no_seed_by_rank() -> None:
    """`rank + 1` is 1 for the main process: neither its rank nor the number of processes."""
    text = DRAWN.replace("    offset = rank\n", "    offset = rank + 1\n")
    text = text.replace("    offset = 0\n", "    offset = 1\n")
    assert unwound(text).refused
    alone = text.replace("    steps //= world\n", "")
    result = unwound(alone)
    assert "torch.manual_seed(7 + offset)\n" in result.after
    assert any("now all processes draw the same" in f.reason for f in result.findings)


def test_a_seed_that_a_function_is_given() -> None:
    helper = "def seed_all(seed):\n    torch.manual_seed(seed)\n\n\nsteps = 4\n"
    text = DRAWN.replace("steps = 4\n", helper).replace(
        "torch.manual_seed(7 + offset)", "seed_all(7 + offset)"
    )
    after = unwound(text).after
    assert "seed_all(7 + accelerator.process_index)\n" in after
    assert "steps //= accelerator.num_processes\n" in after


LOADED = """\
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

several = "RANK" in os.environ
steps = 4
if several:
    dist.init_process_group("gloo")
    steps //= dist.get_world_size()
data = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
sampler = DistributedSampler(data) if several else None
loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
model = nn.Linear(8, 2)
if several:
    model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    loss = F.cross_entropy(model(x), y) / steps
    loss.backward()
    if (i + 1) % steps == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_batches_that_are_added_up_are_shared_instead_of_their_number() -> None:
    """A step takes `steps` batches of the loader on any number of processes: they share each of them."""
    result = unwound(LOADED)
    check_invariants(LOADED, result)
    assert result.changed, result.findings
    assert "steps //=" not in result.after
    assert "accelerator = Accelerator(split_batches=True)\n" in result.after
    assert any("the number of batches in a step was divided" in f.reason for f in result.findings)


def test_a_number_that_no_loss_is_divided_by_is_refused() -> None:
    result = unwound(LOADED.replace(" / steps", ""))
    assert result.refused
    assert "divides by the number of processes" in result.findings[0].reason
