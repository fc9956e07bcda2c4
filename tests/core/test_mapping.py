"""Scripts that distribute themselves are mapped where they stand; what they decide by themselves stays."""

from pathlib import Path

import pytest

from .converting import conversion, converted, notes, once_more
from .running import launched, plain
from .support import each_row

NODE = """import argparse
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
def work(gpu, args):
    dist.init_process_group("nccl", init_method=args.url, world_size=args.processes, rank=gpu)
    torch.cuda.set_device(gpu)
    model = torch.nn.Linear(4, 2).cuda(gpu)
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DDP(model, device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(args.rows, num_replicas=args.processes, rank=gpu)
    loader = DataLoader(args.rows, 8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(gpu), y.cuda(gpu, non_blocking=True)
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if gpu == 0:
            print(epoch, loss.item())
            torch.save(model.module.state_dict(), "weights.pt")
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    args.processes = torch.cuda.device_count()
    mp.spawn(work, nprocs=args.processes, args=(args,))
if __name__ == "__main__":
    main()
"""


@each_row("""
worker => is_own
pass; => True
sampler = DistributedSampler(args.rows); => False
torch.manual_seed(gpu + 3); => False
""")
def test_spawned_processes_shuffle_each_for_itself(worker: str, is_own: bool) -> None:
    of_parent = NODE.replace("    mp.spawn(", "    torch.manual_seed(3)\n    mp.spawn(")
    kept = of_parent[: of_parent.index("    sampler =")] + of_parent[of_parent.index("    loader =") :]
    kept = kept.replace(", sampler=sampler", ", shuffle=True").replace(
        "        sampler.set_epoch(epoch)\n", ""
    )
    after = converted(kept.replace("    loader =", f"    {worker} loader ="))
    own = "    if PartialState().process_index:\n        torch.manual_seed(torch.initial_seed()"
    assert (own in after) is is_own and once_more(after) == after


@pytest.mark.parametrize(
    ("handler", "is_told"),
    [("except:\n        stop()", True), ("except KeyboardInterrupt:\n        stop()", False)],
)
def test_a_process_that_ends_with_an_error_tells_the_launcher(handler: str, is_told: bool) -> None:
    spawn = "mp.spawn(work, nprocs=args.processes, args=(args,))"
    text = NODE.replace(f"    {spawn}", f"    try:\n        {spawn}\n    {handler}")
    assert ("        stop()\n        raise\n" in converted(text)) is is_told
    assert "raise" not in converted(text.replace("stop()", "os._exit(1)"))
    kept = f"context = {spawn.replace('work,', 'fn=work,', 1)}\n    while not context.join():\n        pass"
    assert converted(NODE.replace(spawn, kept)).replace("context = ", "") == converted(NODE)
    started = NODE.replace("mp.spawn(", "mp.start_processes(")
    assert converted(started.replace("args=(args,)", "args=(args,), start_method='fork'")) == converted(NODE)


def test_the_processes_the_group_the_wrapper_and_the_devices_become_the_runtimes() -> None:
    """What the author decides by rank stays; the sampler asks the group, so that its loader needs nothing."""
    after = converted(NODE)
    for gone in ("init_process_group", "mp.spawn(", "DDP(model", "device_ids", "device_count", ".cuda(gpu"):
        assert gone not in after
    for made in (
        "work(PartialState().process_index, args)",
        "args.processes = PartialState().num_processes",
        "model = accelerator.prepare(model)",
        'default=int(os.environ.get("LOCAL_RANK", 0))',
        "    accelerator = Accelerator()\n    PartialState(group_of_one=True)\n",
        "sampler = DistributedSampler(args.rows)\n",
        "optimizer = accelerator.prepare(optimizer)",
        "        if gpu == 0:\n            print(epoch, loss.item())\n            torch.save(model.module.state_dict()",
        "x, y = x.to(accelerator.device), y.to(accelerator.device, non_blocking=True)",
        "if torch.cuda.is_available():\n        torch.cuda.set_device(accelerator.device)",
        "if torch.cuda.is_available():\n        model = torch.nn.SyncBatchNorm",
    ):
        assert made in after, made
    assert after.count("PartialState(group_of_one=True)") == 1
    assert once_more(after) == after


def test_a_number_that_is_not_the_groups_rank_is_the_machines_own() -> None:
    assert "work(PartialState().local_process_index, args)" in converted(
        NODE.replace("rank=gpu", "rank=8 + gpu")
    )


