"""CT303: how a launched script learns its place and makes the group, in one branch or another, goes as a whole."""

from __future__ import annotations

import pytest

from .support import check_invariants, migrate, unwound

LAUNCHED = """\
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def demo(rank):
    model = nn.Linear(10, 5).to(rank)
    model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        out = model(torch.randn(20, 10))
        nn.functional.mse_loss(out, torch.randn(20, 5).to(rank)).backward()
        optimizer.step()
    print(f"trained on {rank}")


def main():
    found = {key: os.environ[key] for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    rank = int(found["RANK"])
    local_rank = int(found["LOCAL_RANK"])
    if sys.platform == "win32":
        path = os.path.join(os.getcwd(), "group")
        if not path.startswith("C"):
            raise ValueError("a file of this machine")
        dist.init_process_group("gloo", init_method=f"file:///{path}", rank=rank, world_size=int(found["WORLD_SIZE"]))
    else:
        print(f"starting with {found}")
        torch.accelerator.set_device_index(rank)
        dist.init_process_group("nccl")
    print(f"{dist.get_world_size()} processes, {dist.get_backend()}")
    demo(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

PLAIN = """\
import torch
from crosstrain import Accelerator
from torch import nn


def demo(accelerator):
    model = nn.Linear(10, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        out = model(torch.randn(20, 10).to(accelerator.device))
        accelerator.backward(nn.functional.mse_loss(out, torch.randn(20, 5).to(accelerator.device)))
        optimizer.step()
    accelerator.print(f"trained on {accelerator.process_index}")


def main():
    accelerator = Accelerator()
    accelerator.print(f"{accelerator.num_processes} processes, {accelerator.state.backend}")
    demo(accelerator)


if __name__ == "__main__":
    main()
"""


def test_every_branch_makes_the_group() -> None:
    result = unwound(LAUNCHED)
    assert result.after == PLAIN
    said = [f.rule for f in result.findings if f.line == 17]
    assert said == ["CT303", "CT902"]  # each process drew its own numbers; now all repeat the same work
    check_invariants(LAUNCHED, result)


KEPT = {
    "a branch that makes no group": ('        dist.init_process_group("nccl")\n', ""),
    "a branch that writes a file": (
        "torch.accelerator.set_device_index(rank)",
        'open("started", "w").close()',
    ),
    "a name that is read later": ("    demo(rank)\n", "    demo(rank)\n    print(path)\n"),
    "a name of the whole module": ("def main():\n", "def main():\n    global path\n"),
    "a function from elsewhere": ("os.path.join(os.getcwd(), ", "place_of("),
}


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
def test_a_branch_that_does_more_stays(change: tuple[str, str]) -> None:
    result = unwound(
        LAUNCHED.replace("import sys\n", "import sys\nfrom places import place_of\n").replace(*change)
    )
    assert 'if sys.platform == "win32":' in result.after


def test_a_backend_that_decides_stays() -> None:
    shown = 'print(f"{dist.get_world_size()} processes, {dist.get_backend()}")'
    asked = LAUNCHED.replace(shown, 'if dist.get_backend() == "nccl":\n        print("fast")')
    assert 'if dist.get_backend() == "nccl":' in migrate(asked).after, "where the script is mapped, it stays"


def test_what_is_made_on_a_device_already_is_not_moved() -> None:
    result = migrate(LAUNCHED.replace("torch.randn(20, 10)", "torch.randn(20, 10, device=rank)"))
    assert "model(torch.randn(20, 10, device=accelerator.device))" in result.after


@pytest.mark.parametrize("name", ['f"{kind}:{rank}"', 'f"cuda:{rank}"'])
def test_a_device_whose_kind_is_asked_for(name: str) -> None:
    """`torch.accelerator.current_accelerator()` and the rank: the process's own device."""
    before = LAUNCHED.replace(
        "    model = nn.Linear(10, 5).to(rank)\n",
        f"    kind = torch.accelerator.current_accelerator()\n    device = torch.device({name})\n"
        "    model = nn.Linear(10, 5).to(device)\n",
    )
    assert unwound(before).after == PLAIN
