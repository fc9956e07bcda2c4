"""Several processes compute what one process computes on the global batch."""

import copy
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, DistributedDataParallelKwargs
from crosstrain.utils.dataclasses import DDPCommunicationHookType
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.runtime.nets import WEIGHTED, Net, State, data, same
from tests.support.numbers import steady_adamw
from tests.support.ranks import on_ranks, run_ranks


class _Curved(torch.optim.SGD):
    """Divides each gradient by the size of its second derivative, seen along a random vector."""

    def step(self, closure: Any = None) -> Any:
        params: list[Any] = [p for p in self.param_groups[0]["params"] if p.grad is not None]
        grads = [p.grad for p in params]
        seen = (
            torch.autograd.grad(grads, params, [torch.rand_like(p) for p in params])
            if grads[0].grad_fn
            else ()
        )
        for p, curve in zip(params, seen, strict=bool(seen)):
            p.grad = p.grad.detach() / (1 + curve.abs())
        return super().step(closure)


def _by_method(method: str, world_options: dict[str, Any]) -> State:
    accelerator = Accelerator(cpu=True, **world_options)
    net = Net()
    torch.manual_seed(1)
    of = _Curved if method == "second" else steady_adamw
    net, optimizer, loader = accelerator.prepare(net, of(net.parameters()), data())
    for _ in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            if method == "call":
                loss = (net(x) - x).square().mean()
            elif method == "forward":
                loss = (net.forward(x) - x).square().mean()
            elif method == "loss":
                loss = net.loss(x)
            elif method == "parts":
                loss = (net.decode(net.encode(x)) + net.head(x)[:, :4] - x).square().mean()
            else:  # two forward passes, one backward
                loss = (net.loss(x) + net.loss(x.clone())) / 2
            accelerator.backward(loss, create_graph=method == "second")
            if method != "second":
                accelerator.clip_grad_norm_(net.parameters(), 0.05)
            optimizer.step()
    assert net.device == "mine"
    return copy.deepcopy(net).state_dict()


@pytest.mark.parametrize("method", ["call", "forward", "loss", "parts", "twice", "second"])
def test_whatever_method_makes_the_loss_the_gradient_is_averaged(method: str) -> None:
    """A subclass of DDP trains ``model.loss(x).backward()`` unsynchronised, without a word."""
    (alone,) = run_ranks(_by_method, 1, method, {})
    for state in run_ranks(_by_method, 2, method, WEIGHTED):
        assert list(state) == list(Net().state_dict())
        assert same(alone, state)


def _bounded(kind: str, world_options: dict[str, Any]) -> State:
    accelerator = Accelerator(cpu=True, **world_options)
    torch.manual_seed(1)
    table = nn.Embedding(12, 4, max_norm=None if kind == "unbounded" else 0.5, sparse=kind == "sparse")
    optimizer = torch.optim.SGD(table.parameters(), lr=0.5)
    rows = DataLoader(TensorDataset(torch.arange(12)), batch_size=4)
    table, optimizer, rows = accelerator.prepare(table, optimizer, rows)
    for _ in range(3):
        for (row,) in rows:
            optimizer.zero_grad()
            accelerator.backward((table(row) - 1).square().mean())
            optimizer.step()
    return copy.deepcopy(table).state_dict()


@pytest.mark.parametrize("kind", ["dense", "sparse", "unbounded"])
def test_rows_with_a_largest_norm_are_shortened_on_all_processes(kind: str) -> None:
    """The forward pass of an embedding with `max_norm` shortens only the rows that its own batch has."""
    (alone,) = run_ranks(_bounded, 1, kind, {})
    assert (alone["weight"].norm(dim=1).max() > 1) == (kind == "unbounded")
    for state in run_ranks(_bounded, 2, kind, WEIGHTED):
        assert same(alone, state)


@on_ranks(2)
def test_a_graph_that_uses_shortened_rows_is_gone_through_twice() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    table = accelerator.prepare(nn.Embedding(12, 4, max_norm=0.5))
    logits = table(torch.arange(12)[accelerator.process_index :: 2]) @ table.weight.T
    accelerator.backward(logits.mean(), retain_graph=True)
    accelerator.backward(logits.square().mean())
    assert float(table.weight.norm(dim=1).max()) < 0.51


