"""CT303: scripts that distribute themselves in a way that cannot be taken out are mapped where they stand."""

from __future__ import annotations

from .support import check_invariants, migrate

HELPER = """\
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Own(Sampler):
    def __init__(self, data):
        self.rows = list(range(dist.get_rank(), len(data), dist.get_world_size()))

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)


"""
LOADER = """\
    data = TensorDataset(torch.randn(40, 8), torch.zeros(40, dtype=torch.long))
    sampler = Own(data) if {flag} else torch.utils.data.RandomSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
"""
LOOP = """\
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.cross_entropy(model(x.to({device})), y.to({device}))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if {flag}:
        total = torch.tensor([loss.item()])
        dist.all_reduce(total)
        loss = total / dist.get_world_size()
    print(loss.item())
"""
TORCHRUN = (
    HELPER
    + """\
def main():
    distributed = "RANK" in os.environ
    device = torch.device("cuda")
    if distributed:
        assert torch.cuda.is_available()
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl")
        device = torch.device("cuda", local_rank)
"""
    + LOADER.format(flag="distributed")
    + """\
    model = nn.Linear(8, 3).to(device)
    raw = model
    if distributed:
        model = DDP(model, device_ids=[local_rank])
        raw = model.module
"""
    + LOOP.format(device="device", flag="distributed")
    + """\
    if distributed:
        dist.destroy_process_group()


main()
"""
)


def test_what_shares_the_work_stays_and_what_the_launcher_does_goes() -> None:
    result = migrate(TORCHRUN)
    assert not result.refused, result.findings
    check_invariants(TORCHRUN, result)
    for kept in ("sampler = Own(data) if distributed", "dist.all_reduce(total)", "dist.get_world_size()"):
        assert kept in result.after
    for gone in (
        "set_device",
        "init_process_group",
        "DDP",
        "destroy_process_group",
        "assert",
        "raw = model.m",
    ):
        assert gone not in result.after
    assert "PartialState" not in result.after, "the Accelerator of the next line joins the group"
    assert "model, optimizer = accelerator.prepare(model, optimizer)" in result.after
    assert "accelerator.backward(loss)" in result.after
    assert "print(loss.item())" in result.after, "its numbers are the author's own"


SPAWNED = (
    HELPER.replace("import os\n", "import argparse\n").replace(
        "import torch.distributed as dist\n",
        "import torch.distributed as dist\nimport torch.multiprocessing as mp\n",
    )
    + """\
def worker(gpu, ngpus, args):
    args.rank = args.rank * ngpus + gpu
    dist.init_process_group("nccl", init_method=args.url, world_size=args.world_size, rank=args.rank)
    torch.cuda.set_device(gpu)
    args.batch_size = args.batch_size // ngpus
    print(args.rank, args.world_size)
"""
    + LOADER.format(flag="args.multi")
    + """\
    model = DDP(nn.Linear(8, 3).cuda(gpu), device_ids=[gpu])
"""
    + LOOP.format(device="gpu", flag="args.multi")
    + """\


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--multi", action="store_true")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--url", default="tcp://localhost:12345")
    args = parser.parse_args()
    ngpus = torch.cuda.device_count()
    if args.multi:
        args.world_size = ngpus * args.world_size
        mp.spawn(worker, nprocs=ngpus, args=(ngpus, args))


main()
"""
)


def test_started_processes_are_the_launchers_and_their_numbers_come_from_the_state() -> None:
    result = migrate(SPAWNED)
    assert not result.refused, result.findings
    check_invariants(SPAWNED, result)
    for said in (
        'args.multi = "RANK" in os.environ',
        "worker(ngpus, args)",
        "args.rank = PartialState().process_index",
        "args.world_size = PartialState().num_processes",
        'ngpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1))',
    ):
        assert said in result.after, result.after
    assert "args.rank * ngpus" not in result.after
    assert "x.to(accelerator.device)" in result.after


def test_a_switch_that_is_written_into_the_script_is_the_launchers() -> None:
    before = TORCHRUN.replace('distributed = "RANK" in os.environ', "distributed = False")
    result = migrate(before)
    assert 'distributed = "RANK" in os.environ' in result.after
    check_invariants(before, result)


def test_the_number_of_a_process_on_the_command_line() -> None:
    before = SPAWNED.replace(
        'parser.add_argument("--multi", action="store_true")',
        'parser.add_argument("--multi", action="store_true")\n'
        '    parser.add_argument("--local_rank", type=int, required=True)',
    )
    result = migrate(before)
    assert 'default=int(os.environ.get("LOCAL_RANK", 0))' in result.after
    assert "required" not in result.after


