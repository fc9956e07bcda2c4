"""CT302 to CT309: whole scripts that distribute themselves, in the styles people write them."""

from __future__ import annotations

from pathlib import Path

from crosstrain_verify import verify

from .distributed import DATA, IMPORTS, PLAIN, WRAP, distributed
from .support import check_invariants, migrate, unwound

SPAWNED = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)


def cleanup():
    dist.destroy_process_group()


def train(rank, world_size, epochs):
    setup(rank, world_size)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 8), torch.zeros(40, dtype=torch.long))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(nn.Linear(8, 3).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(rank), y.to(rank)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} on rank {rank}")
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    cleanup()


if __name__ == "__main__":
    world_size = torch.cuda.device_count()
    mp.spawn(train, args=(world_size, 2), nprocs=world_size, join=True)
"""


CALLED = """\
import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(epochs):
    torch.manual_seed(0)
    accelerator = Accelerator()
    data = TensorDataset(torch.randn(40, 8), torch.zeros(40, dtype=torch.long))
    loader = DataLoader(data, batch_size=8)
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch} on rank {accelerator.process_index}")
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")


if __name__ == "__main__":
    train(2)
"""


def test_processes_that_the_script_starts_become_a_call() -> None:
    result = unwound(SPAWNED)
    assert result.after == CALLED
    check_invariants(SPAWNED, result)


REFERENCE = Path(__file__).parent.parent / "fixtures" / "reference_style.py"


def test_a_function_that_decides_whether_to_distribute(tmp_path: Path) -> None:
    """In the style of torchvision's reference scripts: options are set by a function that most environments leave early."""
    before = REFERENCE.read_text()
    result = unwound(before)
    assert not result.refused, result.findings
    assert "dist" not in result.after.replace("dist-url", "").replace("distributed", "")
    assert "sampler = torch.utils.data.RandomSampler(ds)" in result.after
    assert "accelerator.save(" in result.after
    check_invariants(before, result)
    old, new = tmp_path / "before.py", tmp_path / "after.py"
    old.write_text(before)
    new.write_text(result.after)
    report = verify(
        old, new, args=("--device", "cpu"), processes=(1, 2), expect="equal", timeout=120, rank_by_rank=False
    )
    assert [run.verdict.value for run in report.runs] == ["identical", "equal"], report


def test_what_was_passed_around_to_be_kept_goes_when_nobody_asks_for_it() -> None:
    """`args.gpu` is given to a function that keeps it in `args.gpu`."""
    before = f"""\
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def work(gpu, args):
    args.gpu = gpu
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl")
    model = nn.Linear(8, 3).cuda(args.gpu)
    model = DDP(model, device_ids=[args.gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {DATA.strip()}
    train_loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
    for x, y in train_loader:
        x, y = x.cuda(args.gpu), y.cuda(args.gpu)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=None)
args = parser.parse_args()
work(args.gpu, args)
"""
    result = migrate(before)
    assert result.changed, result.findings
    assert "args.gpu" not in result.after
    assert "def work(args):" in result.after or "def work():" in result.after
    check_invariants(before, result)


def test_a_wrapper_around_the_same_model_leaves_no_second_assignment() -> None:
    before = f"""\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, loader, rank):
        self.model = model.to(rank)
        self.loader = loader
        self.model = DDP(model, device_ids=[rank])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()


dist.init_process_group("nccl")
{PLAIN}
Trainer(nn.Linear(8, 3), train_loader, dist.get_rank()).run()
"""
    result = migrate(before)
    assert result.changed, result.findings
    assert result.after.count("self.model = model") == 1
    assert "rank" not in result.after
    check_invariants(before, result)


def test_what_the_main_process_alone_has_is_used_by_it_alone() -> None:
    """A block that evaluates is run by all processes, the writer in it by the one that made it."""
    case = distributed(
        "",
        {
            "imports": IMPORTS + "\nfrom torch.utils.tensorboard import SummaryWriter",
            "definitions": "def evaluate(model, data):\n    with torch.no_grad():\n        return model(data).mean().item()\n",
            "setup": f"if rank == 0:\n    writer = SummaryWriter()\nif world > 1:\n    {WRAP}",
            "after_epoch": "if rank == 0:\n    seen = {}\n    value = evaluate(model, torch.ones(4, 8))\n"
            '    seen.update(value=value)\n    writer.add_scalar("value", value, epoch)',
        },
        {},
        "",
    )
    result = unwound(case.script)
    assert result.changed, result.findings
    body = result.after.split("# the epoch is over")[1]
    assert "    seen.update(value=value)\n" in body
    assert "    if accelerator.is_main_process:\n        writer.add_scalar" in body
    assert body.count("is_main_process") == 1


TRANSFORMERS = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AdamW, get_linear_schedule_with_warmup