def test_work_that_is_also_called_without_processes_is_shared_by_those_there_are() -> None:
    """`run(0, 1)` beside `mp.spawn(run)`: started by the launcher, all would train on the same rows, and write."""
    spawn = "mp.spawn(work, nprocs=args.processes, args=(args,))"
    text = NODE.replace(
        f"    {spawn}", f"    if args.single:\n        work(0, args)\n    else:\n        {spawn}"
    )
    assert converted(text).count("work(PartialState().process_index, args)") == 2
    named = text.replace("work(0, args)", "rank = 0\n        work(rank, args)")
    assert "        rank = PartialState().process_index\n        work(rank, args)\n" in converted(named)


def test_a_group_that_is_made_under_a_condition_is_made_there() -> None:
    start = '    dist.init_process_group("nccl", init_method=args.url, world_size=args.processes, rank=gpu)\n'
    alone = NODE.replace(start, f"    if gpu >= 0:\n    {start}")
    assert "    if gpu >= 0:\n        PartialState(group_of_one=True)\n" in converted(alone)


@each_row(r"""
said => becomes
rank = torch.cuda.current_device()\n    args.seed += rank => rank = PartialState().local_process_index
rank = torch.cuda.current_device()\n    args.x.to(rank) => rank = accelerator.device
args.model.share_memory() => work(PartialState().process_index, args)
args.shard(shard_id=torch.cuda.current_device()) => args.shard(shard_id=PartialState().local_process_index)
args.find(gpu_id=None if args.x else torch.cuda.current_device()) => gpu_id=None if args.x else PartialState().local_process_index
args.find(place=None if args.x else torch.cuda.current_device()) => place=None if args.x else accelerator.device
if args.many:\n        rows.set_epoch(1) => processes\n    work(
args.run = str(time.time())\n    os.makedirs(args.run) => args.run = str(broadcast_object_list([time.time()])[0])
args.run = str(time.time()) => args.run = str(time.time())
if args.many:\n        args.rows.set_epoch(1) => args.rows.set_epoch(1)
""")
def test_a_process_has_a_number(said: str, becomes: str) -> None:
    assert becomes in converted(NODE.replace("    mp.spawn(", f"    {said}\n    mp.spawn("))


@pytest.mark.parametrize(
    "numbers", ["num_replicas=dist.get_world_size(), rank=dist.get_rank()", "rank=dist.get_rank()"]
)
def test_a_sampler_that_asks_the_group_stays(numbers: str) -> None:
    text = NODE.replace("num_replicas=args.processes, rank=gpu", numbers)
    assert f"DistributedSampler(args.rows, {numbers})" in converted(text)


@each_row("""
rows => wrapper => prepared
args.rows[gpu::args.processes] => model => model, optimizer
args.rows[gpu * 4 : gpu * 4 + 4] => model => model, optimizer
args.rows[gpu::4] => DDP(model, device_ids=[gpu]) => optimizer
args.rows => DDP(model, device_ids=[gpu]) => optimizer
args.rows[::2] => model => model, optimizer, loader  # a group, with which nothing is done
""")
def test_a_loader_whose_rows_the_script_deals_is_left_to_it(rows: str, wrapper: str, prepared: str) -> None:
    sampler = "    sampler = DistributedSampler(args.rows, num_replicas=args.processes, rank=gpu)\n"
    text = NODE.replace(sampler, "").replace("        sampler.set_epoch(epoch)\n", "")
    text = text.replace("args.rows, 8, sampler=sampler", f"{rows}, 8")
    text = text.replace("DDP(model, device_ids=[gpu])", wrapper)
    assert f"{prepared} = accelerator.prepare({prepared})" in converted(text)
    assert not notes(text, "CT902")


FLAGGED = """import argparse, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--distributed", type=int, default=0)
    options = parser.parse_args()
    if options.distributed:
        dist.init_process_group("nccl")
    model = torch.nn.Linear(1, 1)
    rows, sampler = torch.arange(8.0).view(8, 1), None
    if {asked}:
        sampler = DistributedSampler(rows)
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(rows, 2, sampler=sampler):
        <step torch.nn.functional.mse_loss(model(x), x)>
    print("=", sampler is None)
main()
"""


def test_a_group_that_a_flag_makes_is_made_by_the_flag(tmp_path: Path) -> None:
    """Without it plain python trains as before: other code asks whether there is a group."""
    after = converted(FLAGGED.format(asked="dist.is_initialized()"))
    assert "if options.distributed:\n        PartialState(group_of_one=True)" in after
    assert plain(tmp_path, after) == ["= True"]
    assert plain(tmp_path, after, "--distributed", "1") == ["= False"]
    assert "= False" in launched(tmp_path, after, "--distributed", "1")


