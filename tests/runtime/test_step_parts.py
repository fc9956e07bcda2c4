"""Models of which a step trains a part: branches, frozen parts, two models in turns."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from torch import Tensor, nn

from tests.runtime.nets import WEIGHTED, Net, State, data, same
from tests.support.ranks import run_ranks


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor, branch: int) -> Tensor:
        return self.left(x) if branch == 0 else self.right(x)


def _gan() -> tuple[State, State]:
    accelerator = Accelerator(cpu=True, **WEIGHTED)
    torch.manual_seed(0)
    maker, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    judge.eval()  # batch statistics are another matter; the running ones are used
    maker, judge, of_maker, of_judge, loader = accelerator.prepare(
        maker,
        judge,
        torch.optim.SGD(maker.parameters(), lr=0.1),
        torch.optim.SGD(judge.parameters(), lr=0.1),
        data(),
    )
    for (x,) in loader:
        of_judge.zero_grad()
        fake = maker(x)
        accelerator.backward(judge(fake.detach()).mean() - judge(x).mean())
        of_judge.step()
        of_maker.zero_grad()
        accelerator.backward(-judge(fake).mean())
        of_maker.step()
    return copy.deepcopy(maker).state_dict(), copy.deepcopy(judge).state_dict()


def test_a_loss_that_does_not_reach_one_of_two_models() -> None:
    (alone,) = run_ranks(_gan, 1)
    for maker, judge in run_ranks(_gan, 2):
        assert same(alone[0], maker)
        assert same(alone[1], judge)


def _branches() -> list[Any]:
    accelerator = Accelerator(cpu=True)
    net = Branches()
    net, optimizer = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), lr=1.0, weight_decay=0.1, momentum=0.9)
    )
    x = torch.ones(1, 2)
    for step in range(4):
        optimizer.zero_grad()
        # Together left, together right, apart, apart the other way round.
        branch = [0, 1, accelerator.process_index, 1 - accelerator.process_index][step]
        accelerator.backward(net(x, branch).sum())
        optimizer.step()
    untouched = torch.equal(net.never.weight, Branches().never.weight)
    return [untouched, net.never.weight.grad is None, copy.deepcopy(net).state_dict()]


def _branches_alone() -> State:
    net = Branches()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0, weight_decay=0.1, momentum=0.9)
    x = torch.ones(1, 2)
    for pair in ((0, 0), (1, 1), (0, 1), (1, 0)):
        optimizer.zero_grad()
        (sum(net(x, branch).sum() for branch in pair) / 2).backward()
        optimizer.step()
    return net.state_dict()


def test_ranks_may_use_different_parameters_and_leave_some_unused() -> None:
    for untouched, no_gradient, state in run_ranks(_branches, 2):
        assert untouched, "a parameter that nobody uses must not even decay"
        assert no_gradient
        assert same(state, _branches_alone())


def _by_turns(through_accelerator: bool) -> State:
    """One part after another is trained: all of it frozen at first, then parts that have no parameter in common."""
    accelerator = Accelerator(cpu=True, **WEIGHTED if through_accelerator else {})
    net = Net().requires_grad_(False)
    torch.manual_seed(1)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05), data())
    for part in (net.head, net.encoder, net.decoder):
        net.requires_grad_(False)
        part.requires_grad_(True)
        for (x,) in loader:
            optimizer.zero_grad()
            if through_accelerator:
                accelerator.backward(net.loss(x))
            else:
                net.loss(x).backward()
            optimizer.step()
    return copy.deepcopy(net).state_dict()


@pytest.mark.parametrize("through_accelerator", [True, False], ids=["accelerator", "bare backward"])
def test_parts_trained_by_turns(through_accelerator: bool) -> None:
    """Once nothing that was hooked at first arrived any more, and the ranks kept gradients of their own."""
    (alone,) = run_ranks(_by_turns, 1, through_accelerator)
    first, second = run_ranks(_by_turns, 2, through_accelerator)
    assert same(first, second)
    assert same(alone, first) or not through_accelerator
