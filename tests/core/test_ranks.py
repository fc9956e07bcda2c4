"""What numbers the processes of a script that distributes itself: the launcher's numbers, or the author's own branch."""

from pathlib import Path

import pytest

from .converting import converted, once_more
from .running import launched, plain
from .support import each_row

# A script for a launcher that gives `--local_rank`, with a branch of its own for plain python.
HEAD = """import argparse
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
parser = argparse.ArgumentParser()
"""
LAUNCHED = (
    HEAD
    + """parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--no_cuda", action="store_true")
def main():
    args = parser.parse_args()
    if args.local_rank == -1 or args.no_cuda:
        device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
    else:
        torch.cuda.set_device(args.local_rank)
        device = torch.device("cuda", args.local_rank)
        dist.init_process_group(backend="gloo")
    rows = TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
    sampler = RandomSampler(rows) if args.local_rank == -1 else DistributedSampler(rows)
    model = torch.nn.Linear(4, 2).to(device)
    if args.local_rank != -1:
        model = DistributedDataParallel(model, device_ids=[args.local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=8)
    for x, y in DataLoader(rows, 4, sampler=sampler):
        <step torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))>
        scheduler.step()
    print("=", args.local_rank, type(sampler).__name__, dist.is_initialized(), round(scheduler.get_last_lr()[0], 3))
if __name__ == "__main__":
    main()
"""
)


def test_plain_python_takes_the_authors_branch(tmp_path: Path) -> None:
    after = converted(LAUNCHED)
    assert 'default=int(os.environ.get("LOCAL_RANK", -1))' in after
    assert "Accelerator(cpu=args.no_cuda)" in after
    assert "environment=True" not in after
    assert plain(tmp_path, after) == ["= -1 RandomSampler False 0.0"]
    assert plain(tmp_path, after, "--no_cuda") == ["= -1 RandomSampler False 0.0"]
    assert once_more(after) == after


def test_the_launchers_processes_take_the_other_branch(tmp_path: Path) -> None:
    """A schedule that its author divided by the processes moves one step at a time."""
    lines = launched(tmp_path, converted(LAUNCHED))
    assert lines == [f"= {rank} DistributedSampler True 0.05" for rank in range(2)]


@each_row("""
option => use => becomes
"--local-rank", type=int => args.local_rank > 3 => default=int(os.environ.get("LOCAL_RANK", 0))
"--local-rank", type=int => args.local_rank is None
=> default=int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else None
"--local_rank", type=int, required=True => args.local_rank > 3
=> type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
"--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)) => args.local_rank > 3
=> "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))
"--at", "--local-rank", type=int => args.at > 3 => default=int(os.environ.get("LOCAL_RANK", 0))
"--device_number", "-r", type=int, default=0 => args.device_number > 3 => default=0
""")
def test_an_option_of_another_launcher(option: str, use: str, becomes: str) -> None:
    text = LAUNCHED.replace('"--local_rank", type=int, default=-1', option)
    text = text.replace("    rows =", f"    if {use}:\n        print(args)\n    rows =")
    assert becomes in converted(text)


# A script whose processes are numbered by options that its own launcher gives.
NUMBERED = (
    HEAD
    + """parser.add_argument("--number", type=int, default=0)
parser.add_argument("--nodes", type=int, default=1)
def start(rank, count):
    dist.init_process_group("gloo", init_method="env://", world_size=count, rank=rank)
def train(rank, count):
    if count > 1:
        start(rank, count)
    rows = TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
    sampler = DistributedSampler(rows) if count > 1 else None
    model = torch.nn.Linear(4, 2)
    if count > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(rows, 4, sampler=sampler):
        <step>
    print("=", rank, count)
    if rank == 0:
        print("= saved")
if __name__ == "__main__":
    args = parser.parse_args()
    train(args.number, torch.cuda.device_count())
"""
)


