"""What a run records of its optimizers and of the lines that it prints."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
import torch
from crosstrain_verify.tracing.printing import Output
from crosstrain_verify.tracing.tracked_optimizers import TrackedOptimizers


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
