"""CT303: a rank that is the machine's first plus the process's own, and a size that is machines times processes."""

from __future__ import annotations

import contextlib
import io

from tests.support.ranks import run_ranks

from .support import check_invariants, unbroken, unwound

SCRIPT = """\
import argparse
import os
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", default=8, type=int)


def main():
    args = parser.parse_args([])
    args.per_node = torch.cuda.device_count()
    if "SLURM_JOB_ID" in os.environ:
        args.rank = int(os.getenv("SLURM_NODEID")) * args.per_node
        args.world_size = int(os.getenv("SLURM_NNODES")) * args.per_node
    else:
        args.rank = 0
        args.world_size = args.per_node
    mp.spawn(worker, (args,), args.per_node)


def worker(gpu, args):
    args.rank += gpu
    dist.init_process_group("nccl", init_method="tcp://localhost:58472", world_size=args.world_size, rank=args.rank)
    if args.rank == 0:
        stats = open("stats.txt", "w")
        print("begun", file=stats)
    torch.cuda.set_device(gpu)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size // args.world_size, sampler=sampler)
    model = DDP(nn.Linear(4, 3).cuda(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            x, y = x.cuda(gpu), y.cuda(gpu)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if step % 2 == 0:
                if args.rank == 0:
                    shown = dict(epoch=epoch, loss=loss.item())
                    print(len(shown))
                    print(shown, file=stats)
    print(args.world_size)


if __name__ == "__main__":
    main()
"""


def _said(text: str, folder: str) -> str:
    import os

    os.chdir(folder)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    return said.getvalue()


def test_the_accelerator_counts_processes_over_machines(tmp_path: object) -> None:
    result = unwound(SCRIPT)
    check_invariants(SCRIPT, result)
    assert not result.refused, result.findings
    after = result.after
    assert "rank" not in after.lower()
    assert "* accelerator.num_processes" not in after
    # All come to the lines that print into it, and one of them writes.
    assert 'open("stats.txt" if accelerator.is_main_process else os.devnull, "w")' in unbroken(after)
    assert "batch_size=args.batch_size, " in after
    assert "split_batches=True" in after
    assert run_ranks(_said, 2, after, str(tmp_path), timeout=60) == ["2\n2\n2\n2\n2\n", ""]


def test_a_branch_that_silences_the_other_processes_goes() -> None:
    """Each print is the main process's own after the conversion."""
    silenced = "    if gpu != 0:\n        def print_pass(*args):\n            pass\n        builtins.print = print_pass\n"
    text = SCRIPT.replace("import argparse\n", "import argparse\nimport builtins\n").replace(
        "def worker(gpu, args):\n", f"def worker(gpu, args):\n{silenced}"
    )
    result = unwound(text)
    assert not result.refused, result.findings
    assert "print_pass" not in result.after
    assert "accelerator.print(accelerator.num_processes)" in result.after
