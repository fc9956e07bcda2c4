"""CT303 to CT305, CT308 and CT309: a script that distributes itself becomes the plain one, then the accelerator's."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain.verify import verify
from crosstrain_migrate.engine import Options, migrate_text
from crosstrain_migrate.results import Severity

from .support import SLOTS, Case, Slots, check_invariants, converts, each, migrate, refuses, script

GROUP, SAMPLER, DEVICE = "CT303", "CT304", "CT308"
IMPORTS = "import os\n\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP"
SAMPLING = IMPORTS + "\nfrom torch.utils.data.distributed import DistributedSampler"
WORLD = 'world = int(os.environ.get("WORLD_SIZE", 1))'
RANK = f'rank = int(os.environ.get("RANK", 0))\n{WORLD}'
INIT = 'dist.init_process_group("gloo")'
DATA = "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
PLAIN = DATA + "train_loader = DataLoader(train_set, batch_size=8, shuffle=True)"
WRAP = "model = DDP(model)"
GONE = {"imports": "", "options": "", "setup": ""}


def distributed(
    name: str,
    before: Slots,
    after: Slots,
    at: str,
    rule: str = GROUP,
    findings: tuple[tuple[str, str], ...] = (),
) -> Case:
    """A script that torchrun may start, or nobody."""
    ordinary = {
        "imports": IMPORTS,
        "options": f"{RANK if 'rank' in str(before) else WORLD}\nif world > 1:\n    {INIT}",
        "setup": f"if world > 1:\n    {WRAP}",
    }
    return converts(rule, name, {**ordinary, **before}, {**GONE, **after}, at=at, findings=findings)


POSITIVE = [
    distributed(
        "what a bar is told about the rank",
        {
            "imports": "from tqdm import tqdm\n" + IMPORTS,
            "loop": "for x, y in tqdm(train_loader, disable=rank != 0):",
        },
        {
            "imports": "from tqdm import tqdm",
            "loop": "for x, y in tqdm(train_loader, disable=not accelerator.is_main_process):",
        },
        "disable=rank",
    ),
    distributed(
        "a level chosen by the rank of this machine",
        {
            "imports": "import logging\n" + IMPORTS,
            "setup": f'local = int(os.environ.get("LOCAL_RANK", 0))\n'
            "logging.basicConfig(level=logging.INFO if local == 0 else logging.ERROR)\n"
            f"if world > 1:\n    {WRAP}",
        },
        {
            "imports": "import logging",
            "setup": "logging.basicConfig(level=logging.INFO if accelerator.is_local_main_process else logging.ERROR)",
        },
        "if local == 0",
    ),
    distributed(
        "undistributed, or the first of all",
        {
            "options": f"{WORLD}\nif world > 1:\n    {INIT}",
            "after_epoch": "if world == 1 or dist.get_rank() == 0:\n    open('done', 'w').close()",
        },
        {"after_epoch": "if accelerator.is_main_process:\n    open('done', 'w').close()"},
        "if world == 1 or",
    ),
    distributed(
        "the number of processes, or one",
        {"after_epoch": "print(8 * (dist.get_world_size() if world > 1 else 1))"},
        {"after_epoch": "accelerator.print(8 * accelerator.num_processes)"},
        "print(8",
    ),
    distributed("the group and the wrapper", {}, {}, "if world > 1:"),
    distributed(
        "a rank test around a print",
        {"after_epoch": 'if rank == 0:\n    print("done")'},
        {"after_epoch": 'accelerator.print("done")'},
        "if rank == 0",
    ),
    distributed(
        "a rank test with more to it",
        {
            "epoch": "model.train()\nepochs = 3",
            "after_epoch": 'if rank == 0 and epoch % epochs == 0:\n    print("done")',
        },
        {
            "after_epoch": 'if epoch % epochs == 0:\n    accelerator.print("done")',
            "epoch": "model.train()\nepochs = 3",
        },
        "if rank == 0",
    ),
    distributed(
        "numbers of the main process alone become everybody's",
        {"after_step": "if rank == 0:\n    print(loss.item())"},
        {"after_step": 'accelerator.print(accelerator.reduce(loss, reduction="mean").item())'},
        "if rank == 0",
    ),
    distributed(
        "what only one process may do stays its own",
        {
            "imports": IMPORTS + "\nfrom tracker import Tracker",
            "after_epoch": 'if rank == 0:\n    Tracker("run").finish()',
        },
        {
            "imports": "\nfrom tracker import Tracker",
            "after_epoch": 'if accelerator.is_main_process:\n    Tracker("run").finish()',
        },
        "if rank == 0",
    ),
    distributed(
        "a number that the main process alone logs",
        {
            "imports": IMPORTS + "\nfrom tracker import tracker",
            "after_step": 'if rank == 0:\n    tracker.log({"loss": loss.item()})',
        },
        {
            "imports": "\nfrom tracker import tracker",
            "after_step": 'loss_value = accelerator.reduce(loss, reduction="mean").item()\n'
            'if accelerator.is_main_process:\n    tracker.log({"loss": loss_value})',
        },
        "if rank == 0",
    ),
    distributed(
        "the other processes leave a function early",
        {
            "definitions": "def report(rank, text):\n    if rank != 0:\n        return\n    print(text)",
            "after_epoch": 'report(rank, "done")',
        },
        {"definitions": "def report(text):\n    accelerator.print(text)", "after_epoch": 'report("done")'},
        "if rank != 0",
    ),
    distributed(
        "a reduction of a metric",
        {
            "epoch": "model.train()\ntotal = torch.zeros(1, device=device)",
            "after_step": "total += loss.detach()",
            "after_epoch": "if world > 1:\n    dist.all_reduce(total)\nprint((total / world).item())",
        },
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
            "after_step": 'total += accelerator.reduce(loss.detach(), reduction="mean")',
            "after_epoch": "accelerator.print(total.item())",
        },
        "if world > 1:",
    ),
    distributed(
        "a barrier",
        {"after_epoch": "if dist.is_initialized():\n    print(epoch)\ndist.barrier()"},
        {"after_epoch": "accelerator.wait_for_everyone()"},
        "dist.barrier",
    ),
    distributed(
        "gradients averaged by hand",
        {
            "imports": "import os\n\nimport torch.distributed as dist",
            "setup": "",
            "step": "if world > 1:\n    for p in model.parameters():\n        dist.all_reduce(p.grad)\n"
            "        p.grad /= world\noptimizer.step()",
        },
        {"step": "optimizer.step()"},
        "if world > 1:",
    ),
    distributed(
        "weights sent to all",
        {
            "imports": "import os\n\nimport torch.distributed as dist",
            "setup": "for p in model.parameters():\n    dist.broadcast(p.data, 0)",
        },
        {},
        "dist.broadcast",
    ),
    distributed(
        "sizes that a dictionary carries",
        {
            "options": f'settings = {{"world": int(os.environ.get("WORLD_SIZE", 1))}}\n{INIT}',
            "setup": WRAP,
            "epoch": "model.train()\ntotal = torch.zeros(1, device=device)",
            "after_step": "total += loss.detach()",
            "after_epoch": 'dist.all_reduce(total)\ntotal /= settings["world"]\nprint(total.item())',
        },
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
            "after_step": 'total += accelerator.reduce(loss.detach(), reduction="mean")',
            "after_epoch": "accelerator.print(total.item())",
        },
        "dist.all_reduce",
    ),
    distributed(
        "the number of processes in the learning rate",
        {"optimizer": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * world)"},
        {"optimizer": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * accelerator.num_processes)"},
        "0.1 * world",
    ),
    distributed(
        "a seed for each process",
        {"setup": f"torch.manual_seed(5 + rank)\nif world > 1:\n    {WRAP}"},
        {"setup": "torch.manual_seed(5 + accelerator.process_index)"},
        "torch.manual_seed",
    ),
    distributed(
        "a divided batch is shared",
        {"data": DATA + "train_loader = DataLoader(train_set, batch_size=8 // world, shuffle=True)"},
        {"device": "accelerator = Accelerator(split_batches=True)  # the fastest there is", "data": PLAIN},
        "8 // world",
        findings=((GROUP, "8 // world"),),
    ),
    distributed(
        "a sampler for several processes",
        {
            "imports": SAMPLING,
            "data": DATA + "sampler = DistributedSampler(train_set) if world > 1 else None\n"
            "train_loader = DataLoader(train_set, batch_size=8, shuffle=sampler is None, sampler=sampler)",
            "epoch": "if sampler is not None:\n    sampler.set_epoch(epoch)\nmodel.train()",
        },
        {"data": PLAIN, "epoch": "model.train()"},
        "shuffle=sampler is None",
        SAMPLER,
    ),
    distributed(
        "a sampler always",
        {
            "imports": SAMPLING,
            "data": DATA + "sampler = DistributedSampler(train_set)\n"
            "train_loader = DataLoader(train_set, batch_size=8, shuffle=False, sampler=sampler)",
            "epoch": "sampler.set_epoch(epoch)\nmodel.train()",
        },
        {"data": PLAIN, "epoch": "model.train()"},
        "sampler=sampler",
        SAMPLER,
        findings=((SAMPLER, "DistributedSampler(train_set)"),),
    ),
    distributed(
        "a sampler that keeps the order",
        {
            "imports": SAMPLING,
            "data": DATA
            + "train_loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set, shuffle=False))",
            "epoch": "train_loader.sampler.set_epoch(epoch)\nmodel.train()",
        },
        {"data": DATA + "train_loader = DataLoader(train_set, batch_size=8)", "epoch": "model.train()"},
        "sampler=DistributedSampler",
        SAMPLER,
    ),
    distributed(
        "a device for each process",
        {
            "options": f"{WORLD}\nif world > 1:\n    {INIT}",
            "device": 'local_rank = int(os.environ.get("LOCAL_RANK", 0))\ntorch.cuda.set_device(local_rank)\n'
            'device = torch.device(f"cuda:{local_rank}")',
        },
        {"device": "accelerator = Accelerator()"},
        "torch.cuda.set_device",
        DEVICE,
    ),
    distributed(
        "addresses and ports",
        {
            "options": f'os.environ["MASTER_ADDR"] = "localhost"\nos.environ["MASTER_PORT"] = "12355"\n{WORLD}\nif world > 1:\n    {INIT}'
        },
        {},
        "MASTER_PORT",
    ),
    distributed(
        "synchronised batch statistics",
        {"setup": f"if world > 1:\n    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n    {WRAP}"},
        {
            "prepare": "",
            "setup": 'if accelerator.num_processes > 1 and accelerator.device.type == "cuda":\n'
            "    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n"
            "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)",
        },
        "if world > 1:",
    ),
]


def refused(name: str, before: Slots, at: str, rule: str = GROUP) -> Case:
    ordinary = {
        "imports": IMPORTS,
        "options": f"{RANK if 'rank' in str(before) else WORLD}\nif world > 1:\n    {INIT}",
        "setup": f"if world > 1:\n    {WRAP}",
    }
    return refuses(rule, name, {**ordinary, **before}, at)


REFUSED = [
    refused(
        "several processes train otherwise",
        {"epoch": "model.train()\nif world > 1:\n    torch.nn.init.zeros_(model.weight)"},
        "zeros_",
    ),
    refused(
        "another learning rate on several processes",
        {"options": f"{WORLD}\nlr = 0.1\nif world > 1:\n    {INIT}\n    lr = 0.4"},
        "lr = 0.4",
    ),
    refused(
        "a barrier for some",
        {
            "epoch": "if rank != 0:\n    dist.barrier()\nmodel.train()\nif rank == 0:\n    dist.barrier()  # go"
        },
        "# go",
    ),
    refused("messages", {"after_epoch": "dist.send(torch.ones(1), dst=0)"}, "dist.send"),
    refused(
        "the largest of all processes",
        {"after_epoch": "top = torch.ones(1)\ndist.all_reduce(top, op=dist.ReduceOp.MAX)"},
        "ReduceOp.MAX",
    ),
    refused(
        "weights that are averaged now and then",
        {"after_epoch": "for p in model.parameters():\n    dist.all_reduce(p.data)\n    p.data /= world"},
        "all_reduce(p.data)",
    ),
    refused(
        "gradients that are summed",
        {"step": "for p in model.parameters():\n    dist.all_reduce(p.grad)\noptimizer.step()"},
        "all_reduce(p.grad)",
    ),
    refused(
        "something that only several processes exchange",
        {"after_epoch": "if world > 1:\n    flag = torch.ones(1)\n    dist.broadcast(flag, 0)"},
        "flag = torch",
    ),
    refused(
        "the largest, in a branch",
        {"after_epoch": "top = torch.ones(1)\nif world > 1:\n    dist.all_reduce(top, op=dist.ReduceOp.MAX)"},
        "ReduceOp.MAX",
    ),
    refused(
        "a divisor that may be the number of processes",
        {
            "imports": IMPORTS + "\nfrom settings import nprocs",
            "epoch": "model.train()\ntotal = torch.zeros(1, device=device)",
            "after_step": "total += loss.detach()",
            "after_epoch": "dist.all_reduce(total)\nprint((total / nprocs).item())",
        },
        "total / nprocs",
    ),
    refused("a group of some", {"after_epoch": "dist.all_reduce(torch.ones(1), group=None)"}, "group=None"),
    refused(
        "a gather by hand",
        {"after_epoch": "parts = [torch.ones(1)]\ndist.all_gather(parts, torch.ones(1))"},
        "all_gather",
    ),
    refused(
        "a broadcast of something else",
        {"after_epoch": "flag = torch.ones(1)\ndist.broadcast(flag, 0)"},
        "dist.broadcast",
    ),
    refused(
        "a sampler whose order is decided elsewhere",
        {
            "imports": SAMPLING + "\nfrom options import mixed",
            "data": DATA
            + "train_loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set, shuffle=mixed))",
        },
        "shuffle=mixed",
        SAMPLER,
    ),
]


@each(POSITIVE, REFUSED)
def test_distribution(case: Case) -> None:
    case.check()


RUNS = [
    "a reduction of a metric",
    "a sampler for several processes",
    "numbers of the main process alone become everybody's",
]


@pytest.mark.parametrize("name", RUNS)
def test_one_and_two_processes_train_as_the_original(name: str, tmp_path: Path) -> None:
    case = next(c for c in POSITIVE if c.name == name)
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(case.script)
    after.write_text(migrate(case.script).after)
    report = verify(before, after, args=(), processes=(1, 2), expect="equal", timeout=120)
    verdicts = [run.verdict.value for run in report.runs]
    assert verdicts[0] == "identical", report
    assert verdicts[1] in {"equal", "identical"}, report


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
    accelerator.save_model(model, "model.pt")


if __name__ == "__main__":
    train(2)
"""