def test_a_script_that_asks_for_its_launcher_has_no_group_without_one(tmp_path: Path) -> None:
    """Also where the wrapper is in a function that the flag calls."""
    wraps = "def together(model):\n    return torch.nn.parallel.DistributedDataParallel(model)\ndef main"
    text = FLAGGED.format(asked="options.distributed").replace("def main", wraps)
    text = text.replace(
        "torch.nn.parallel.DistributedDataParallel(model)\n    optim", "together(model)\n    optim"
    )
    text = "import os\n" + text.replace(
        "options = parser.parse_args()",
        'options = parser.parse_args()\n    options.distributed = "RANK" in os.environ',
    )
    after = converted(text)
    assert "together(model)\n    optim" in after
    assert plain(tmp_path, after) == ["= True"] and once_more(after) == after
    assert "= False" in launched(tmp_path, after)


SPAWNED = """import argparse, torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, DistributedSampler
class Trainer:
    def __init__(self):
        self.together = dist.is_available() and dist.is_initialized()
        self.model = torch.nn.Linear(1, 1)
        if self.together:
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def train(self):
        rows = torch.arange(8.0).view(8, 1)
        sampler = DistributedSampler(rows) if self.together else None
        for x in DataLoader(rows, 2, sampler=sampler):
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), x).backward()
            self.optimizer.step()
        print("=", sampler is None)
def join_group(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)
def together(rank, size):
    join_group(rank, size)
    Trainer().train()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_gpus", type=int, default=1)
    options = parser.parse_args()
    if options.num_gpus > 1:
        mp.spawn(together, args=(options.num_gpus,), nprocs=options.num_gpus)
    else:
        Trainer().train()
if __name__ == "__main__":
    main()
"""


def test_so_is_one_that_spawned_functions_join_where_a_flag_says_so(tmp_path: Path) -> None:
    after = converted(SPAWNED)
    assert after.count("group_of_one=True") == 1
    assert "def join_group(rank, size):\n    PartialState(group_of_one=True)" in after
    assert plain(tmp_path, after) == ["= True"] and once_more(after) == after
    assert "= False" in launched(tmp_path, after)


def test_so_is_one_in_a_function_that_reads_the_numbers(tmp_path: Path) -> None:
    join = (
        'def join():\n    dist.init_process_group("nccl")\n    return int(os.environ["RANK"])\n\n\ndef main'
    )
    text = FLAGGED.format(asked="dist.is_initialized()").replace('dist.init_process_group("nccl")', "join()")
    text = "import os\n" + text.replace("def main", join)
    after = converted(text)
    assert "def join():\n    PartialState(group_of_one=True, environment=True)\n    return" in after
    assert plain(tmp_path, after) == ["= True"] and once_more(after) == after
    assert plain(tmp_path, after, "--distributed", "1") == ["= False"]
    above = text.replace("    parser =", '    print(os.environ["RANK"])\n    parser =', 1)
    assert "def main():\n    PartialState(group_of_one=True, env" in converted(above).replace(
        "    accelerator = Accelerator()\n", ""
    )


def test_a_group_that_no_other_code_asks_for_is_there_from_the_beginning() -> None:
    after = converted(FLAGGED.format(asked="options.distributed"))
    assert "PartialState(group_of_one=True)\n    parser = " in after


def test_a_variable_that_numbers_the_device_becomes_the_device() -> None:
    chosen = "    device = gpu % torch.cuda.device_count()\n    torch.cuda.set_device(device)"
    text = NODE.replace("    torch.cuda.set_device(gpu)", chosen).replace("x.to(gpu)", "x.to(device)")
    after = converted(text)
    assert "    device = accelerator.device\n" in after
    assert "x.to(device)" in after and "torch.cuda.set_device(device)" in after
    as_text = converted(text.replace("gpu % torch.cuda.device_count()", "'cuda:0'"))
    as_text = as_text.replace("accelerator.", "PartialState().")
    assert "torch.cuda.set_device(PartialState().device)" in as_text


def test_a_number_is_no_device_elsewhere() -> None:
    """`gpu` of another function is its own variable; `device` with a `.type` is a device already."""
    text = NODE.replace(
        "def main():", "def report(gpu, table):\n    table.to(gpu)\n\ndef main():\n    report('html', open)"
    )
    assert "table.to(gpu)" in converted(text)
    text = NODE.replace(
        "def work(gpu, args):",
        "def work(gpu, args):\n    device = args.place\n    if device.type == 'cuda':\n        torch.cuda.set_device(device)\n    args.rows.to(device)",
    )
    assert "args.rows.to(device)" in converted(text)


