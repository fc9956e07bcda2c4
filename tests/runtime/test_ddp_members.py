"""What a script asks of its DDP model, the prepared one answers (contract decision 38)."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from torch import Tensor, nn
from torch.optim import SGD

from tests.runtime.nets import averagings
from tests.support.ranks import run_ranks

MICRO_STEPS = 8


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


def _batches(rank: int, world: int) -> list[Tensor]:
    rows = torch.randn(3 * MICRO_STEPS, 6, 3, generator=torch.Generator().manual_seed(1))
    return [batch.tensor_split(world)[rank] for batch in rows]


def _micro_steps(compiled: bool, fsdp: bool) -> tuple[list[Tensor], list[int]]:
    """The loop of a script that accumulates in the way of nanoGPT."""
    begun = averagings()
    options: Any = {"fsdp_plugin": FullyShardedDataParallelPlugin()} if fsdp else {}
    accelerator = Accelerator(cpu=True, **options)
    model: Any = Net()
    if compiled:
        model = torch.compile(model, backend="eager")
    optimizer = SGD(model.parameters(), 0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    batches = iter(_batches(accelerator.process_index, accelerator.num_processes))
    counts = []
    for _ in range(3):
        before = len(begun)
        for micro_step in range(MICRO_STEPS):
            model.require_backward_grad_sync = micro_step == MICRO_STEPS - 1
            loss = model(next(batches)).square().mean() / MICRO_STEPS
            accelerator.backward(loss)
        assert model.require_backward_grad_sync is True
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        counts.append(len(begun) - before)
    state = accelerator.get_state_dict(model)
    return list(state.values()), counts


@pytest.mark.parametrize("how", ["plain", "compiled", "sharded"])
def test_micro_steps_average_once(how: str) -> None:
    case = (how == "compiled", how == "sharded")
    ((alone, _),) = run_ranks(_micro_steps, 1, *case)
    for world in (2, 3):
        ranks = run_ranks(_micro_steps, world, *case)
        # Float32 sums of 48 rows in another order.
        torch.testing.assert_close(ranks[0][0], alone, rtol=1e-5, atol=1e-6)
        if how != "sharded":
            assert all(counts == [1, 1, 1] for _, counts in ranks)
            torch.testing.assert_close(ranks[1][0], ranks[0][0], rtol=0, atol=0)


def unwrapped(model: Any) -> Any:
    """As timm and transformers unwrap."""
    return unwrapped(model.module) if hasattr(model, "module") else model


def _unwrapped_in_a_loop(model: Any) -> Any:
    while hasattr(model, "module"):
        model = model.module
    return model


class Own(Net):
    """Has members of these names itself."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(1, 1)

    def join(self, words: list[str]) -> str:
        return " ".join(words)

    no_sync = "mine"


def _members() -> None:
    accelerator = Accelerator(cpu=True)
    plain = Net()
    model: Any = accelerator.prepare(Net())
    assert model.module is model and hasattr(model, "module")
    for _ in range(2):
        raw = model.module if hasattr(model, "module") else model
        assert raw is model
    assert unwrapped(model) is _unwrapped_in_a_loop(model) is model
    assert model.static_graph is False
    model.static_graph = True
    model._set_static_graph()
    assert model.static_graph is True
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in model.named_modules()] == [name for name, _ in plain.named_modules()]
    assert vars(model).keys() == vars(plain).keys()
    copied = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (*copied, torch.load(file, weights_only=False)):
        assert type(other) is Net and not hasattr(other, "module")
    assert torch.jit.script(model)(torch.ones(1, 3)).shape == (1, 1)
    with model.no_sync():
        assert model.require_backward_grad_sync is (accelerator.num_processes == 1)
    own: Any = accelerator.prepare(Own())
    assert isinstance(own.module, nn.Linear) and own.join(["a", "b"]) == "a b" and own.no_sync == "mine"
    accelerator.free_memory()
    assert not hasattr(model, "module") and "require_backward_grad_sync" not in dir(model)


def test_members_are_nowhere_else() -> None:
    for world in (1, 2):
        run_ranks(_members, world)


def _joined(active_only: bool) -> tuple[Tensor, Tensor]:
    """The last rank has two batches, and the other one has one; each gradient is the sum of a row."""
    accelerator = Accelerator(cpu=True)
    loose = nn.Parameter(torch.zeros(()))
    model: Any = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    model, optimizer, other = accelerator.prepare(model, SGD(model.parameters(), 1.0), SGD([loose], 1.0))
    with model.join(divide_by_initial_world_size=not active_only):
        for _ in range(2 if accelerator.is_last_process else 1):
            accelerator.backward(model(torch.ones(1, 1)).sum() + loose)
            optimizer.step()
            other.step()
            optimizer.zero_grad()
            other.zero_grad()
    return model.weight.detach(), loose.detach()


def test_join() -> None:
    ((weight, loose),) = run_ranks(_joined, 1, False)
    assert weight == loose == -2
    for active_only, expected in ((False, -1.5), (True, -2.0)):
        for weight, loose in run_ranks(_joined, 2, active_only):
            assert weight == loose == expected