def test_processes_that_the_script_starts_become_a_call() -> None:
    result = migrate(SPAWNED)
    assert result.after == CALLED
    check_invariants(SPAWNED, result)


REFERENCE = Path(__file__).parent.parent / "fixtures" / "reference_style.py"


def test_a_function_that_decides_whether_to_distribute(tmp_path: Path) -> None:
    """In the style of torchvision's reference scripts: options are set by a function that most environments leave early."""
    before = REFERENCE.read_text()
    result = migrate(before)
    assert not result.refused, result.findings
    assert "dist" not in result.after.replace("dist-url", "").replace("distributed", "")
    assert "sampler = torch.utils.data.RandomSampler(ds)" in result.after
    assert "accelerator.save(" in result.after
    check_invariants(before, result)
    old, new = tmp_path / "before.py", tmp_path / "after.py"
    old.write_text(before)
    new.write_text(result.after)
    report = verify(old, new, args=("--device", "cpu"), processes=(1, 2), expect="equal", timeout=120)
    assert [run.verdict.value for run in report.runs] == ["identical", "equal"], report


def test_a_second_name_for_the_model_is_refused_for_accelerate() -> None:
    """There `prepare` returns another object, and training through the second name would not be synchronised."""
    text = next(c for c in POSITIVE if c.name == "a barrier").script.replace(WRAP, "ddp = DDP(model)")
    text = (
        text.replace("if world > 1:\n    ddp", "ddp")
        .replace("    ddp = DDP", "ddp = DDP")
        .replace("model(x)", "ddp(x)")
    )
    text = text.replace("if world > 1:\nddp", "ddp")
    assert not migrate(text).refused
    result = migrate_text(Path("train.py"), text, Options(runtime="accelerate"))
    assert [f.rule for f in result.findings if f.severity is Severity.REFUSED] == ["CT302"]


