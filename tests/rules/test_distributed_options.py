"""CT303: options that say how to distribute, and the branches that depend on them."""

from __future__ import annotations

from .distributed import IMPORTS, INIT, PLAIN, SAMPLING, WORLD, WRAP, distributed
from .support import SLOTS, check_invariants, migrate, script, unwound


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
    result = unwound(case.script)
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
