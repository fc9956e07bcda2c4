"""A plain script, the same one on torch.distributed by hand, and what to ask of their comparison."""

from pathlib import Path

from crosstrain_verify import Report, verify

PLAIN = """
import sys, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(1)
X = torch.randn(96, 10)
Y = (X.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
for i in range(0, 96, 16):
    loss = F.cross_entropy(model(X[i:i + 16]), Y[i:i + 16])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print("batch %d loss %.4f" % (i // 16, loss.item()))
print("done", *sys.argv[1:])
"""

DISTRIBUTED = """
import os, sys, torch
from torch import nn
import torch.distributed as dist
import torch.nn.functional as F
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    dist.init_process_group("gloo")
def average(tensor):
    if world > 1:
        dist.all_reduce(tensor)
        tensor /= world
torch.manual_seed(1)
X = torch.randn(96, 10)
Y = (X.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
for i in range(0, 96, 16):
    share = 16 // world
    mine = slice(i + rank * share, i + (rank + 1) * share)
    loss = F.cross_entropy(model(X[mine]), Y[mine])
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        average(parameter.grad)
    optimizer.step()
    scheduler.step()
    shown = loss.detach().clone()
    average(shown)
    if rank == 0:
        print("batch %d loss %.4f" % (i // 16, shown.item()))
if rank == 0:
    print("done", *sys.argv[1:])
"""


def changed(script: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    return script


def run(place: Path, /, migrated: str, original: str = PLAIN, **options: object) -> Report:
    """The comparison of two scripts, from files in the folder."""
    (place / "before.py").write_text(original)
    (place / "after.py").write_text(migrated)
    options = {"timeout": 300.0} | options
    return verify(place / "before.py", place / "after.py", **options)  # type: ignore[arg-type]


def verdicts(report: Report) -> list[str]:
    return [run.verdict.value for run in report.runs]


def differences(report: Report) -> list[tuple[str, int | None]]:
    return [(run.difference.quantity, run.difference.step) for run in report.runs if run.difference]


def before(script: str, **parts: object) -> str:
    """A script with places for what a conversion changes, as its author wrote it."""
    own = {"start": "", "prepare": "", "backward": "loss.backward()", "say": "print"}
    return script.format(**own | parts)


def after(script: str, prepared: str, **parts: object) -> str:
    """The same script on the runtime; ``prepared``: the names that `prepare` is given."""
    converted: dict[str, object] = {
        "start": "from crosstrain import Accelerator\naccelerator = Accelerator()",
        "prepare": f"{prepared} = accelerator.prepare({prepared})",
        "backward": "accelerator.backward(loss)",
        "say": "accelerator.print",
    }
    return script.format(**converted | parts)
