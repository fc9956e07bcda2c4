"""What a flag of the author's decides about his group, and what is said about one that is off."""

import pytest

from .converting import notes

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


@pytest.mark.parametrize(
    ("default", "sets", "is_said"),
    [
        ("none", "True", True),
        ("pytorch", "True", False),
        ("none", "torch.cuda.device_count() > 1", False),
    ],
)
def test_what_the_script_sets_by_an_option_is_named_by_the_option(
    default: str, sets: str, is_said: bool
) -> None:
    by = f'parser.add_argument("--launcher", default="{default}")\nargs = parser.parse_args()\n'
    by += f'if args.launcher == "none":\n    args.shared = False\nelse:\n    args.shared = {sets}\n'
    text = SCRIPT.replace("args = parser.parse_args()\n", by).replace("args.nodes > 1", "args.shared")
    assert [reason for reason in said(text) if '`not (args.launcher == "none")`' in reason] == said(text)
    assert bool(said(text)) is is_said


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("type=int, default=1", "type=int, default=2"),
        ("args.nodes > 1", "dist.get_world_size() > 1"),
        ('"--nodes", type=int, default=1', '"--nodes", type=int, default=int(os.environ["WORLD_SIZE"])'),
        ("DistributedSampler(data) if args.nodes > 1 else None", "DistributedSampler(data)"),
        ("\n\ndef main", "\nargs.nodes = torch.cuda.device_count()\n\ndef main"),
        (
            "\n\ndef main",
            "\ndef count(cfg):\n    cfg.nodes = torch.cuda.device_count()\n\ncount(args)\n\ndef main",
        ),
    ],
)
def test_what_holds_by_itself_or_follows_the_launcher_is_not(line: str, other: str) -> None:
    assert line in SCRIPT
    assert not said(SCRIPT.replace(line, other))
