"""Models that are more than a plain module: TorchScript, classes that watch their subclasses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from torch import Tensor, nn

from tests.runtime.nets import State, same
from tests.support.ranks import run_ranks


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
    return {name: value.clone() for name, value in accelerator.get_state_dict(model).items()}, str(
        type(model)
    )


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_a_torchscript_model_trains_like_its_module(kind: str, precision: str) -> None:
    """`prepare` raised AttributeError: TorchScript's modules keep their children, forward and hooks elsewhere."""
    (plain, _), _ = run_ranks(_scripted, 2, "plain", precision)
    for state, name in run_ranks(_scripted, 2, kind, precision):
        assert same(plain, state, 1e-6 if precision == "no" else 1e-3) and list(plain) == list(state)
        assert name == str(
            torch.jit.RecursiveScriptModule if kind == "script" else torch.jit.TopLevelTracedModule
        )


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


def _registered() -> tuple[list[str], bool]:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(Model())
    with model.no_sync():  # ours: the class of the object is another one
        accelerator.backward(model(torch.ones(1, 2)).sum())
    kept = isinstance(model, Model) and model.__class__ is Model and model.size == 3
    return _REGISTERED, kept and type(copy.deepcopy(model)) is Model


def test_a_class_that_watches_its_subclasses_sees_none_of_ours() -> None:
    """`prepare` raised TypeError: `__init_subclass__` and metaclasses may want arguments, and may keep a registry."""
    assert run_ranks(_registered, 2) == [(["base", "model"], True)] * 2
