"""Evaluation on several devices: every sample once, in order."""

from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.xla.support import on_four_devices

ROWS = 19


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.arange(ROWS))


class Whole(Dataset[Tensor]):
    """Returns whole batches; the loader is told batch_size=None."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.arange(ROWS)[index * 5 : index * 5 + 5]

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize(
    ("even", "split"), [(True, False), (False, False), ("weighted", False), (True, True), ("weighted", True)]
)
@on_four_devices
def test_every_sample_is_gathered_once_in_order(even: Any, split: bool) -> None:
    accelerator = Accelerator(even_batches=even, split_batches=split)
    size = 8 if split else 2
    text: list[str] = []
    tokens = 0
    shapes = set()
    for (batch,) in accelerator.prepare(DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=size)):
        shapes.add(tuple(batch.shape))
        tokens += len(accelerator.gather_for_metrics(batch.repeat_interleave(3)))
        text += accelerator.gather_for_metrics([str(row) for row in batch.tolist()])
    assert (tokens, text) == (3 * ROWS, [str(row) for row in range(ROWS)])
    assert even is not True or len(shapes) == 1
    for loader in (
        DataLoader(torch.arange(ROWS), batch_size=size),  # type: ignore[arg-type]
        DataLoader(Stream(), batch_size=size),
        DataLoader(Whole(), batch_size=None),
    ):
        batches = accelerator.prepare(loader)
        rows = [row for batch in batches for row in accelerator.gather_for_metrics(batch).tolist()]
        assert rows == list(range(ROWS))
