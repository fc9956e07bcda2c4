"""Models of which a step trains a part: branches, frozen parts, two models in turns."""

import copy
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.runtime.nets import WEIGHTED, Net, State, data, same
from tests.support.ranks import on_ranks, run_ranks


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor, branch: int) -> Tensor:
        return self.left(x) if branch == 0 else self.right(x)


@on_ranks(2)
def test_ranks_may_use_different_parameters_and_leave_some_unused() -> None:
    accelerator = Accelerator(cpu=True)
    net = Branches()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0, weight_decay=0.1, momentum=0.9)
    net, optimizer = accelerator.prepare(net, optimizer)
    x = torch.ones(1, 2)
    for step in range(4):
        optimizer.zero_grad()
        # Together left, together right, apart, apart the other way round.
        branch = [0, 1, accelerator.process_index, 1 - accelerator.process_index][step]
        accelerator.backward(net(x, branch).sum())
        optimizer.step()
    assert torch.equal(net.never.weight, Branches().never.weight), "what nobody uses must not even decay"
    assert net.never.weight.grad is None
    assert same(copy.deepcopy(net).state_dict(), _branches_alone())


def _branches_alone() -> State:
    net = Branches()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0, weight_decay=0.1, momentum=0.9)
    x = torch.ones(1, 2)
    for pair in ((0, 0), (1, 1), (0, 1), (1, 0)):
        optimizer.zero_grad()
        (sum(net(x, branch).sum() for branch in pair) / 2).backward()
        optimizer.step()
    return net.state_dict()


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


# -- Activation checkpointing, used as often as a rank's own data wants it ---------------------------------


class Deep(nn.Module):
    """Its gradients fill two buckets; the first one, with `wide`, starts before the backward pass is over."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(2, 2)
        self.wide = nn.Linear(600, 600)

    def again(self, x: Tensor) -> Tensor:
        return x + self.wide(x.mean().expand(1, 600)).mean()


def _batch(rank: int, step: int) -> Tensor:
    return torch.randn(4, 2, generator=torch.Generator().manual_seed(10 * step + rank))


def _loss(model: Deep, x: Tensor, times: int, reentrant: bool | None) -> Tensor:
    x = model.first(x)
    for _ in range(times):
        x = model.again(x) if reentrant is None else checkpoint(model.again, x, use_reentrant=reentrant)
    return x.square().mean()


def _checkpointed(reentrant: bool, times: list[list[int]], plain: bool) -> list[list[float]]:
    accelerator = Accelerator(cpu=True)
    model = Deep()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    rank = accelerator.process_index
    for step, each in enumerate(times):
        loss = _loss(model, _batch(rank, step), each[rank], reentrant)
        loss.backward() if plain else accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return [value.flatten().tolist()[:600] for value in model.state_dict().values()]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("times", [[[2, 2]], [[1, 2], [3, 1]], [[0, 0], [1, 3]]], ids=str)
def test_ranks_may_checkpoint_differently_often(times: list[list[int]], reentrant: bool, plain: bool) -> None:
    """It hung: the rank that came twice to a parameter started one collective more than the other."""
    model = Deep()
    for step, each in enumerate(times):
        model.zero_grad()
        sum(_loss(model, _batch(rank, step), each[rank], None) / 2 for rank in range(2)).backward()
        with torch.no_grad():
            for param in model.parameters():
                param -= 0.1 * (0 if param.grad is None else param.grad)
    expected = [value.flatten()[:600] for value in model.state_dict().values()]
    for state in run_ranks(_checkpointed, 2, reentrant, times, plain):
        for value, right in zip(state, expected, strict=True):
            assert torch.allclose(torch.tensor(value), right, atol=1e-6)


# -- Models that are more than a plain module: TorchScript, classes that watch their subclasses ------------


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).tanh()


def _scripted(kind: str, precision: str) -> tuple[State, str]:
    accelerator = Accelerator(cpu=True, mixed_precision=precision, gradient_accumulation_steps=2)
    model: Any = Plain()
    if kind == "script":
        model = torch.jit.script(model)
    elif kind == "trace":
        model = torch.jit.trace(model, torch.ones(3, 2))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    torch.manual_seed(accelerator.process_index)
    for _ in range(4):
        with accelerator.accumulate(model):
            out = model(torch.randn(3, 2))
            assert out.dtype == torch.float32
            accelerator.backward(out.square().mean())
            optimizer.step()
            optimizer.zero_grad()
    return {name: one.clone() for name, one in accelerator.get_state_dict(model).items()}, str(type(model))


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_a_torchscript_model_trains_like_its_module(kind: str, precision: str) -> None:
    """`prepare` raised AttributeError: TorchScript's modules keep their children, forward and hooks elsewhere."""
    (plain, _), _ = run_ranks(_scripted, 2, "plain", precision)
    for state, name in run_ranks(_scripted, 2, kind, precision):
        assert same(plain, state, 1e-6 if precision == "no" else 1e-3) and list(plain) == list(state)
        kinds = {"script": torch.jit.RecursiveScriptModule, "trace": torch.jit.TopLevelTracedModule}
        assert name == str(kinds[kind])


_REGISTERED: list[str] = []


class Meta(type):
    def __new__(cls, name: str, bases: Any, body: Any, *, label: str, **options: Any) -> Any:
        _REGISTERED.append(label)
        return super().__new__(cls, name, bases, body, **options)

    def __init__(cls, name: str, bases: Any, body: Any, *, label: str, **options: Any) -> None:
        super().__init__(name, bases, body)


class Registered(Plain, metaclass=Meta, label="base"):
    def __init_subclass__(cls, *, size: int, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.size = size


class Model(Registered, metaclass=Meta, label="model", size=3):
    pass


@on_ranks(2)
def test_a_class_that_watches_its_subclasses_sees_none_of_ours() -> None:
    """`prepare` raised TypeError: `__init_subclass__` and metaclasses may want arguments, and may keep a registry."""
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(Model())
    with model.no_sync():  # ours: the class of the object is another one
        accelerator.backward(model(torch.ones(1, 2)).sum())
    assert isinstance(model, Model) and model.__class__ is Model and model.size == 3
    assert _REGISTERED == ["base", "model"] and type(copy.deepcopy(model)) is Model
