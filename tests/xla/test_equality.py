"""Training on four devices is training on one: losses and weights of plain PyTorch."""

from typing import Any

import pytest
import torch.nn.functional as F
from crosstrain import Accelerator, DistributedType

from tests.xla.support import difference, loader, model, on_four_devices, optimizer, plain_training


@pytest.mark.parametrize(
    ("kind", "opt", "rows", "tolerance", "split"),
    [
        ("mlp", "sgd", 32, 1e-6, False),
        ("mlp", "adamw", 32, 1e-6, False),
        ("conv", "sgd", 32, 1e-5, False),
        ("tied", "sgd", 32, 1e-5, False),
        ("mlp", "sgd", 17, 1e-6, True),  # with a partial last batch
        ("mlp", "sgd", 31, 1e-6, True),
    ],
)
@on_four_devices
def test_losses_and_weights_are_those_of_plain_torch(
    kind: str, opt: str, rows: int, tolerance: float, split: bool
) -> None:
    """Losses, parameters and buffers are as near to plain PyTorch's."""
    options: dict[str, Any] = {"split_batches": True, "even_batches": "weighted"} if split else {}
    accelerator = Accelerator(**options)
    module = model(kind)
    before = {name: id(param) for name, param in module.named_parameters(remove_duplicate=False)}
    plain = loader(kind, rows, 8 if split else 2)
    prepared, optim, batches = accelerator.prepare(module, optimizer(opt, module), plain)
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
    wanted, weights = plain_training(kind, opt, rows, 8)
    assert losses == pytest.approx(wanted, abs=1e-6 if split else 1e-5)
    found = accelerator.get_state_dict(module)
    # XLA's running variance is the biased one: 1/N off, over four steps.
    for name, _ in module.named_buffers():
        assert difference({name: found.pop(name)}, {name: weights.pop(name)}) < 4 / (8 * 16)
    assert difference(found, weights) < tolerance


@on_four_devices
def test_what_a_script_sees() -> None:
    accelerator = Accelerator()
    batches = accelerator.prepare(loader("mlp", 19, 2))
    assert (accelerator.device.type, accelerator.num_replicas) == ("xla", 4)
    assert (accelerator.num_processes, accelerator.process_index, accelerator.is_main_process) == (1, 0, True)
    assert accelerator.distributed_type == DistributedType.TPU == DistributedType.XLA
    assert ([len(x) for x, _ in batches], len(batches)) == ([8, 8, 8], 3)


@on_four_devices
def test_an_optimizer_that_would_train_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="4 of the 4 parameters of the SGD are not on xla:0"):
        Accelerator().prepare(optimizer("sgd", model("mlp")))
