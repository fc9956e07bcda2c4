"""CT303 to CT305, CT308 and CT309: a script that distributes itself and cannot be mapped becomes the plain one, then the
accelerator's."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options, Severity
from crosstrain_verify import verify

from .distributed import (
    DATA,
    DEVICE,
    GROUP,
    IMPORTS,
    INIT,
    PLAIN,
    RANK,
    SAMPLER,
    SAMPLING,
    WORLD,
    WRAP,
    distributed,
)
from .support import Case, Slots, check_invariants, each, migrate, refuses, unwound

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


# Refused with Accelerate, whose prepared model is another object; with our runtime they stay, and mean what they meant.
MAPPED = [
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
    refused("messages", {"after_epoch": "dist.send(torch.ones(1), dst=0)"}, "dist.send"),
    refused(
        "the largest of all processes",
        {"after_epoch": "top = torch.ones(1)\ndist.all_reduce(top, op=dist.ReduceOp.MAX)"},
        "ReduceOp.MAX",
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

REFUSED = [
    refused(
        "a barrier for some",
        {
            "epoch": "if rank != 0:\n    dist.barrier()\nmodel.train()\nif rank == 0:\n    dist.barrier()  # go"
        },
        "# go",
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
]


@each(POSITIVE, REFUSED)
def test_distribution(case: Case) -> None:
    case.check(runtime="accelerate")


@each(MAPPED)
def test_what_has_no_counterpart_stays(case: Case) -> None:
    """The author's line is in the result, on the run's own process group; Accelerate's models would not do with it."""
    (rule, at), *_ = case.findings
    there = unwound(case.script)
    assert (rule, case.line(at)) in {(f.rule, f.line) for f in there.findings}
    assert there.refused
    result = migrate(case.script)
    assert not result.refused, result.findings
    line = case.script.splitlines()[case.line(at) - 1].strip()
    assert line in [text.strip() for text in result.after.splitlines()]
    assert ".prepare(" in result.after and "init_process_group" not in result.after
    check_invariants(case.script, result)


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
    after.write_text(unwound(case.script).after)
    report = verify(before, after, args=(), processes=(1, 2), expect="equal", timeout=120, rank_by_rank=False)
    verdicts = [run.verdict.value for run in report.runs]
    assert verdicts[0] == "identical", report
    assert verdicts[1] in {"equal", "identical"}, report


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
