"""Training on four devices is training on one: losses and weights of plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
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


def test_an_optimizer_that_would_train_nothing_is_refused() -> None:
    with pytest.raises(RuntimeError, match="4 of the 4 parameters of the SGD are not on xla:0"):
        on_xla(stray_optimizer)


def stray_optimizer() -> None:
    Accelerator().prepare(optimizer("sgd", model("mlp")))