@pytest.mark.slow
def test_what_the_group_is_given_is_its_own_number(tmp_path: Path) -> None:
    after = converted(NUMBERED)
    assert launched(tmp_path, after) == ["= 0 2", "= 1 2", "= saved"]
    assert plain(tmp_path, after) == ["= 0 1", "= saved"]


@pytest.mark.parametrize(("number", "is_kept"), [("rank", True), ("rank + 1", False)])
def test_an_option_that_is_set_to_itself_is_the_launchers(number: str, is_kept: bool) -> None:
    text = NUMBERED.replace("        start(rank, count)", "        start(args.number, count)")
    text = text.replace(
        "    rows =", f"    args.number = {number}\n    if count < 2:\n        args.number = 0\n    rows ="
    )
    assert (RANK in converted(text)) is is_kept


# The example that spawns: nodes and GPUs by hand.
SPAWNED = (
    HEAD
    + """import torch.multiprocessing as mp
parser.add_argument("--nodes", type=int, default=1)
parser.add_argument("--gpus", type=int, default=1)
parser.add_argument("--nr", type=int, default=0)
def work(gpu, args):
    rank = args.nr * args.gpus + gpu
    dist.init_process_group("gloo", world_size=args.world_size, rank=rank)
    rows = TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
    sampler = DistributedSampler(rows, num_replicas=args.world_size, rank=rank)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(rows, 8 // args.world_size, sampler=sampler):
        <step>
    print("=", rank, args.world_size, args.gpus, len(x))
    if args.nr == 0:
        print("= saved")
if __name__ == "__main__":
    args = parser.parse_args()
    args.world_size = args.gpus * args.nodes
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "1"
    mp.spawn(work, nprocs=args.gpus, args=(args,))
"""
)


@pytest.mark.slow
def test_processes_of_nodes_by_hand(tmp_path: Path) -> None:
    after = converted(SPAWNED)
    assert launched(tmp_path, after) == ["= 0 2 2 4", "= 1 2 2 4", "= saved"]
    assert plain(tmp_path, after) == ["= 0 1 1 8", "= saved"]


@each_row("""
given => of_list => is_counted
args.gpus => len(args.listed) => True
len(args.listed) => 1 => True
args.gpus => 1 => False
""")
def test_gpus_that_the_settings_list_are_as_many_as_the_processes(
    given: str, of_list: str, is_counted: bool
) -> None:
    listed = f"args.listed = [0, 1]\n    args.gpus = {of_list}\n    alone = len(args.listed) == 1\n"
    text = SPAWNED.replace("    args.world_size = args.gpus", f"    {listed}    args.world_size = args.gpus")
    after = converted(text.replace("nprocs=args.gpus", f"nprocs={given}"))
    assert ('alone = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) == 1\n' in after) is is_counted