def test_a_function_that_averages_gradients_goes() -> None:
    function = "def average(model, world):\n    for p in model.parameters():\n        dist.all_reduce(p.grad.data)\n        p.grad.data /= world"
    before = {"definitions": function, "setup": "", "step": "average(model, world)\noptimizer.step()"}
    case = distributed(
        "by hand", {**before, "imports": "import os\n\nimport torch.distributed as dist"}, {}, ""
    )
    result = migrate(case.script)
    assert result.changed
    assert "average" not in result.after and "dist" not in result.after


def test_a_switch_for_the_device_is_no_switch_for_processes() -> None:
    """`--gpu` is off by default, and must not be read as never given."""
    parser = 'parser = argparse.ArgumentParser()\nparser.add_argument("--gpu", action="store_true")\nargs = parser.parse_args()'
    case = distributed(
        "a switch",
        {
            "imports": "import argparse\n" + IMPORTS,
            "options": f"{parser}\n{WORLD}\nif world > 1:\n    {INIT}",
            "device": 'device = torch.device("cuda" if args.gpu else "cpu")',
        },
        {},
        "",
    )
    assert "accelerator = Accelerator(cpu=not args.gpu)" in migrate(case.script).after


OPTIONS = """\
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default=None, type=int)
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--dist-url", default="tcp://127.0.0.1:23456")
parser.add_argument("--multiprocessing-distributed", action="store_true")
args = parser.parse_args()
if args.gpu is not None:
    print("one GPU")
if args.dist_url == "env://" and args.world_size == -1:
    args.world_size = int(os.environ["WORLD_SIZE"])
args.distributed = args.world_size > 1 or args.multiprocessing_distributed
if args.multiprocessing_distributed:
    args.world_size = torch.cuda.device_count() * args.world_size
if args.distributed:
    dist.init_process_group("gloo", init_method=args.dist_url, world_size=args.world_size)"""
