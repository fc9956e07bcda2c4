"""Ranks whose rates or weights part are told so, all together; nobody else is, and nobody waits."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from crosstrain.local_sgd import LocalSGD
from crosstrain.step.replica_consistency import checksums
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import errors_of, on_ranks, run_ranks

ROWS, BATCH = 16, 2


class Training:
    """A model with batch normalisation, and what it takes to train it."""

    def __init__(self, rows: int = ROWS, shuffle: bool = False, **options: Any) -> None:
        self.accelerator = Accelerator(cpu=True, **options)
        torch.manual_seed(0)
        self.model: Any = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        data = TensorDataset(torch.randn(rows, 3, generator=torch.Generator().manual_seed(1)))
        self.loader: Any = DataLoader(data, BATCH, shuffle=shuffle)
        self.optimizer: Any = SGD(self.model.parameters(), 0.1)
        ready = self.accelerator.prepare(self.model, self.optimizer, self.loader)
        self.model, self.optimizer, self.loader = ready
        self.alone = self.accelerator.process_index == 1

    def step(self, batch: Any) -> None:
        with self.accelerator.accumulate(self.model):
            self.accelerator.backward(self.model(batch[0]).square().mean())
            self.optimizer.step()
            self.optimizer.zero_grad()

    def epoch(self) -> None:
        for batch in self.loader:
            self.step(batch)

    def spoil(self, by: float = 0.01) -> None:
        """Rank 1 changes one weight."""
        if self.alone:
            with torch.no_grad():
                self.model[2].weight += by


def _spoiled(what: str) -> str:
    training = Training()
    training.epoch()
    if what == "weights":
        training.spoil()
    elif what == "one number":
        if training.alone:
            with torch.no_grad():
                training.model[0].weight[3, 2] += 1e-3
    elif training.alone:
        ExponentialLR(training.optimizer, 0.5).step()
    with pytest.raises(RuntimeError) as error:
        training.epoch()
    return str(error.value)


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_ranks_that_drift_are_told_in_the_next_pass() -> None:
    for message in run_ranks(_spoiled, 2, "weights"):
        assert "weights have drifted apart before the last batch of epoch 1 over TensorDataset" in message
        assert "Sequential.2.weight are not the same on rank 1 as on rank 0" in message
        assert f"{__file__}:" in message
    for message in run_ranks(_spoiled, 2, "one number"):
        assert "Sequential.0.weight" in message
    for message in run_ranks(_spoiled, 2, "rates"):
        assert "learning rates differ" in message
        assert "rank 0 has [0.1]; rank 1 has [0.05]" in message
    assert len(set(run_ranks(_spoiled, 3, "weights"))) == 1


def _saved(folder: str, spoiled: bool) -> None:
    training = Training()
    training.epoch()
    if spoiled:
        training.spoil()
    training.accelerator.save_state(folder)


def test_ranks_that_drifted_save_nothing(tmp_path: Path) -> None:
    for message in errors_of(_saved, 2, str(tmp_path / "spoiled"), True):
        assert "before save_state to" in message
        assert "Sequential.2.weight" in message
    assert not (tmp_path / "spoiled").exists()
    assert errors_of(_saved, 2, str(tmp_path / "whole"), False) == ["no error"] * 2


@pytest.mark.parametrize(
    "case", ["shuffled", "LocalSGD", "evaluates alone", "breaks off alone", "statistics"]
)
@on_ranks(2)
def test_what_ranks_may_do_apart(case: str) -> None:
    """What rank 1 does apart from the others, and may; the training ends."""
    training = Training(shuffle=case == "shuffled")
    accelerator, model, loader = training.accelerator, training.model, training.loader
    other = accelerator.prepare(DataLoader(TensorDataset(torch.ones(6, 3)), BATCH))
    if case == "LocalSGD":
        with LocalSGD(accelerator, model, local_sgd_steps=3) as local:
            for _ in range(2):
                for batch in loader:
                    training.step([batch[0] + accelerator.process_index])
                    local.step()
    elif case == "evaluates alone":
        for number, batch in enumerate(loader):
            training.step(batch)
            if training.alone and number == 1:
                assert [len(rows) for (rows,) in other] == [2, 2]
    elif case == "breaks off alone":
        for number, batch in enumerate(loader):
            training.step(batch)
            if training.alone and number == len(loader) - 1:
                break
    elif case == "statistics":
        training.epoch()
        if training.alone:
            model[1].running_mean += 1
    training.epoch()
    accelerator.wait_for_everyone()


def _rounding() -> list[str]:
    training = Training()
    training.epoch()
    training.spoil(1e-7)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training.epoch()
        training.epoch()
    return [str(warning.message) for warning in caught]


def test_rounding_is_no_error() -> None:
    first, second = run_ranks(_rounding, 2)
    assert second == []
    (said,) = first
    assert "differ by rounding (Sequential." in said


def _sharded(spoiled: bool) -> None:
    """Each rank has weights of its own, and one rate."""
    training = Training(fsdp_plugin=FullyShardedDataParallelPlugin())
    if spoiled and training.alone:
        training.optimizer.param_groups[0]["lr"] = 0.3
    training.epoch()


def test_sharded_weights_are_not_compared_and_their_rates_are() -> None:
    assert errors_of(_sharded, 2, False) == ["no error"] * 2
    for message in errors_of(_sharded, 2, True):
        assert "rank 0 has [0.1]; rank 1 has [0.3]" in message


def test_the_bits_of_a_tensor_are_added_whatever_its_strides() -> None:
    for one in (torch.ones(1).expand(9), torch.ones(5, 2)[:, 1], torch.ones(1).as_strided((1,), (0,))):
        assert checksums([one]) == checksums([one.clone(memory_format=torch.contiguous_format)])
