"""Which batch is in hand: what is drawn for its rows is drawn by each process for its own."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from crosstrain.data.loader import PreparedLoader
from crosstrain_verify.tracing.batches import LoaderWatch
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> LoaderWatch:
    for kind in (DataLoader, PreparedLoader):
        monkeypatch.setattr(kind, "__iter__", kind.__iter__)  # put back afterwards
    watch = LoaderWatch(lambda: 0, lambda loader, first: nullcontext())
    watch.install()
    return watch


def test_no_batch_is_in_hand_after_a_pass(watch: LoaderWatch) -> None:
    loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4)
    assert [watch.rows for _ in loader] == [4, 4]
    assert watch.rows is None
    for _ in loader:
        break
    assert watch.rows is None


def test_the_outer_batch_is_in_hand_again_after_an_inner_pass(watch: LoaderWatch) -> None:
    outer = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4)
    inner = DataLoader(TensorDataset(torch.ones(6, 2)), batch_size=3)
    for _ in outer:
        assert [watch.rows for _ in inner] == [3, 3]
        assert watch.rows == 4
        for _ in inner:
            break
        assert watch.rows == 4
    assert watch.rows is None


def _steps_first(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([x for x, _ in samples], 1), torch.stack([y for _, y in samples])


def test_the_rows_of_a_batch_may_be_its_second_dimension(watch: LoaderWatch) -> None:
    """Sequences come as (steps, rows): a batch has as many rows as samples were read for it."""
    data = TensorDataset(torch.arange(60.0).view(10, 6), torch.arange(10))
    loader = DataLoader(data, batch_size=4, collate_fn=_steps_first)
    assert [watch.rows for _ in loader] == [4, 4, 2]
    found = [batch.digest for batch in watch.batches]
    assert [watch.rows for _ in DataLoader(data, batch_size=4)] == [4, 4, 2]
    assert [batch.digest for batch in watch.batches[3:]] == found