# The same where the worker is given numbers.
GIVEN_NUMBERS = (
    SPAWNED.replace("def work(gpu, args):", "def work(gpu, number, world):")
    .replace("rank = args.nr * args.gpus + gpu", "rank = number")
    .replace("args.world_size, rank", "world, rank")
    .replace("args=(args,)", "args=(args.nr, args.gpus)")
)
# The same where the worker is a method.
IN_METHOD = GIVEN_NUMBERS.replace("spawn(work", "spawn(Work().run").replace(
    "\nif __", "\nclass Work:\n    def run(self, gpu, number, world): work(gpu, number, world)\n\nif __"
)
TOLD = NUMBERED.replace("=count, r", "=args.nodes, r").replace("default=1", "default=32")
# The same where an object keeps the options, and the number of nodes becomes that of processes.
KEPT = (
    SPAWNED.replace("args.gpus * args.nodes", "args.gpus * args.world_size")
    .replace('"--nodes", type=int, default=1', '"--world_size", type=int, default=-1')
    .replace(
        "def work(",
        "class Run:\n    def __init__(self, args):\n        self.args = args\n\n    def start(self, rank):\n"
        '        dist.init_process_group("gloo", world_size=self.args.world_size, rank=rank)\n\ndef work(',
    )
    .replace(
        'dist.init_process_group("gloo", world_size=args.world_size, rank=rank)\n    rows',
        "Run(args).start(rank)\n    rows",
    )
)
# The same where the script stops that is told of no machine.
STOPPING = KEPT.replace("class Run", "if args.world_size < 1:\n    raise SystemExit\nclass Run")
RANK, WORLD = 'default=int(os.environ.get("RANK", 0))', "args.world_size = PartialState().num_processes"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (GIVEN_NUMBERS, [f'"--nr", type=int, {RANK}']),
        (IN_METHOD, [f'"--nr", type=int, {RANK}']),
        (GIVEN_NUMBERS, ['"--gpus", type=int, default=int(os.environ.get("WORLD_SIZE", 1))']),
        (NUMBERED, [RANK, '"--nodes", type=int, default=1']),
        (TOLD, ['"--nodes", type=int, default=int(os.environ.get("WORLD_SIZE", 1))']),
        (SPAWNED, [WORLD, "rank = PartialState().process_index"]),
        (KEPT, [WORLD, '"--world_size", type=int, default=-1']),
        (STOPPING, [WORLD, 'default=int(os.environ.get("GROUP_WORLD_SIZE", -1))']),
        # A scheduler's machines, times the GPUs of each.
        (SPAWNED.replace("args.gpus * args.nodes", 'int(os.environ["SLURM_NNODES"]) * args.gpus'), [WORLD]),
    ],
)
def test_numbers_of_processes_are_the_launchers(text: str, written: list[str]) -> None:
    after = converted(text)
    assert all(one in after for one in written), after


def test_a_number_that_the_group_says_stays() -> None:
    text = NUMBERED.replace("train(args.number, torch.cuda.device_count())", "train(args.number, args.nodes)")
    text = text.replace("world_size=count, rank=rank", "").replace(
        "    rows = TensorDataset", "    rank = dist.get_rank() if count > 1 else 0\n    rows = TensorDataset"
    )
    after = converted(text)
    assert 'parser.add_argument("--number", type=int, default=0)' in after
    assert 'parser.add_argument("--nodes", type=int, default=1)' in after


def test_nothing_is_exported_where_a_file_is_only_imported(tmp_path: Path) -> None:
    """A script that submits jobs imports the one that trains; the jobs' processes inherit its environment."""
    asks = "if int(os.environ['WORLD_SIZE']) == 0:"
    text = LAUNCHED.replace("if args.local_rank == -1 or args.no_cuda:", asks)
    text = text.replace("if args.local_rank != -1:\n        model = Dist", "if True:\n        model = Dist")
    text = text.replace('"--local_rank", type=int, default=-1', '"--local_rank", type=int, default=0')
    after = converted(text)
    assert "environment=True" in after
    assert plain(tmp_path, after) == ["= 0 DistributedSampler True 0.0"]
    (tmp_path / "trains.py").write_text(after, encoding="utf-8")
    submits = "import os\nimport trains\nprint('=', [n for n in ('RANK', 'WORLD_SIZE') if n in os.environ])\n"
    assert plain(tmp_path, submits) == ["= []"]


ASKED_FIRST = (
    HEAD
    + """
def start(args):
    if "RANK" in os.environ:
        args.rank = int(os.environ["RANK"])
    else:
        print("no launcher")
        return
    torch.cuda.set_device(args.rank)
    dist.init_process_group(backend="nccl", init_method="env://", world_size=2, rank=args.rank)
def main(args):
    start(args)
    gpu = torch.device(args.device)
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(8, 3))
    loader = DataLoader(rows, 2, sampler=DistributedSampler(rows))
    model = DistributedDataParallel(torch.nn.Linear(3, 1).cuda(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        <step model(x.cuda(gpu)).mean()>
    print("=", args.rank, len(loader))
if __name__ == "__main__":
    parser.add_argument("--device", default="cuda")
    main(parser.parse_args())
"""
)