def train(args, model):
    args.batch_size = args.per_gpu_batch_size * max(1, args.n_gpu)
    train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
    sampler = RandomSampler(train_set) if args.local_rank == -1 else DistributedSampler(train_set)
    loader = DataLoader(train_set, sampler=sampler, batch_size=args.batch_size)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, len(loader))
    if args.n_gpu > 1:
        model = nn.DataParallel(model)
    if args.local_rank != -1:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank])
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(args.device)), y.to(args.device))
        if args.n_gpu > 1:
            loss = loss.mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        model.zero_grad()
    inner = model.module if hasattr(model, "module") else model
    if args.local_rank in [-1, 0]:
        torch.save(inner.state_dict(), "model.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per_gpu_batch_size", type=int, default=8)
    parser.add_argument("--no_cuda", action="store_true")
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    if args.local_rank == -1 or args.no_cuda:
        device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
        args.n_gpu = 0 if args.no_cuda else torch.cuda.device_count()
    else:
        torch.cuda.set_device(args.local_rank)
        device = torch.device("cuda", args.local_rank)
        torch.distributed.init_process_group(backend="nccl")
        args.n_gpu = 1
    args.device = device
    model = nn.Linear(8, 3)
    model.to(args.device)
    train(args, model)
    if args.local_rank == -1 or torch.distributed.get_rank() == 0:
        print("done")


main()
"""


def test_scripts_of_the_transformers_library() -> None:
    """`local_rank` and `n_gpu` in the options, DataParallel and DistributedDataParallel by turns, AdamW from elsewhere."""
    result = migrate(TRANSFORMERS)
    assert result.changed, result.findings
    for kept in (
        "batch_size = args.per_gpu_batch_size * max(1, args.n_gpu)\n",
        "loss.mean()",
        "DistributedSampler(train",
    ):
        assert kept in result.after
    assert "DataParallel(" not in result.after and "set_device" not in result.after
    for said in (
        "accelerator = Accelerator(cpu=args.no_cuda)",
        "model, optimizer = accelerator.prepare(model, optimizer)",
        "accelerator.backward(loss)",
        'default=int(os.environ.get("LOCAL_RANK", -1))',
    ):
        assert said in result.after
    check_invariants(TRANSFORMERS, result)


def test_scripts_of_the_transformers_library_for_accelerate() -> None:
    result = unwound(TRANSFORMERS)
    assert result.changed, result.findings
    assert "batch_size = args.per_gpu_batch_size\n" in result.after
    sampler = "sampler = RandomSampler(train_set)\n    loader = DataLoader(train_set, sampler=sampler,"
    assert sampler in result.after
    assert "Distributed" not in result.after and "DataParallel" not in result.after
    assert "loss.mean()" not in result.after
    assert "accelerator = Accelerator(cpu=args.no_cuda" in result.after


TRAINER = """\
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler


class Config:
    def __init__(self, use_amp):
        self.use_amp = use_amp


class Trainer:
    def __init__(self, config, model, optimizer, train_set):
        self.config = config
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
        self.model = model.to(self.local_rank)
        self.optimizer = optimizer
        if self.config.use_amp:
            self.scaler = torch.amp.GradScaler("cuda")
        self.model = DDP(self.model, device_ids=[self.local_rank])

    def run(self):
        for x, y in self.loader:
            x, y = x.to(self.local_rank), y.to(self.local_rank)
            with torch.amp.autocast("cuda", dtype=torch.float16, enabled=self.config.use_amp):
                loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            if self.config.use_amp:
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                loss.backward()
                self.optimizer.step()


def make():
    data = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
    train_set, test_set = random_split(data, [40, 8])
    model = nn.Linear(8, 3)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), train_set


def main():
    backend = dist.get_default_backend_for_device("cuda")
    dist.init_process_group(backend=backend)
    config = Config(False)
    model, optimizer, train_set = make()
    Trainer(config, model, optimizer, train_set).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    if torch.cuda.device_count() < 2:
        print("two devices are needed")
        sys.exit()
    main()
"""


def test_a_trainer_that_is_given_split_data_and_wants_several_devices() -> None:
    """The Accelerator is made before the data are split, with the switch as `main` writes it; nothing ends the script."""
    result = unwound(TRAINER)
    assert result.changed, result.findings
    made = 'mixed_precision="fp16" if config.use_amp and torch.cuda.is_available() else "no"'
    text = (
        f"    accelerator = Accelerator(\n        {made}\n    )\n    model, optimizer, train_set = make()\n"
    )
    assert text in result.after, result.after
    assert "exit" not in result.after and "get_default_backend" not in result.after
    assert any("too few devices" in f.reason for f in result.findings)
    check_invariants(TRAINER, result)


def test_what_the_main_process_made_for_a_block_that_all_run_now_is_made_by_all(tmp_path: Path) -> None:
    """The evaluation runs the model, so that all processes run it: with the loader and the writer that it uses."""
    script = (
        SPAWNED.replace(
            "    optimizer = torch",
            "    if rank == 0:\n"
            "        held_out = DataLoader(data, batch_size=8)\n"
            '        writer = SummaryWriter("logs")\n'
            "    optimizer = torch",
        )
        .replace(
            '            print(f"epoch {epoch} on rank {rank}")\n',
            "            model.eval()\n"
            "            total = 0.0\n"
            "            with torch.no_grad():\n"
            "                for x, y in held_out:\n"
            "                    total += F.cross_entropy(model(x.to(rank)), y.to(rank)).item()\n"
            '            writer.add_scalar("loss", loss, epoch)\n'
            '            writer.add_scalar("held out", total, epoch)\n'
            "            model.train()\n",
        )
        .replace(
            "from torch.utils.data import D",
            "from torch.utils.tensorboard import SummaryWriter\nfrom torch.utils.data import D",
        )
    )
    result = unwound(script)
    assert result.changed, result.findings
    assert "    held_out = DataLoader(data, batch_size=8)\n" in result.after
    assert "    writer = SummaryWriter(" in result.after
    assert "tempfile.mkdtemp()" in result.after