@pytest.mark.parametrize("world", [3, 4])
def test_any_number_of_processes_and_any_batch_gives_the_one_process_training(world: int) -> None:
    """6 + 4 rows over 3 processes, 6 + 4 over 4: some ranks hold one row, the last batch is uneven."""
    (alone,) = run_ranks(_by_method, 1, "call", {})
    states = run_ranks(_by_method, world, "call", WEIGHTED)
    assert all(same(alone, state) for state in states)
    assert all(torch.equal(states[0][k], s[k]) for s in states for k in s)


def _twice_through_batch_norm() -> list[list[float]]:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(accelerator.process_index)
    judge = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    judge, optimizer = accelerator.prepare(judge, torch.optim.SGD(judge.parameters(), lr=0.1))
    torch.manual_seed(10 + accelerator.process_index)
    accelerator.backward(judge(torch.randn(8, 4)).mean() - judge(torch.randn(8, 4)).square().mean())
    own = judge[1].running_mean.tolist()
    optimizer.step()
    return [own, judge[1].running_mean.tolist(), judge[0].weight.flatten().tolist()]


def test_buffers_are_rank_0s_after_a_step_and_a_second_forward_is_allowed() -> None:
    """Under DDP a model with batch normalisation that is called twice before one backward crashes."""
    zero, one = run_ranks(_twice_through_batch_norm, 2)
    assert zero[0] != one[0]
    assert zero[1] == one[1] == zero[0]
    assert zero[2] == one[2]


class _Scaled(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 1)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale


@on_ranks(2)
def test_the_buffers_of_a_network_may_be_sent_between_its_forward_and_backward() -> None:
    accelerator = Accelerator(cpu=True)
    one, two = _Scaled(), nn.Linear(4, 1)
    one, two, step = accelerator.prepare(one, two, torch.optim.SGD(two.parameters(), lr=0.1))
    x = torch.randn(8, 4)
    accelerator.backward(one(x).mean())
    loss = one(x).square().mean()
    accelerator.backward(two(x).mean())
    step.step()
    accelerator.backward(loss)


def _sums(reduction: str) -> State:
    accelerator = Accelerator(cpu=True, loss_reduction=reduction, **WEIGHTED)
    net = Net()
    torch.manual_seed(1)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01), data(7))
    for (x,) in loader:
        optimizer.zero_grad()
        accelerator.backward((net(x) - x).square().sum())
        optimizer.step()
    return copy.deepcopy(net).state_dict()


def test_sums_stay_sums() -> None:
    """The average of per-rank sums is off by the number of processes; the last batch has one row for two."""
    (alone,) = run_ranks(_sums, 1, "sum")
    assert all(same(alone, state) for state in run_ranks(_sums, 2, "sum"))
    with pytest.raises(RuntimeError, match=r"loss_reduction=.sum."):
        run_ranks(_sums, 2, "mean")


def _sums_by_default() -> State:
    accelerator = Accelerator(cpu=True, loss_reduction="sum", split_batches=True)
    net = Net()
    torch.manual_seed(1)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01), data(7))
    total = 0.0
    for (x,) in loader:
        optimizer.zero_grad()
        loss = (net(x) - x).square().sum()
        accelerator.backward(loss)
        optimizer.step()
        total += accelerator.gather_for_metrics(loss).sum().item()
    return {**copy.deepcopy(net).state_dict(), "total": torch.tensor(total)}


def test_sums_are_never_completed_with_rows_that_count_twice() -> None:
    """Rows that fill up the last batch would be summed up twice, in the gradient and in the printed total."""
    (alone,) = run_ranks(_sums_by_default, 1)
    assert all(same(alone, state) for state in run_ranks(_sums_by_default, 2))


