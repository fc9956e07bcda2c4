"""What a flag of the author's decides about his group, and what is said about one that is off."""

from .converting import converted, notes, once_more
from .support import each_row

SCRIPT = """
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--nodes", type=int, default=1)
parser.add_argument("--do_train", action="store_true")
args = parser.parse_args()


def main():
    if args.do_train:
        if args.nodes > 1:
            dist.init_process_group("nccl")
        data = TensorDataset(torch.rand(16, 4))
        sampler = DistributedSampler(data) if args.nodes > 1 else None
        loader = DataLoader(data, batch_size=4, sampler=sampler)
        model = nn.Linear(4, 1)
        if args.nodes > 1:
            model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for (x,) in loader:
            loss = model(x).mean()
            <step loss>


main()
"""


def said(text: str) -> list[str]:
    return [one.reason for one in notes(text, "CT303") if "share the data only" in one.reason]


def test_an_option_that_must_be_given_is_named() -> None:
    (reason,) = said(SCRIPT)
    assert "`args.nodes > 1`" in reason


@each_row(r"""
line => other
type=int, default=1 => type=int, default=2
args.nodes > 1 => dist.get_world_size() > 1
"--nodes", type=int, default=1 => "--nodes", type=int, default=int(os.environ["WORLD_SIZE"])
DistributedSampler(data) if args.nodes > 1 else None => DistributedSampler(data)
\n\ndef main => \nargs.nodes = torch.cuda.device_count()\n\ndef main
\n\ndef main => \ndef count(cfg):\n    cfg.nodes = torch.cuda.device_count()\n\ncount(args)\n\ndef main
""")
def test_what_holds_by_itself_or_follows_the_launcher_is_not(line: str, other: str) -> None:
    assert line in SCRIPT
    assert not said(SCRIPT.replace(line, other))


def test_a_switch_that_the_launcher_turns_on_is_not() -> None:
    text = SCRIPT.replace("type=int, default=1", 'action="store_true"').replace(
        "args.nodes > 1", "args.nodes"
    )
    spawned = "\nif args.nodes:\n    torch.multiprocessing.spawn(main)\nelse:\n    main()\n"
    assert said(text) and not said(text.replace("\nmain()\n", spawned))


LAUNCHER = SCRIPT.replace('"--nodes", type=int, default=1', '"--launcher", default="none"').replace(
    "args.nodes > 1", "args.distributed"
)
SET = 'if args.launcher == "none":\n    args.distributed = False\nelse:\n    args.distributed = True\n'


@each_row("""
line => other => is_said
none => none => True
default="none" => default="pytorch" => False
default="none" => choices=["none", "pytorch"], default="none" => False
default="none" => choices=["none", "slurm"], default="none" => True
args.launcher == "none" => "RANK" not in os.environ => False
args.distributed = False => args.distributed = torch.cuda.is_available() => False
""")
def test_a_flag_that_follows_an_option_is_off_with_it(line: str, other: str, is_said: bool) -> None:
    text = LAUNCHER.replace("\n\ndef main", f"\n{SET}\n\ndef main").replace(line, other)
    plain = text.replace("def main():", "if True:").replace("\n\nmain()", "").replace("args.distr", "distr")
    for found in map(said, (text, plain)):
        assert ['`args.launcher == "none"` does not hold' in one for one in found] == [True] * is_said


def test_a_launcher_that_is_chosen_by_an_option_is_torchs_where_processes_are_launched() -> None:
    text = LAUNCHER.replace("\n\ndef main", f"\n{SET}\n\ndef main")
    text = text.replace('"none")', '"none", choices=["none", "pytorch"])')
    after = converted(text)
    assert 'default="pytorch" if int(os.environ.get("WORLD_SIZE", 1)) > 1 else "none",' in after
    assert once_more(after) == after
    assert 'default="none"' in converted(text.replace('"pytorch"', '"mpi"'))


WITHOUT_CUDA = """import os, torch
import torch.distributed as dist
args = object()
args.many = int(os.environ.get("WORLD_SIZE", 1)) > 1
if torch.cuda.is_available():
    args.device = "cuda"
else:
    args.many = False
    args.device = "cpu"
if args.many:
    dist.init_process_group("nccl")
<model>
if args.many:
    model = torch.nn.parallel.DistributedDataParallel(model)
for x, y in DataLoader(data, 4, sampler=DistributedSampler(data) if args.many else None):
    <step loss = model(x).mean()>
"""


def test_a_group_does_not_depend_on_cuda() -> None:
    """Launched on the CPU, each process would train alone, on all rows."""
    assert "    args.many = PartialState().num_processes > 1\n" in converted(WITHOUT_CUDA)
    other = WITHOUT_CUDA.replace("if torch.cuda.is_available():", "if args.first:")
    assert "    args.many = False\n" in converted(other)


ALONE = """import os, torch
import torch.distributed as dist
from torch.utils.data import DataLoader
{above}
dist.init_process_group("nccl", rank=0{given})
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(8, 1), 2, shuffle=True):
    <step model(x).mean()>
print("done")
"""


@each_row("""
above => given => is_one
pass => , world_size=1 => True
dist.barrier() => , world_size=1 => True  # where all must come to
os.environ["WORLD_SIZE"] = "1" => '' => True
if "RANK" not in os.environ: os.environ["WORLD_SIZE"] = "1" => '' => False
os.environ["CUDA_VISIBLE_DEVICES"] = "1" => , world_size=1 => True
os.environ["CUDA_VISIBLE_DEVICES"] = "1" => , world_size=4 => False
""")
def test_what_a_group_of_one_process_does_is_shared(above: str, given: str, is_one: bool) -> None:
    after = converted(ALONE.replace("{above}", above).replace("{given}", given.strip("'")))
    assert ('if "LOCAL_RANK" not in os.environ:' in after) is (is_one and "VISIBLE" in above)
    assert ("inaccelerator.prepare(DataLoader(" in "".join(after.split())) is is_one
    assert ('accelerator.print("done")' in after) is (is_one and above[0] != "d") and once_more(
        after
    ) == after