def test_data_parallel_goes_in_a_script_that_distributes_itself_too() -> None:
    """It would take the devices of the other processes."""
    text = NODE.replace(
        "    model = DDP(model, device_ids=[gpu])",
        "    if args.one:\n        model = torch.nn.DataParallel(model)\n    else:\n        model = DDP(model, device_ids=[gpu])",
    )
    assert converted(text).count("model = accelerator.prepare(model)") == 2


HIDDEN = NODE.replace("import argparse\n", "import argparse\nfrom timm.utils import NativeScaler\n").replace(
    "            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()\n",
    "            optimizer.zero_grad()\n            scale(loss, optimizer)\n",
)
HIDDEN = HIDDEN.replace("    sampler = Dist", "    scale = NativeScaler()\n    sampler = Dist", 1)


def test_a_wrapped_model_that_a_library_trains_is_averaged_by_its_wrapper() -> None:
    assert "backward" not in HIDDEN
    after = converted(HIDDEN)
    assert "prepare(model)" in after and "= DDP(" not in after and "scale(loss, optimizer)" in after
    assert once_more(after) == after


@pytest.mark.parametrize(
    ("wraps", "runtime", "rule"), [(True, "accelerate", "CT303"), (False, "crosstrain", "CT202")]
)
def test_what_a_library_trains_needs_its_wrapper_and_the_bundled_runtime(
    wraps: bool, runtime: str, rule: str
) -> None:
    alone = HIDDEN.replace("    model = DDP(model, device_ids=[gpu])\n", "").replace(".module.", ".")
    found = conversion(HIDDEN if wraps else alone, runtime).findings
    assert [one.rule for one in found if one.severity.value == "refused"] == [rule]


BEFORE = """    if not os.path.exists("run"):
        os.makedirs("run")
    with open("run/options.txt", "w") as file:
        file.write(str(args))
    print("starting")
"""
WRITES = NODE.replace("    mp.spawn(", f"{BEFORE}    mp.spawn(")


@pytest.mark.parametrize("asked", ["", "args.rank == 0 and "])  # the rank of a machine
def test_what_the_spawning_process_writes_one_process_writes(asked: str) -> None:
    after = converted(WRITES.replace("if not os", f"if {asked}not os"))
    assert 'os.makedirs("run", exist_ok=True)' in after
    assert 'is_main_process:\n        with open("run/options.txt", "w") as file:' in after
    assert '.print("starting")' in after
    of_machine = WRITES.replace('exists("run"):', 'exists("run") and args.rank == 0:')
    assert 'os.makedirs("run", exist_ok=True)' in converted(of_machine)
    assert "        if gpu == 0:\n            print(epoch, loss.item())\n            torch.save(" in after
    assert once_more(after) == after


def test_what_the_spawned_processes_write_is_their_own() -> None:
    worker = NODE.replace("def work(gpu, args):\n", f"def work(gpu, args):\n{BEFORE}")
    after = converted(worker)
    assert (
        '        os.makedirs("run", exist_ok=True)\n    with open("run/options.txt", "w") as file:' in after
    )
    assert '    print("starting")\n' in after
    both = worker.replace(BEFORE, "    note(args)\n").replace("mp.spawn(", "note(args)\n    mp.spawn(")
    shared = both.replace("def work(", f"def note(args):\n{BEFORE}\ndef work(", 1)
    assert '    print("starting")\n' in converted(shared)
    sent = shared.replace("(gpu, args)", "(gpu, run, args)").replace("    note(args)\n", "    run(args)\n", 1)
    sent = sent.replace("args=(args,)", "args=(run, args)").replace("    note(args)\n    mp", "    mp")
    sent = sent.replace("def main():", "def main(run):").replace("    main()", "    main(note)")
    assert '    print("starting")\n' in converted(sent)


@pytest.mark.parametrize("more", ["if args.rank == 0:\n        {}", "{}\n    else:\n        print('there')"])
def test_a_folder_that_one_spawned_process_makes_or_that_decides_stays(more: str) -> None:
    makes = more.format(
        'if not os.path.exists("run"):' + "\n    " * more.count("        {") + '        os.makedirs("run")'
    )
    after = converted(NODE.replace("def work(gpu, args):\n", f"def work(gpu, args):\n    {makes}\n"))
    assert 'os.makedirs("run")\n' in after


NAMED_LIKE_IT = """import os
import torch
import torch.distributed as dist
def my_init_process_group(settings):
    dist.init_process_group("gloo")
    return {"rank": dist.get_rank(), "size": dist.get_world_size()}
settings = {"distributed": "WORLD_SIZE" in os.environ}
if settings["distributed"]:
    settings.update(my_init_process_group(settings))
model = torch.nn.Linear(2, 1)
<model torch.nn.parallel.DistributedDataParallel(model)>
for _ in range(3):
    model(torch.ones(2, 2)).mean().backward()
    optimizer.step()
print("=", sorted(settings.items()))
"""


