"""What a run records of its optimizers and of the lines that it prints."""

import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from crosstrain.data.loader import PreparedLoader
from crosstrain_verify.tracing.batches import LoaderWatch
from crosstrain_verify.tracing.printing import Output
from crosstrain_verify.tracing.tracked_optimizers import TrackedOptimizers
from torch.utils.data import DataLoader, TensorDataset


def test_a_gradient_counts_where_it_is_there_and_by_its_largest_share() -> None:
    first, second = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = torch.optim.SGD([first, second], lr=0.1)
    tracked = TrackedOptimizers.nothing()
    first.grad = torch.ones(2)
    for squares in ([1.0, 3.0], [1e-20, 1.0]):  # in the last step the first one's gradient is rounding error
        tracked.before_step(optimizer)
        tracked.saw([first, second], squares)
    parameters, _ = tracked.parameters(Counter({0: 2}))
    assert [one.signal for one in parameters] == pytest.approx([0.5, 1.0])
    assert [(one.trained, one.steps) for one in parameters] == [(2, 2), (0, 2)]


def test_every_line_of_a_write_has_its_place(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as file, Output(os.dup(file.fileno())) as output:
        for text in ("one\ntwo\n", "three", "\n"):
            output.write(text)
        assert len(output.printed) == 3
    assert (tmp_path / "output").read_text().splitlines() == ["one", "two", "three"]


# -- Which batch is in hand: what is drawn for its rows is drawn by each process for its own ---------------


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
    assert [watch.rows for _ in DataLoader(data, batch_size=4, collate_fn=_steps_first)] == [4, 4, 2]
    found = [batch.digest for batch in watch.batches]
    assert [watch.rows for _ in DataLoader(data, batch_size=4)] == [4, 4, 2]
    assert [batch.digest for batch in watch.batches[3:]] == found
