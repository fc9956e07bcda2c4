"""Parameters that only an optimizer knows, in checkpoints and beside a sharded model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from torch import nn
from torch.nn import functional as F

from tests.runtime.loose import FEATURES, STEPS, Run, Values, batch
from tests.support.numbers import steady_adamw
from tests.support.ranks import run_ranks


def _saved(folder: str, resumes: bool, window: bool) -> tuple[Values, list[str]]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2 if window else 1)
    run = Run(accelerator)
    prepared = accelerator.prepare(nn.Linear(FEATURES, FEATURES))
    params = [*prepared.parameters(), *run.model.parameters()]
    optimizer = run.sgd(params)

    def step() -> None:
        with accelerator.accumulate():
            out = run.model.net(prepared(batch()[run.rows])) * run.model.scale
            accelerator.backward(out.square().mean())
            optimizer.step()
            optimizer.zero_grad()

    names = []
    if resumes:
        accelerator.load_state(folder)
    else:
        for _ in range(3):
            step()
        accelerator.save_state(folder)
        names = sorted(path.name for path in Path(folder).iterdir())
    for _ in range(3):
        step()
    return [param.detach() for param in params], names


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("world", [1, 2])
def test_saved_and_resumed_with_the_optimizer(tmp_path: Path, world: int, window: bool) -> None:
    folder = str(tmp_path / "state")
    first = run_ranks(_saved, world, folder, False, window)
    assert "loose_parameters.bin" in first[0][1]
    for (went_on, _), (resumed, _) in zip(first, run_ranks(_saved, world, folder, True, window), strict=True):
        torch.testing.assert_close(went_on, resumed, rtol=0, atol=0)


def _sharded(optimizer_first: bool, one_optimizer: bool, kind: str, folder: str) -> tuple[Values, Values]:
    """The values after a training, and what the last step made of a checkpoint before it."""
    accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(state_dict_type=kind))
    run = Run(accelerator)
    if run.rank == 0:
        torch.manual_seed(0)
    model: Any = nn.Linear(FEATURES, 1)
    sharded, loose = list(model.parameters()), [run.model.scale, run.model.table]
    groups = [[*sharded, *loose]] if one_optimizer else [sharded, loose]
    optimizers = [steady_adamw(group, lr=0.1) for group in groups]
    if optimizer_first:
        optimizers = [accelerator.prepare(optimizer) for optimizer in optimizers]
    model = accelerator.prepare(model)
    optimizers = [accelerator.prepare(optimizer) for optimizer in optimizers]
    norms = []

    def step() -> None:
        out = model(batch()[run.rows] * F.embedding(run.rows, run.model.table)) * run.model.scale
        accelerator.backward(out.square().mean() * 10)
        norms.append(accelerator.clip_grad_norm_([*model.parameters(), *loose], 0.3))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(STEPS):
        step()
    accelerator.save_state(folder)
    step()
    after = [*norms, *(param.detach().clone() for param in loose)]
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        after += [value.clone() for value in state.values()]
    accelerator.load_state(folder)
    step()
    assert norms[-1] == norms[-2]
    return after, [param.detach() for param in loose]


@pytest.mark.parametrize("optimizer_first", [False, True])
@pytest.mark.parametrize("one_optimizer", [False, True])
def test_beside_a_sharded_model_they_stay_whole(
    tmp_path: Path, optimizer_first: bool, one_optimizer: bool
) -> None:
    case = optimizer_first, one_optimizer
    ((alone, _),) = run_ranks(_sharded, 1, *case, "FULL_STATE_DICT", str(tmp_path / "alone"))
    for kind in ("FULL_STATE_DICT", "SHARDED_STATE_DICT"):
        ranks = run_ranks(_sharded, 2, *case, kind, str(tmp_path / kind))
        # Float32 sums of a few terms in another order, over four steps.
        torch.testing.assert_close(ranks[0][0], alone, rtol=1e-4, atol=1e-5)
        for _, resumed in ranks:
            went_on = ranks[0][0][STEPS + 1 : STEPS + 3]
            torch.testing.assert_close(resumed, went_on, rtol=0, atol=0)