@pytest.mark.slow
def test_the_launchers_variables_are_set_before_a_function_asks_for_them(tmp_path: Path) -> None:
    """The accelerator is made further down, where the device is chosen."""
    after = converted(ASKED_FIRST)
    assert after.index("environment=True") < after.index("    start(args)")
    assert plain(tmp_path, after) == ["= 0 4"]
    assert launched(tmp_path, after) == ["= 0 2", "= 1 2"]


LAYER = """class Shared(torch.nn.Module):
        def forward(self, x):
            return x
        def __init__(self):
            self.others = """


@each_row(r"""
asked => stays
assert torch.cuda.is_available() and {} >= len(args.wanted) => True
if torch.cuda.is_available() and {} > 1:\n        model = torch.nn.DataParallel(model) => True
assert {} > 0 => False
if torch.cuda.is_available() and {} > 1:\n        args.batch = 4 => False
if 'SLURM_PROCID' in os.environ:\n        args.gpu = args.rank % {} => True
if 'SLURM_PROCID' in os.environ:\n        pass\n    else:\n        args.gpu = args.rank % {} => False
place = int(os.environ['SLURM_PROCID'])\n    args.gpu = place % {} => True
place = int(os.environ['RANK'])\n    args.gpu = place % {} => False
<layer>[Queue(1)] * {}\n    Shared() => True
<layer>[1] * {}\n    Shared() => False
<layer>list(range({}))\n    Shared() => True
gpus = list(range({})) => False
for n in range({}):\n        print(torch.cuda.get_device_name(n)) => True
for n in range({}):\n        print(n) => False
""")
def test_gpus_that_one_process_asks_for_are_the_machines(asked: str, stays: bool) -> None:
    count, of = "torch.cuda.device_count()", "    optimizer = torch.optim.SGD"
    asked = asked.replace("<layer>", LAYER)
    after = converted(ASKED_FIRST.replace(of, f"    {asked.format(count)}\n{of}"))
    assert (asked.partition("{}")[0] + 'int(os.environ.get("LOCAL_WORLD_SIZE"' in after) is not stays


@each_row("""
asked => becomes
int(os.environ.get("SLURM_PROCID", 0)) => int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0)))
os.environ.get("SLURM_PROCID") => os.environ.get("SLURM_PROCID")  # whether srun started it
max(os.environ[one] for one in ["PMI_RANK"]) => max(os.environ[one] for one in ["RANK", "PMI_RANK"])
any(one in os.environ for one in ["PMI_RANK"]) => any(one in os.environ for one in ["PMI_RANK"])
[os.environ.pop(one) for one in ("PMI_RANK", "PMI_SIZE")] => [os.environ.pop(one) for one in ("PMI_RANK", "PMI_SIZE")]
if 'SLURM_JOB_ID' in os.environ: os.getenv("SLURM_PROCID", 0) => if 'SLURM_JOB_ID' in os.environ: os.getenv("SLURM_PROCID", 0)
""")
def test_a_number_of_a_cluster_is_the_launchers_first(asked: str, becomes: str) -> None:
    after = converted(ASKED_FIRST.replace("    optimizer =", f"    {asked}\n    optimizer ="))
    assert f"    {becomes}\n" in after and once_more(after) == after


@each_row("""
saves => used => has_all
torch.save(torch.nn.DataParallel(model), 'a') => rows = 4 * args.gpus => True
torch.save(torch.nn.DataParallel(model), 'a') => args.share = 1 / args.gpus => False
pass => rows = 4 * args.gpus => False
""")
def test_under_plain_python_a_kept_dataparallel_has_all_gpus(saves: str, used: str, has_all: bool) -> None:
    counts, of = f"    args.gpus = torch.cuda.device_count()\n    {used}\n", "    optimizer = torch.optim"
    after = converted(ASKED_FIRST.replace(of, f"    {saves}\n{counts}{of}"))
    count = "torch.cuda.device_count() or 1" if has_all else "1"
    assert f'args.gpus = int(os.environ.get("LOCAL_WORLD_SIZE", {count}))' in after
    assert converted(after).count("LOCAL_WORLD_SIZE") == 1
