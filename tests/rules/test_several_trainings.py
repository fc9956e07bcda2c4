"""CT604 and CT602: a function that trains for several loaders, and numbers beside the loss."""

from __future__ import annotations

import pytest
from crosstrain_migrate.results import Severity

from .as_one import check_two_are_one
from .support import check_invariants, migrate, unbroken

FIT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

cuda = torch.cuda.is_available()
torch.manual_seed(0)
x, y = torch.randn(24, 4), torch.randint(3, (24,))
images = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
pairs = DataLoader([((a, b), []) for a, b in zip(x, x.flip(0))], batch_size=8, shuffle=True)


class Near(nn.Module):
    def forward(self, first, second):
        return (first - second).pow(2).mean(), len(first)


class Twins(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, first, second):
        return self.net(first), self.net(second)


def fit(model, loader, criterion, optimizer):
    for step, (data, target) in enumerate(loader):
        target = target if len(target) > 0 else None
        if not type(data) in (tuple, list):
            data = (data,)
        if cuda:
            data = tuple(d.cuda() for d in data)
            if target is not None:
                target = target.cuda()
        optimizer.zero_grad()
        outputs = model(*data)
        if type(outputs) not in (tuple, list):
            outputs = (outputs,)
        if target is not None:
            outputs += (target,)
        found = criterion(*outputs)
        loss = found[0] if type(found) in (tuple, list) else found
        {step}
        if type(found) in (tuple, list):
            print(step * len(data[0]), found[1])


net = nn.Linear(4, 3)
twins = Twins(nn.Linear(4, 3))
for_images = torch.optim.SGD(net.parameters(), lr=0.1)
for_pairs = torch.optim.SGD(twins.parameters(), lr=0.1)
fit(net, images, nn.CrossEntropyLoss(), for_images)
fit(twins, pairs, Near(), for_pairs)
weights = [p.tolist() for m in (net, twins) for p in m.parameters()]
"""
ALWAYS = "loss.backward()\n        optimizer.step()"
ONLY_SOME = "if loader is images:\n            loss.backward()\n            optimizer.step()"
AFTER_OTHERS = (
    "if loader is not images:\n            continue\n        loss.backward()\n        optimizer.step()"
)


def test_a_function_that_trains_on_every_batch_of_two_loaders_is_converted() -> None:
    """A number that cannot be gathered is no reason to refuse where no loader is one of an evaluation."""
    result = check_two_are_one(FIT.replace("{step}", ALWAYS), printed=False)
    assert "stay local to each process" in " ".join(f.reason for f in result.findings)
    assert "reduce(found[1]" not in result.after


@pytest.mark.parametrize("step", [ONLY_SOME, AFTER_OTHERS])
def test_one_that_trains_on_some_of_them_is_refused(step: str) -> None:
    """What it says of the others may be an evaluation's number."""
    text = FIT.replace("{step}", step)
    result = migrate(text)
    check_invariants(text, result)
    assert result.refused
    assert {f.rule for f in result.findings if f.severity is Severity.REFUSED} == {"CT604"}


GUARDED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(4, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8).long()), batch_size=4)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
hint = None
{moves}
print(hint)
"""


@pytest.mark.parametrize(
    ("moves", "kept"),
    [
        ("if hint is not None:\n    hint = hint.cuda()", "if hint is not None:\n    hint = hint.to(accelerator.device)"),
        ("hint = hint.cuda() if hint is not None else hint", "if hint is not None else hint"),
        ("if torch.cuda.is_available():\n    hint = torch.ones(2).cuda()", "hint = torch.ones(2).to(accelerator.device)"),
    ],
)  # fmt: skip
def test_a_test_for_something_to_move_is_no_test_for_a_gpu(moves: str, kept: str) -> None:
    text = GUARDED.replace("{moves}", moves)
    result = migrate(text)
    check_invariants(text, result)
    assert kept in unbroken(result.after)