SAMPLED = """\
train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
if args.distributed:
    sampler = DistributedSampler(train_set)
else:
    sampler = None
train_loader = DataLoader(train_set, batch_size=8, shuffle=(sampler is None), sampler=sampler)"""


def test_options_that_depend_on_each_other() -> None:
    """What `args.distributed` is depends on `args.world_size`, whose assignments depend on tests of other options."""
    slots = {
        "imports": "import argparse\n" + SAMPLING,
        "options": OPTIONS,
        "data": SAMPLED,
        "setup": f"if args.distributed:\n    {WRAP}",
    }
    case = distributed("options", slots, {}, "")
    result = migrate(case.script)
    assert not result.refused, result.findings
    assert PLAIN in result.after
    after_options = result.after.split("parse_args()")[1]
    assert "args" not in after_options
    check_invariants(case.script, result)


def test_branches_that_only_wrapped_the_model_go_and_their_comments_are_listed() -> None:
    setup = """\
use_cuda = torch.cuda.is_available()
if not use_cuda:
    print("this will be slow")
elif torch.cuda.device_count() > 1:
    # every GPU gets its part
    if name.startswith("vgg"):
        model.features = torch.nn.DataParallel(model.features)
        model.cuda()
    else:
        model = torch.nn.DataParallel(model).cuda()
else:
    model.cuda()"""
    slots = {
        **SLOTS,
        "model": 'name = "vgg16"\nmodel = nn.Sequential()\nmodel.features = nn.Linear(8, 3)',
        "setup": setup,
        "batch": "x, y = x.cuda(), y.cuda()",
        "device": "",
    }
    result = migrate(script(slots))
    assert result.changed, result.findings
    body = result.after.split("model.features")[1]
    assert "pass" not in body and "elif" not in body
    assert any("# every GPU gets its part" in f.reason for f in result.findings)


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
    result = migrate(case.script)
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
    assert "batch_size = args.per_gpu_batch_size\n" in result.after
    assert (
        "sampler = RandomSampler(train_set)\n    loader = DataLoader(train_set, sampler=sampler,"
        in result.after
    )
    assert "Distributed" not in result.after and "DataParallel" not in result.after
    assert "loss.mean()" not in result.after
    assert "accelerator = Accelerator(cpu=args.no_cuda" in result.after
    check_invariants(TRANSFORMERS, result)


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
    result = migrate(TRAINER)
    assert result.changed, result.findings
    made = 'accelerator = Accelerator(mixed_precision="fp16" if config.use_amp and torch.cuda.is_available() else "no")'
    assert f"    {made}\n    model, optimizer, train_set = make()\n" in result.after, result.after
    assert "exit" not in result.after and "get_default_backend" not in result.after
    assert any("too few devices" in f.reason for f in result.findings)
    check_invariants(TRAINER, result)
