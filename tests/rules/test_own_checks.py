"""CT001: conversions that the tool's own checks threw away, which they must pass."""

from __future__ import annotations

from tests.support.ranks import run_ranks

from .support import check_invariants, migrate, unwound

COMMENTED = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def init(args):
    if "RANK" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    # elif "SLURM_PROCID" in os.environ:
    #     args.rank = int(os.environ["SLURM_PROCID"])
    elif hasattr(args, "rank"):
        pass
    # on a laptop
    else:
        args.distributed = False
        print("alone")
        return
    args.distributed = True
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("gloo", rank=args.rank)


def main(args):
    init(args)
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.zeros(32, dtype=torch.long)), batch_size=4)
    model = nn.Linear(4, 3)
    if args.distributed:
        model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", default=1, type=int)
    main(parser.parse_args())
"""


def test_comments_above_branches_move_or_are_listed() -> None:
    result = unwound(COMMENTED)
    assert result.changed, result.findings
    listed = " ".join(f.reason for f in result.findings if "comments were removed" in f.reason)
    assert '# elif "SLURM_PROCID" in os.environ:' in listed
    assert "    # on a laptop\n" in result.after


TWO_TRAININGS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.ones(32, 4), torch.zeros(32, dtype=torch.long))
loader = DataLoader(data, batch_size=4, shuffle=True)
first = nn.Linear(4, 2)
optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(first(x), y)
    loss.backward()
    optimizer.step()

device = "cuda" if torch.cuda.is_available() else "cpu"
second = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(second.parameters(), lr=0.1)


def step(model, loader, optimizer, device=device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


step(second, loader, optimizer)
weights = [p.tolist() for m in (first, second) for p in m.parameters()]
"""


def _weights(text: str) -> object:
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(compile(text, "train.py", "exec"), namespace)
    return namespace["weights"]


def test_the_accelerator_is_made_before_the_first_of_two_trainings() -> None:
    """The script chooses its device only before the second one."""
    result = migrate(TWO_TRAININGS)
    assert not result.refused, result.findings
    check_invariants(TWO_TRAININGS, result)
    assert result.after.index("Accelerator()") < result.after.index("first = nn.Linear")
    one, other = run_ranks(_weights, 2, result.after, timeout=100)
    assert one == other