def test_variables_of_another_launcher() -> None:
    asked = (
        'if "SLURM_PROCID" in os.environ:\n        place = int(os.environ["SLURM_PROCID"])\n'
        '        ranks = int(os.environ["SLURM_NTASKS"])'
    )
    before = TORCHRUN.replace(
        '    device = torch.device("cuda")\n',
        f'    device = torch.device("cuda")\n    size = int(os.environ["OMPI_COMM_WORLD_SIZE"])\n    {asked}\n',
        1,
    )
    result = migrate(before)
    assert asked in result.after  # both, or a rank and a number of processes would be of different launchers
    assert 'size = int(os.environ["WORLD_SIZE"])' in result.after


def test_the_other_ways_in_which_gradients_are_averaged_stay_refused() -> None:
    by_hand = TORCHRUN.replace(
        "        optimizer.step()\n",
        "        for p in model.parameters():\n            dist.all_reduce(p.grad)\n        optimizer.step()\n",
    )
    assert migrate(by_hand).refused


def test_what_runs_in_a_loaders_workers_is_left_alone() -> None:
    before = TORCHRUN.replace(
        "class Own(Sampler)",
        "class Scaled(TensorDataset):\n"
        "    def __getitem__(self, row):\n"
        "        x, y = super().__getitem__(row)\n"
        "        return x * torch.ones(8, device=x.device), y\n\n\n"
        "class Own(Sampler)",
    ).replace("data = TensorDataset(", "data = Scaled(")
    assert "torch.ones(8, device=x.device)" in migrate(before).after


ELSEWHERE = TORCHRUN.replace(
    "from torch import nn\n",
    "from timm.optim import create_optimizer\nfrom timm.utils import NativeScaler\nfrom torch import nn\n",
)
ELSEWHERE = ELSEWHERE.replace(
    "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
    "    optimizer = create_optimizer(args, raw)\n    scaler = NativeScaler()\n",
).replace(
    "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n",
    "        scaler(loss, optimizer, parameters=model.parameters())\n",
)


def test_where_a_library_trains_the_model_is_prepared_in_the_wrappers_place() -> None:
    result = migrate(ELSEWHERE)
    assert not result.refused, result.findings
    assert "        model = Accelerator().prepare(model)\n" in result.after
    assert "scaler(loss, optimizer, parameters=model.parameters())" in result.after
    assert "init_process_group" not in result.after and "set_device" not in result.after
    check_invariants(ELSEWHERE, result)


def test_what_nobody_called_before_stays() -> None:
    """A function that only calls itself, and an attribute of a class that is named like a variable."""
    unused = (
        "def depth(x):\n    return depth(x[0])\n\n\n"
        "class Bank:\n    files = dict()\n\n"
        "    @staticmethod\n    def get(path):\n        files = Bank.files\n        return files[path]\n\n\n"
    )
    before = TORCHRUN.replace("class Own(Sampler)", unused + "class Own(Sampler)")
    after = migrate(before).after
    assert "def depth(x):" in after and "    files = dict()\n" in after


def test_a_test_of_the_system_is_no_switch() -> None:
    """Each branch makes the group; only on one system with an option more."""
    before = TORCHRUN.replace(
        '        dist.init_process_group("nccl")\n',
        '        if platform.system() == "Windows":\n            dist.init_process_group("gloo")\n'
        '        else:\n            dist.init_process_group("nccl")\n',
    ).replace("import os\n", "import os\nimport platform\n")
    after = migrate(before).after
    assert "if distributed:" in after and '"RANK" in os.environ:' not in after.replace("d = ", "")


def test_a_module_that_is_imported_below_a_comment_is_imported_once() -> None:
    before = TORCHRUN.replace("import os\n", "# the launcher's variables\nimport os\n").replace(
        'distributed = "RANK" in os.environ', "distributed = False"
    )
    before = "import math\n\n" + before
    assert migrate(before).after.count("import os") == 1


FIRST = """\
        if args.rank != 0:
            dist.barrier()
        {between}
        if args.rank == 0:
            dist.barrier()
"""


def _going_first(between: str) -> str:
    mark = "    print(args.rank, args.world_size)\n"
    assert mark in SPAWNED
    block = FIRST.format(between=between).replace("        ", "    ", 1).replace("\n        ", "\n    ")
    return SPAWNED.replace(mark, block, 1)


def test_barriers_that_let_one_process_go_first_stay() -> None:
    before = _going_first("data = torch.load('rows.pt')")
    result = migrate(before)
    assert not result.refused, result.findings
    assert result.after.count("dist.barrier()") == 2
    check_invariants(before, result)


def test_what_all_processes_do_together_cannot_stand_between_them() -> None:
    """The first one would wait there for the others, who wait for it at the barrier."""
    trains = (
        "net = nn.Linear(8, 3)\n    own = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    F.cross_entropy(net(torch.ones(1, 8)), torch.zeros(1, dtype=torch.long)).backward()\n    own.step()"
    )
    found = migrate(_going_first(trains))
    assert found.refused
    assert any("only some processes reach this barrier" in f.reason for f in found.findings), found.findings
