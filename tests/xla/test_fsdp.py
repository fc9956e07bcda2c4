"""Sharded training on XLA: every chip keeps its rows of the parameters and of what the optimizer knows of them."""

from pathlib import Path
from typing import Any

import pytest
import torch.nn.functional as F
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from torch import Tensor

from tests.xla.support import difference, loader, model, on_four_devices, on_xla, optimizer, plain_training

BY_ROWS = "{devices=[4,1]0,1,2,3}"


def test_a_sharded_model_trains_as_plain_torch_without_compiling_anew_and_resumes(tmp_path: Path) -> None:
    """The embedding has 11 rows, which four chips cannot share evenly, and is the output layer, too."""
    whole = on_xla(train, tmp_path / "state", None)
    losses, weights = plain_training("tied", "sgd", 32, 8, epochs=2)
    assert whole["losses"] == pytest.approx(losses, abs=1e-4)
    assert difference(whole["weights"], weights) < 5e-3  # Adam normalises the noise of zero gradients
    assert set(whole["placed"]) == {BY_ROWS}
    assert whole["compiled"] == 0
    resumed = on_xla(train, None, tmp_path / "state")
    assert resumed["losses"] == pytest.approx(whole["losses"][4:], abs=1e-6)
    assert difference(resumed["weights"], whole["weights"]) < 1e-6
    assert set(resumed["placed"]) == {BY_ROWS}


def train(save_to: Path | None, load_from: Path | None) -> dict[str, Any]:
    """Two epochs of four steps, saved after the first; or the second, loaded."""
    accelerator = Accelerator(split_batches=True, fsdp_plugin=FullyShardedDataParallelPlugin())
    module = model("tied")
    optim = optimizer("sgd", module)
    module, optim, batches = accelerator.prepare(module, optim, loader("tied", 32, 8))
    if load_from is not None:
        accelerator.load_state(str(load_from))
    losses, before = [], 0
    for epoch in range(0 if load_from is None else 1, 2):
        before = compiled(accelerator)
        for x, y in batches:
            optim.zero_grad()
            loss = F.cross_entropy(module(x), y)
            accelerator.backward(loss)
            optim.step()
            losses.append(loss.item())
        if epoch == 0 and save_to is not None:
            accelerator.save_state(str(save_to))
    after = compiled(accelerator)
    held = [param for param in module.parameters() if param.dim() == 2]
    state = [value for param in held for value in optim.state[param].values() if value.dim() == 2]
    return {
        "losses": losses,
        "weights": accelerator.get_state_dict(module),
        "placed": [placement(tensor) for tensor in [*held, *state]],
        "compiled": after - before,
    }


def placement(tensor: Tensor) -> str:
    import torch_xla

    return str(torch_xla._XLAC._get_xla_sharding_spec(tensor))


def compiled(accelerator: Accelerator) -> int:
    return int(accelerator._comm.watch.report().compiled)  # type: ignore[attr-defined]


@on_four_devices
def test_what_the_compiler_decides_is_refused_by_name() -> None:
    said = "cpu_offload where XLA shards the model is not part of crosstrain"
    with pytest.raises(NotImplementedError, match=said):
        Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(cpu_offload=True))