def test_a_function_that_makes_the_group_and_is_named_so_is_still_called(tmp_path: Path) -> None:
    after = converted(NAMED_LIKE_IT)
    assert "settings.update(my_init_process_group(settings))" in after
    lines = launched(tmp_path, after)
    assert [line[-25:] for line in lines] == ["('rank', 0), ('size', 2)]", "('rank', 1), ('size', 2)]"]


def test_the_same_name_in_the_project_calls_torchs_group() -> None:
    after = converted(NAMED_LIKE_IT.replace("my_init_process_group", "init_process_group"))
    assert "settings.update(init_process_group(settings))" in after
    assert "dist.init_process_group(" not in after


def test_the_option_that_named_the_backend_is_still_an_option(tmp_path: Path) -> None:
    text = FLAGGED.format(asked="options.distributed").replace('group("nccl")', "group(options.backend)")
    option = '    parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])\n'
    text = text.replace("    options = ", option + "    options = ")
    after = converted(text.replace("sampler is None", "options.backend"))
    assert plain(tmp_path, after) == ["= nccl"]
    assert launched(tmp_path, after, "--distributed", "1", "--backend", "gloo") == ["= gloo"] * 2


def test_a_script_with_a_branch_without_a_launcher_keeps_it() -> None:
    text = NODE.replace(
        "    model = DDP(model, device_ids=[gpu])",
        "    if 'RANK' in os.environ:\n        model = DDP(model, device_ids=[gpu])",
    )
    after = converted(text)
    assert "environment=True" not in after
    assert "    if 'RANK' in os.environ:\n        model = accelerator.prepare(model)" in after


@pytest.mark.parametrize(("asked", "said"), [('config.device != "cpu"', True), ("config.distributed", False)])
def test_a_setting_that_named_the_cpu_is_said(asked: str, said: bool) -> None:
    text = FLAGGED.format(asked="dist.is_initialized()")
    text = text.replace("options = parser.parse_args()", "import config").replace("options.", "config.")
    text = text.replace("torch.nn.Linear(1, 1)", "made(config)")
    made = "def made(config):\n    return torch.nn.Linear(1, 1).to(torch.device(config.device))\n\ndef main"
    text = text.replace("def main", made).replace("rows, sampler", f"pinned = {asked}\n    rows, sampler")
    assert any("own choice of the CPU" in one.reason for one in notes(text, "CT105")) is said


STARTED = """import argparse, torch
import torch.distributed as dist
from torch.multiprocessing import Process
from torch.utils.data import DataLoader, DistributedSampler
def join_group(rank, size, run, args):
    dist.init_process_group("gloo", rank=rank, world_size=size)
    run(rank, args)
    dist.destroy_process_group()
def train(rank, args):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.arange(8.0).view(8, 1)
    for x in DataLoader(rows, 2, sampler=DistributedSampler(rows, args.size, rank)):
        <step torch.nn.functional.mse_loss(model(x), x)>
    print("=", rank, args.local_rank, args.size, len(x))
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--local_rank", type=int, default=0)
    args = parser.parse_args()
    if args.size > 1:
        {starts}
    else:
        join_group(0, 1, train, args)
"""
ONE_BY_ONE = [
    "started = []\n        for rank in range(args.size):\n            args.local_rank = rank\n"
    "            number = rank + args.node * args.size\n"
    "            p = Process(target=join_group, args=(number, args.size, train, args))\n            p.start()\n"
    "            started.append(p)\n        for p in started:\n            p.join()",
    "started = [Process(target=join_group, args=(n, args.size, train, args)) for n in range(args.size)]\n"
    "        for one in started:\n            one.start()\n        for one in started:\n            one.join()",
]


@pytest.mark.parametrize("starts", ONE_BY_ONE)
def test_the_launcher_starts_what_a_script_starts_one_by_one(starts: str, tmp_path: Path) -> None:
    starts = f"clock.start()\n        {starts}\n        clock.join()"
    after = converted(STARTED.format(starts=starts)).replace("        clock.join()\n", "", 1)
    after = after.replace("        clock.start()\n", "", 1)  # which is no process, and stays
    assert ".start()" not in after and ".join()" not in after and "clock" not in after
    assert once_more(after) == after and plain(tmp_path, after) == ["= 0 0 1 2"]
    assert launched(tmp_path, after) == ["= 0 0 2 2", "= 1 1 2 2"]