def _accumulated(world_options: dict[str, Any], style: str) -> State:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3, **world_options)
    net = Net()
    torch.manual_seed(1)
    optimizer = steady_adamw(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    net, optimizer, loader, scheduler = accelerator.prepare(net, optimizer, data(40), scheduler)
    for _ in range(2):
        for index, (x,) in enumerate(loader):
            if style == "accumulate":
                with accelerator.accumulate(net):
                    optimizer.zero_grad()
                    accelerator.backward(net.loss(x))
                    accelerator.clip_grad_norm_(net.parameters(), 0.05)
                    optimizer.step()
                    scheduler.step()
            else:  # by hand: every micro-batch is averaged, which is exact too
                accelerator.backward(net.loss(x))
                if (index + 1) % 3 == 0 or index + 1 == len(loader):
                    accelerator.clip_grad_norm_(net.parameters(), 0.05)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
    state = copy.deepcopy(net).state_dict()
    state["lr"] = torch.tensor(scheduler.get_last_lr())
    return state


@pytest.mark.parametrize("style", ["accumulate", "by hand"])
def test_accumulation_equals_one_process(style: str) -> None:
    (alone,) = run_ranks(_accumulated, 1, {}, style)
    assert all(same(alone, state) for state in run_ranks(_accumulated, 2, WEIGHTED, style))


def _hook(kind: str) -> State:
    handler = DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType(kind))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler], **WEIGHTED)
    net = Net()
    torch.manual_seed(1)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05), data())
    for (x,) in loader:
        optimizer.zero_grad()
        accelerator.backward(net.loss(x))
        optimizer.step()
    return copy.deepcopy(net).state_dict()


@pytest.mark.parametrize(("kind", "tolerance"), [("fp16", 1e-3), ("bf16", 1e-2), ("power_sgd", 1e-5)])
def test_communication_hooks_compress_the_gradients(kind: str, tolerance: float) -> None:
    (alone,) = run_ranks(_hook, 1, kind)
    states = run_ranks(_hook, 2, kind)
    assert all(same(alone, state, tolerance) for state in states)
    assert all(torch.equal(states[0][k], states[1][k]) for k in alone)


def _bare_backward(reentrant: bool) -> list[Any]:
    accelerator = Accelerator(cpu=True)
    net = Net()
    net = accelerator.prepare(net)
    x = torch.full((2, 4), float(accelerator.process_index + 1), requires_grad=True)
    if reentrant:
        hidden = torch.utils.checkpoint.checkpoint(net.encode, x, use_reentrant=True)
        hidden = torch.utils.checkpoint.checkpoint(torch.tanh, hidden, use_reentrant=True)
        net.decode(hidden).square().mean().backward()
    else:
        net.loss(x).backward()
    return [None if p.grad is None else p.grad.tolist() for p in net.parameters()]


@pytest.mark.parametrize("reentrant", [False, True])
def test_loss_backward_without_the_accelerator_is_averaged_too(reentrant: bool) -> None:
    """Also when only a part of the model is used, and with the inner backward passes of checkpointing."""
    zero, one = run_ranks(_bare_backward, 2, reentrant)
    assert zero == one
    net = Net()
    total = torch.zeros(())
    for rank in range(2):
        x = torch.full((2, 4), float(rank + 1))
        total = total + (net.decode(net.encode(x).tanh()).square().mean() if reentrant else net.loss(x)) / 2
    total.backward()
    for got, param in zip(zero, net.parameters(), strict=True):
        assert (got is None) == (param.grad is None)
        if got is not None:
            assert torch.allclose(torch.tensor(got), param.grad, atol=1e-6)


def _no_sync() -> list[Any]:
    accelerator = Accelerator(cpu=True)
    net = nn.Linear(1, 1, bias=False)
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.0))
    x = torch.tensor([[float(accelerator.process_index + 1)]])
    seen: list[Any] = []

    def note() -> None:
        seen.append(net.weight.grad.item())

    with accelerator.no_sync(net):
        accelerator.backward(net(x).sum())
    note()  # local
    accelerator.backward(net(x).sum())
    note()  # both, averaged
    net.zero_grad()
    with accelerator.no_sync(net):
        first = net(x).sum()
    accelerator.backward(first)
    note()  # made under no_sync: local
    net.zero_grad()
    with accelerator.no_sync(net):
        late = net(x).sum()
    accelerator.backward(late)
    optimizer.step()  # a step never sees local gradients
    note()
    return seen


def test_no_sync() -> None:
    zero, one = run_ranks(_no_sync, 2)
    assert zero == [1.0, 3.0, 1.0, 1.5]
    assert one == [2.0, 3.0, 2.0, 1.5]


@on_ranks(2)
def test_a_forward_never_communicates() -> None:
    accelerator = Accelerator(cpu=True)
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net = accelerator.prepare(net)
    net.eval()
    if accelerator.is_main_process:  # DDP would broadcast buffers here, and hang
        with torch.no_grad():
            net(torch.ones(2, 2))
        net(torch.ones(2, 2)).sum()
    accelerator.wait_for_everyone()
