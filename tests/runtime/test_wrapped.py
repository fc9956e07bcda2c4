"""A model that the script has wrapped is adopted: DistributedDataParallel averages, DataParallel has one device."""

import copy
import io
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from crosstrain.step.model import _keep_to_one_device
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from tests.runtime.nets import WEIGHTED, Net, State, averagings, data, same
from tests.support.ranks import on_ranks, run_ranks


def _train(wrapped: bool, steps: int, options: dict[str, Any], sums: bool = False) -> State:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps, **options)
    model: Any = DistributedDataParallel(Net()) if wrapped else Net()
    optimizer = SGD(model.parameters(), 0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data(30))
    calls = _count_averagings(model) if wrapped else []
    for (x,) in loader:
        with accelerator.accumulate(model):
            loss = (model(x) - x).square()
            accelerator.backward(loss.sum() if sums else loss.mean())
            optimizer.step()
            optimizer.zero_grad()
    if wrapped:
        assert isinstance(model, DistributedDataParallel)
        assert len(calls) == -(-len(loader) // steps)  # one bucket, once a window
        assert accelerator.unwrap_model(model) is model.module
    return {name: value.clone() for name, value in accelerator.get_state_dict(model).items()}


def _count_averagings(model: DistributedDataParallel) -> list[int]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    calls: list[int] = []

    def hook(state: Any, bucket: Any) -> Any:
        calls.append(bucket.index())
        return allreduce_hook(state, bucket)

    hook.__annotations__.clear()  # torch checks them, and these are strings
    model.register_comm_hook(None, hook)
    return calls


@pytest.mark.parametrize("steps", [1, 2])
def test_it_trains_like_any_other_model(steps: int) -> None:
    """And like plain DistributedDataParallel: averaged once, in an accumulation window at its end."""
    zero, one = run_ranks(_train, 2, True, steps, {})
    assert list(zero) == list(Net().state_dict())  # no `module.`
    assert all(torch.equal(zero[name], one[name]) for name in zero)
    assert same(run_ranks(_train, 2, False, steps, {})[0], zero)


def test_losses_are_scaled_for_it() -> None:
    (alone,) = run_ranks(_train, 1, False, 1, WEIGHTED)
    assert all(same(alone, state) for state in run_ranks(_train, 2, True, 1, WEIGHTED))
    options = {"loss_reduction": "sum", **WEIGHTED}
    (alone,) = run_ranks(_train, 1, False, 1, options, True)
    assert all(same(alone, state, 1e-5) for state in run_ranks(_train, 2, True, 1, options, True))


@on_ranks(2)
def test_no_sync_precision_and_files(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model: Any = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    model = accelerator.prepare(model)
    seen = []
    model.module.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    x = torch.tensor([[float(accelerator.process_index + 1)]])
    weight = model.module.weight
    with accelerator.no_sync(model):
        accelerator.backward(model(x).mean())
        assert weight.grad.item() == accelerator.process_index + 1
    accelerator.backward(model(x).mean())
    assert (weight.grad.item(), seen[0], model(x).dtype) == (3.0, True, torch.float32)
    accelerator.save_model(model, tmp_path / "model.pt")
    accelerator.wait_for_everyone()
    assert sorted(torch.load(tmp_path / "model.pt")) == ["weight"]


def _data_parallel(inner: bool) -> tuple[State, str]:
    accelerator = Accelerator(cpu=True)
    wrapper: Any = nn.DataParallel(Net())
    wrapper.device_ids = [0, 1]  # as where there are two GPUs
    model = nn.Sequential(wrapper) if inner else wrapper
    optimizer = SGD(model.parameters(), 0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data(30))
    for (x,) in loader:
        accelerator.backward((model(x) - x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    names = next(iter(model.state_dict()))
    model.load_state_dict(model.state_dict())
    return {name: value.clone() for name, value in wrapper.module.state_dict().items()}, names


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("inner", [False, True])
def test_data_parallel_computes_on_one_device_and_keeps_its_names(world: int, inner: bool) -> None:
    plain = run_ranks(_train, world, False, 1, {})
    for expected, (state, name) in zip(plain, run_ranks(_data_parallel, world, inner), strict=True):
        assert all(torch.equal(expected[key], state[key]) for key in expected)
        assert name == ("0.module.encoder.weight" if inner else "module.encoder.weight")


class Cuts(nn.DataParallel):
    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        return super().scatter(inputs[0], kwargs, device_ids)


@pytest.mark.parametrize(
    ("world", "device", "left", "kind"),
    [
        (1, "cuda:0", [0, 1], nn.DataParallel),
        (1, "cuda:1", [], nn.DataParallel),
        (1, "cpu", [], nn.DataParallel),
        (2, "cuda:0", [], nn.DataParallel),
        (2, "cuda:1", [1], Cuts),  # which makes what its module takes
        (2, "cpu", [], Cuts),
    ],
)
def test_one_process_keeps_the_devices_of_data_parallel(
    world: int, device: str, left: list[int], kind: type[nn.DataParallel[Any]]
) -> None:
    """A file that is converted may be used by a script that is not, which computes on all GPUs in one process."""
    wrapper: Any = kind(Net())
    wrapper.device_ids, wrapper.src_device_obj = [0, 1], torch.device("cuda:0")  # as where there are two GPUs
    comm: Any = SimpleNamespace(world=world, rank=0, device=torch.device(device))
    _keep_to_one_device(nn.Sequential(wrapper), comm)
    assert wrapper.device_ids == left


class _AveragesItself(nn.Module):
    """As apex's wrapper does, until it is told not to."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.averages = module, True

    def disable_allreduce(self) -> None:
        self.averages = False


@on_ranks(1, 2)
def test_a_wrapper_of_apex_averages_no_second_time() -> None:
    accelerator = Accelerator(cpu=True)
    wrapper = accelerator.prepare(_AveragesItself(nn.Linear(1, 1)))
    assert wrapper.averages is (accelerator.num_processes == 1) and "module.weight" in wrapper.state_dict()


@on_ranks(2)
def test_a_wrapped_model_may_have_frozen_weights() -> None:
    """The script wrapped a model whose first weights never train: a fixed table of positions."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    model = DistributedDataParallel(model)
    model, optimizer = accelerator.prepare(model, SGD(model.parameters(), 0.1))
    accelerator.backward(model(torch.full((3, 2), 1.0 + accelerator.process_index)).mean())
    optimizer.step()
    weights = torch.cat([param.detach().flatten() for param in model.parameters()])
    first, second = accelerator.gather(weights[None])
    torch.testing.assert_close(first, second)


# -- What a script asks of its DDP model, the prepared one answers (contract decision 38) ------------------

MICRO_STEPS = 8


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def _batches(rank: int, world: int) -> list[Tensor]:
    rows = torch.randn(3 * MICRO_STEPS, 6, 3, generator=torch.Generator().manual_seed(1))
    return [batch.tensor_split(world)[rank] for batch in rows]


def _micro_steps(compiled: bool, fsdp: bool) -> tuple[list[Tensor], list[int]]:
    """The loop of a script that accumulates in the way of nanoGPT."""
    begun = averagings()
    options: Any = {"fsdp_plugin": FullyShardedDataParallelPlugin()} if fsdp else {}
    accelerator = Accelerator(cpu=True, **options)
    model: Any = Tower()
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
            accelerator.backward(model(next(batches)).square().mean() / MICRO_STEPS)
        assert model.require_backward_grad_sync is True
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        counts.append(len(begun) - before)
    return list(accelerator.get_state_dict(model).values()), counts


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


class Own(Tower):
    """Has members of these names itself."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(1, 1)

    def join(self, words: list[str]) -> str:
        return " ".join(words)

    no_sync = "mine"


@on_ranks(1, 2)
def test_members_are_nowhere_else() -> None:
    accelerator = Accelerator(cpu=True)
    plain = Tower()
    model: Any = accelerator.prepare(Tower())
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
        assert type(other) is Tower and not hasattr(other, "module")
    assert torch.jit.script(model)(torch.ones(1, 3)).shape == (1, 1)
    with model.no_sync():
        assert model.require_backward_grad_sync is (accelerator.num_processes == 1)
    own: Any = accelerator.prepare(Own())
    assert isinstance(own.module, nn.Linear) and own.join(["a", "b"]) == "a b" and own.no_sync == "mine"
    accelerator.free_memory()
    assert not hasattr(model, "module") and "require_backward_grad_sync" not in dir(model)
