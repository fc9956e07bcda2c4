"""Training on four devices is training on one: losses and weights of plain PyTorch."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from crosstrain import Accelerator, DistributedType

from tests.xla.support import difference, loader, model, on_xla, optimizer, plain_training


def train(kind: str, opt: str, rows: int, size: int, **options: Any) -> tuple[float, float, float]:
    """The largest differences of losses, parameters and buffers from plain PyTorch."""
    accelerator = Accelerator(**options)
    module = model(kind)
    before = {name: id(param) for name, param in module.named_parameters(remove_duplicate=False)}
    prepared, optim, batches = accelerator.prepare(module, optimizer(opt, module), loader(kind, rows, size))
    assert prepared is module
    assert before == {name: id(param) for name, param in module.named_parameters(remove_duplicate=False)}
    losses = []
    for x, y in batches:
        assert x.device == accelerator.device
        optim.zero_grad()
        loss = F.cross_entropy(module(x), y)
        accelerator.backward(loss)
        optim.step()
        losses.append(loss.item())
    wanted, weights = plain_training(kind, opt, rows, size * (1 if options else 4))
    assert len(losses) == len(wanted)
    worst = max(abs(a - b) for a, b in zip(losses, wanted, strict=True))
    found = accelerator.get_state_dict(module)
    names = {name for name, _ in module.named_buffers()}
    parameters, buffers = (
        difference(
            *(
                {name: state[name] for name in state if (name in names) is wanted}
                for state in (found, weights)
            )
        )
        for wanted in (False, True)
    )
    return worst, parameters, buffers


@pytest.mark.parametrize(
    ("kind", "opt", "rows", "tolerance"),
    [
        ("mlp", "sgd", 32, 1e-6),
        ("mlp", "adamw", 32, 1e-6),
        ("conv", "sgd", 32, 1e-5),
        ("tied", "sgd", 32, 1e-5),
    ],
)
def test_losses_and_weights_are_those_of_plain_torch(
    kind: str, opt: str, rows: int, tolerance: float
) -> None:
    losses, weights, buffers = on_xla(train, kind, opt, rows, 2)
    assert losses < 1e-5
    assert weights < tolerance
    assert buffers < 4 / (8 * 16)  # XLA's running variance is the biased one: 1/N off, over four steps


@pytest.mark.parametrize("rows", [17, 31])
def test_split_batches_with_a_partial_last_one_are_the_same_training(rows: int) -> None:
    losses, weights, _ = on_xla(train_split, rows)
    assert losses < 1e-6
    assert weights < 1e-6


def train_split(rows: int) -> tuple[float, float, float]:
    return train("mlp", "sgd", rows, 8, split_batches=True, even_batches="weighted")


def test_what_a_script_sees() -> None:
    assert on_xla(seen) == {
        "device": "xla",
        "processes": (1, 0, True),
        "replicas": 4,
        "tpu": True,
        "xla": True,
        "rows": [8, 8, 8],
        "steps": 3,
    }


def seen() -> dict[str, Any]:
    accelerator = Accelerator()
    batches = accelerator.prepare(loader("mlp", 19, 2))
    return {
        "device": accelerator.device.type,
        "processes": (accelerator.num_processes, accelerator.process_index, accelerator.is_main_process),
        "replicas": accelerator.num_replicas,
        "tpu": accelerator.distributed_type == DistributedType.TPU,
        "xla": accelerator.distributed_type == DistributedType.XLA,
        "rows": [len(x) for x, _ in batches],
        "steps": len(batches),
    }


def test_batches_are_spread_over_the_devices() -> None:
    label, mask, flag = on_xla(shardings)
    assert "devices=[4" in label
    assert "replicated" in mask or not mask
    assert flag == "text"


def shardings() -> tuple[str, str, str]:
    from crosstrain.comm.xla.api import internals

    accelerator = Accelerator()
    rows = [
        {"x": torch.ones(6), "y": torch.tensor(1), "name": "text"},
    ] * 8

    def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "x": torch.stack([item["x"] for item in items]),
            "y": torch.stack([item["y"] for item in items]),
            "mask": torch.ones(6, 6),
            "name": "text",
        }

    batches = accelerator.prepare(torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=collate))  # type: ignore[arg-type]
    [batch] = list(batches)
    spec = internals._get_xla_sharding_spec
    assert batch["y"].shape == (8,)
    return spec(batch["y"]), spec(batch["mask"]), batch["name"]


def test_where_parameters_cannot_be_swapped_ties_and_optimizers_are_put_together_again() -> None:
    assert on_xla(ties) == (True, True)


def ties() -> tuple[bool, bool]:
    accelerator = Accelerator()
    module = model("tied")
    watched = weakref.ref(module.layer.linear1.weight)  # which forbids swapping it
    optim = optimizer("adamw", module)
    accelerator.prepare(module, optim)
    assert watched() is not module.layer.linear1.weight
    held = {id(param) for group in optim.param_groups for param in group["params"]}
    return (
        module.out.weight is module.embed.weight,
        held == {id(param) for param in module.parameters()},
    )


def test_an_optimizer_that_would_train_nothing_is_refused() -> None:
    with pytest.raises(RuntimeError, match="4 of the 4 parameters of the SGD are not on xla:0"):
        on_xla(stray_optimizer)


def stray_optimizer() -> None:
    Accelerator().prepare(optimizer("sgd", model("mlp")))
