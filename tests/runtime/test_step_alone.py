"""One process is bit-identical to plain PyTorch: same batches, same random stream, same weights."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, GradientAccumulationPlugin, ProfileKwargs
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Augments with the global generator, as many data sets do."""

    def __len__(self) -> int:
        return 13

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.arange(4.0) * (index + 1) / 10 + torch.randn(4) * 0.1, torch.tensor([float(index)])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dim = 512
        self.one = nn.Linear(4, 8)
        self.two = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(nn.functional.dropout(self.one(x).relu(), 0.3, self.training))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return (self(x) - y).square().mean()


def build() -> tuple[Net, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, DataLoader[Any]]:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    return net, optimizer, scheduler, DataLoader(Noisy(), batch_size=4, shuffle=True)


def test_weights_equal_plain_torch_bit_for_bit() -> None:
    """accelerate reads one batch ahead, which moves the data's random stream ahead of dropout's."""
    net, optimizer, scheduler, loader = build()
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            net.loss(x, y).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    plain = copy.deepcopy(net.state_dict())

    accelerator = Accelerator(cpu=True)
    raw = build()
    net, optimizer, scheduler, loader = accelerator.prepare(*raw)
    assert (net, optimizer, scheduler) == (raw[0], raw[1], raw[2])
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(net.loss(x, y))
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    assert scheduler.get_last_lr() == [0.1 * 0.5**6]
    for name, value in net.state_dict().items():
        assert torch.equal(value, plain[name]), name


@pytest.mark.parametrize("order", ["zero_grad first", "zero_grad last"])
def test_zero_grad_may_stand_first_or_last(order: str) -> None:
    """accelerate honours a zero_grad at the start of the last micro-batch: the weight moves by -0.25, not -1."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    weight = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(weight.weight)
    optimizer = torch.optim.SGD(weight.parameters(), lr=1.0)
    weight, optimizer = accelerator.prepare(weight, optimizer)
    for _ in range(8):
        with accelerator.accumulate(weight):
            if order == "zero_grad first":
                optimizer.zero_grad()
            accelerator.backward(weight(torch.ones(1, 1)).sum())
            optimizer.step()
            if order == "zero_grad last":
                optimizer.zero_grad()
    assert weight.weight.item() == -2.0


@pytest.mark.parametrize(("scale", "moves"), [(False, [-1.0, -0.5]), (True, [-1.0, -1.0])])
def test_last_short_window(scale: bool, moves: list[float]) -> None:
    """6 batches in windows of 4: the second window has 2. Dividing by 4 is Accelerate's way; by 2 is the option."""
    plugin = GradientAccumulationPlugin(num_steps=4, scale_last_window=scale)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=1.0), DataLoader(torch.ones(6, 1), batch_size=1)
    )
    seen = []
    for _ in range(2):
        for x in loader:
            with accelerator.accumulate(model):
                before = model.weight.item()
                accelerator.backward(model(x).sum())
                optimizer.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    seen.append(model.weight.item() - before)
    assert seen == moves * 2


def test_prepared_objects_stay_what_they_were() -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    net, optimizer, scheduler, _ = build()
    keys, name = list(net.state_dict()), repr(net)
    assert accelerator.prepare(net, optimizer, scheduler) == (net, optimizer, scheduler)
    assert accelerator.prepare(net, optimizer, scheduler) == (net, optimizer, scheduler)
    assert isinstance(net, Net) and type(net) in (Net,) and type(net) not in {nn.Module: 1, nn.Linear: 2}
    assert net.dim == 512
    net.extra = 7
    assert (net.extra, list(net.state_dict()), repr(net)) == (7, keys, name)
    assert isinstance(scheduler, torch.optim.lr_scheduler.StepLR)
    assert isinstance(optimizer, torch.optim.AdamW)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(twin) is Net
        assert torch.equal(twin.one.weight, net.one.weight)
    assert pickle.loads(pickle.dumps(scheduler)).step_size == 2
    assert set(optimizer.state_dict()) == {"state", "param_groups"}
    assert "step" not in scheduler.state_dict()


def test_a_model_is_not_moved_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Linear, "_apply", None)
    assert Accelerator(cpu=True).prepare(nn.Linear(2, 2)).weight.device.type == "cpu"
    with pytest.raises(TypeError):
        Accelerator(cpu=True).prepare(nn.Linear(2, 2, device="meta"))


def test_a_prepared_model_is_saved_as_the_class_it_is(tmp_path: Path) -> None:
    """A whole model in a file is what the script itself would have written: torch.load needs to trust its class alone."""
    net = Accelerator(cpu=True, mixed_precision="bf16").prepare(nn.Linear(2, 2))
    torch.save(net, tmp_path / "net.pt")
    with torch.serialization.safe_globals([nn.Linear]):
        again = torch.load(tmp_path / "net.pt", weights_only=True)
    assert type(net) is not nn.Linear
    assert net.__class__ is type(again) is nn.Linear
    assert torch.equal(again.weight, net.weight)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"deepspeed_plugin": object()}, NotImplementedError, "FullyShardedDataParallelPlugin"),
        ({"gradient_acumulation_steps": 2}, TypeError, "no option 'gradient_acumulation_steps'"),
        ({"loss_reduction": "max"}, ValueError, "'mean' or 'sum'"),
        ({"mixed_precision": "fp8"}, NotImplementedError, "bf16"),
        ({"gradient_accumulation_steps": -1}, ValueError, "must be 1 or more"),
        ({"even_batches": "wieghted"}, ValueError, "even_batches"),
        ({"kwargs_handlers": [3]}, TypeError, "holds a int"),
        ({"kwargs_handlers": ProfileKwargs()}, TypeError, r"kwargs_handlers=\[ProfileKwargs"),
        ({"rng_types": ["tourch"]}, ValueError, "no random stream 'tourch'"),
        ({"step_with_optimizer": True, "step_scheduler_with_optimizer": False}, ValueError, "one option"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Accelerator(cpu=True, **options).prepare(DataLoader(torch.ones(2)))
