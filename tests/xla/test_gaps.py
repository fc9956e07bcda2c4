"""Inference mode, checkpoints of the author's own, and a script's own collectives, on XLA as elsewhere."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from crosstrain import Accelerator, PartialState
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from tests.xla.support import on_four_devices


@torch.inference_mode()
def evaluated(model: nn.Module, rows: Tensor) -> Tensor:
    return model(rows.flatten(1)).argmax(1)


@on_four_devices
def test_inference_mode_and_files_work(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    plain = evaluated(model, torch.ones(2, 2, 2)).tolist()
    accelerator = Accelerator()
    model = accelerator.prepare(model)
    rows = torch.ones(2, 2, 2, device=accelerator.device)
    assert evaluated(model, rows).tolist() == plain
    with torch.inference_mode():
        assert not model(rows.flatten(1)).requires_grad
        with torch.inference_mode(False):
            assert model(rows.flatten(1)).requires_grad
    assert torch.is_grad_enabled()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    wanted = model.weight.detach().cpu().clone()
    with torch.no_grad():
        model.weight.zero_()
    model.load_state_dict(torch.load(tmp_path / "weights.pt", map_location=accelerator.device))
    assert torch.equal(model.weight.detach().cpu(), wanted)
    assert model.weight.device.type == "xla"


@on_four_devices
def test_a_script_that_distributes_itself_is_a_group_of_one() -> None:
    accelerator = Accelerator()
    assert not dist.is_initialized()
    PartialState(group_of_one=True)
    mine = torch.tensor([1.0, 2.0], device=accelerator.device)
    dist.all_reduce(mine)
    parts = [torch.zeros_like(mine)]
    dist.all_gather(parts, mine)
    dist.broadcast(mine, 0)
    dist.barrier()
    objects: list[Any] = [None]
    dist.all_gather_object(objects, "here")
    assert (mine.tolist(), parts[0].tolist(), objects) == ([1.0, 2.0], [1.0, 2.0], ["here"])
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1).to(accelerator.device))
    model(mine[None]).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.0, 2.0]]  # type: ignore[union-attr]
    assert list(DistributedSampler(range(3), shuffle=False)) == [0, 1, 2]  # type: ignore[arg-type, var-annotated]


@on_four_devices
def test_a_model_moves_that_was_used_on_the_cpu() -> None:
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    shown = model(torch.ones(1, 2))  # its graph holds the parameters
    model = model.to(accelerator.device)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model[0].weight.detach().cpu().clone()
    accelerator.backward(model(torch.ones(1, 2, device=accelerator.device)).sum())
    optimizer.step()
    assert shown.device.type == "cpu"
    assert model[1].weight is model[0].weight
    assert not torch.equal(before, model[0].weight.detach().cpu())
