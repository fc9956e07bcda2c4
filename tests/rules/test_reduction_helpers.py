"""CT303: helpers that reduce numbers, silence other processes or synchronise layers, and what a refusal's line says."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.results import Finding, Severity
from crosstrain_verify import verify

from .support import check_invariants, migrate, unwound

SCRIPT = """\
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def is_ready():
    return dist.is_available() and dist.is_initialized()


class Meter:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def update(self, value, n):
        self.total += value * n
        self.count += n

    def synchronize(self):
        if not is_ready():
            return
        t = torch.tensor([self.count, self.total], dtype=torch.float64, device="cuda")
        dist.barrier()
        dist.all_reduce(t)
        t = t.tolist()
        self.count = int(t[0])
        self.total = t[1]


def reduce_value(value, average=True):
    world = dist.get_world_size() if is_ready() else 1
    if world < 2:
        return value
    with torch.no_grad():
        dist.all_reduce(value)
        if average:
            value /= world
        return value


def reduce_across_processes(value):
    if not is_ready():
        return torch.tensor(value)
    t = torch.tensor(value, device="cuda")
    dist.barrier()
    dist.all_reduce(t)
    return t


def only_main_prints(is_main):
    import builtins

    builtin_print = builtins.print

    def print(*args, **kwargs):
        if kwargs.pop("force", False) or is_main:
            builtin_print(*args, **kwargs)

    builtins.print = print


def start(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    elif hasattr(args, "rank"):
        pass
    else:
        args.distributed = False
        return
    args.distributed = True
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl")
    dist.barrier()
    only_main_prints(args.rank == 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sync-bn", action="store_true")
    args = parser.parse_args()
    start(args)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 8), torch.arange(64) % 3)
    sampler = DistributedSampler(data) if args.distributed else RandomSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = nn.Linear(8, 3).to(device)
    SYNC
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        meter, right, seen = Meter(), torch.zeros(1, device=device), 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss = F.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(reduce_value(loss).item(), len(y))
            right += (out.argmax(1) == y).sum()
            seen += len(y)
        right = reduce_value(right, average=False)
        seen = reduce_across_processes(seen)
        meter.synchronize()
        print(epoch, meter.total / meter.count, right.item() / seen, force=True)


if __name__ == "__main__":
    main()
"""
BOTH = "if args.distributed and args.sync_bn:\n        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)"
NESTED = (
    "if args.distributed:\n        if args.sync_bn:\n"
    "            model = nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device)"
)
OTHERWISE = (
    "if not args.distributed:\n        pass\n    elif args.sync_bn:\n"
    "        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)"
)


def refusals(text: str) -> list[Finding]:
    return [f for f in unwound(text).findings if f.severity is Severity.REFUSED]


def test_helpers_that_reduce_leave_what_they_are_given(tmp_path: Path) -> None:
    text = SCRIPT.replace("    SYNC\n", "")
    result = unwound(text)
    assert result.changed, result.findings
    assert "dist" not in result.after.replace("args.distributed", "") and "builtins" not in result.after
    assert "force" not in result.after  # accelerator.print does not know it
    check_invariants(text, result)
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(text.replace(", force=True", ""))
    after.write_text(result.after)
    report = verify(before, after, args=(), processes=(1, 2), expect="equal", timeout=120, rank_by_rank=False)
    one, two = [r.verdict.value for r in report.runs]
    assert one == "identical" and two in {"equal", "identical"}, report


@pytest.mark.parametrize("sync", [BOTH, NESTED, OTHERWISE])
def test_layers_are_synchronised_only_where_the_script_asks(sync: str) -> None:
    result = unwound(SCRIPT.replace("SYNC", sync))
    assert result.changed, result.findings
    asked = 'if args.sync_bn and accelerator.num_processes > 1 and accelerator.device.type == "cuda":'
    assert asked in result.after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.total = t[1]", "self.total = t[0]"),
        ("self.count = int(t[0])", "self.count = int(t[0]) * 2"),
        ("t = t.tolist()", "t = t.tolist()[::-1]"),
    ],
)
def test_numbers_that_do_not_come_back_are_refused(old: str, new: str) -> None:
    text = SCRIPT.replace("    SYNC\n", "").replace(old, new)
    assert [f.rule for f in refusals(text)] == ["CT303"]


def test_a_refusal_found_late_names_the_line_of_the_original() -> None:
    """What is refused after other parts have been taken out stood elsewhere in the text by then."""
    text = SCRIPT.replace("    SYNC\n", "")
    text = text.replace("import os\n", "import os\n\nfrom elsewhere import watch\n").replace(
        "    optimizer = torch.optim",
        "    scaler = torch.cuda.amp.GradScaler()\n    watch(scaler)\n    optimizer = torch.optim",
    )
    refused = refusals(text)
    assert [(f.rule, text.splitlines()[f.line - 1].strip()) for f in refused] == [
        ("CT306", "scaler = torch.cuda.amp.GradScaler()")
    ]


NUMBERS = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.arange(64) % 3), batch_size=8)
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    right, seen = 0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        optimizer.zero_grad()
        F.cross_entropy(out, y).backward()
        optimizer.step()
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
    TENSOR
"""


@pytest.mark.parametrize(
    "tensor",
    [
        "seen = torch.tensor(seen)\n    print(right / seen)",
        "print(torch.tensor([right, seen]).tolist())",
        "print(torch.FloatTensor([right, seen]).tolist())",
        "print(torch.stack([torch.as_tensor(right), torch.tensor(seen)]).tolist())",
    ],
)
def test_a_tensor_of_global_numbers_has_no_rows_to_gather(tensor: str) -> None:
    """The rows are gathered where they are counted; what is made of the counts is the same on every process."""
    result = migrate(NUMBERS.replace("TENSOR", tensor))
    assert result.changed, result.findings
    assert "accelerator.gather_for_metrics(out.argmax(1) == y)" in result.after
    assert "    " + tensor.replace("print(", "accelerator.print(") + "\n" in result.after


def test_steps_shared_out_by_hand_are_refused_by_name() -> None:
    """Without a loader nothing else shares them out, so taking the division away would repeat all on every process."""
    text = SCRIPT.replace("    SYNC\n", "").replace(
        "    args.distributed = True\n",
        "    args.distributed = True\n    args.steps //= dist.get_world_size()\n",
    )
    found = refusals(text)
    assert [f.rule for f in found] == ["CT303"]
    assert "`args.steps //= dist.get_world_size()` divides by the number of processes" in found[0].reason
    assert text.splitlines()[found[0].line - 1].strip() == "args.steps //= dist.get_world_size()"


def test_the_switch_for_the_last_backward_goes() -> None:
    text = SCRIPT.replace("    SYNC\n", "").replace(
        "            out = model(x)\n",
        "            if args.distributed:\n                model.require_backward_grad_sync = True\n            out = model(x)\n",
    )
    result = migrate(text)
    assert result.changed, result.findings
    assert "require_backward_grad_sync" not in result.after
