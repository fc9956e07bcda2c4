"""CT102: the Accelerator is made before random numbers are drawn, wherever the script draws them."""

from __future__ import annotations

import pytest

from .support import check_invariants, migrate

SCRIPT = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{top}

def made():
    x = torch.randn(48, 3)
    return TensorDataset(x, x.sum(1, keepdim=True))


class Trainer:
    def __init__(self, model, data):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(data, batch_size=8)

    def fit(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main():
    {start}
    Trainer(nn.Linear(3, 1), data).fit()


if __name__ == "__main__":
    main()
"""


def after(top: str = "", start: str = "pass") -> list[str]:
    """The lines of the conversion."""
    text = SCRIPT.format(top=top, start=start)
    result = migrate(text)
    check_invariants(text, result)
    assert not result.refused, result.findings
    return [line.strip() for line in result.after.split("\n")]


def test_data_drawn_at_the_top_of_the_file() -> None:
    lines = after(top="data = made_early = TensorDataset(torch.randn(48, 3), torch.ones(48, 1))")
    assert lines.index("accelerator = Accelerator()") + 1 == next(
        number for number, line in enumerate(lines) if line.startswith("data = made_early")
    )


def test_data_drawn_before_a_trainer_is_made() -> None:
    lines = after(start="data = made()")
    assert lines.index("accelerator = Accelerator()") + 1 == lines.index("data = made()")
    assert "Trainer(accelerator, nn.Linear(3, 1), data).fit()" in lines


def test_noise_in_the_shape_of_another_tensor_is_drawn_as_well() -> None:
    drawn = "data = TensorDataset(torch.rand_like(torch.ones(48, 3)), torch.ones(48, 1))"
    lines = after(start=drawn)
    assert lines.index("accelerator = Accelerator()") + 1 == lines.index(drawn)


@pytest.mark.parametrize(
    "start",
    [
        "torch.manual_seed(0)\n    data = made()",
        "data = TensorDataset(torch.ones(48, 3), torch.ones(48, 1))",
        "g = torch.Generator().manual_seed(0)\n    data, _ = torch.utils.data.random_split("
        "TensorDataset(torch.ones(48, 3), torch.ones(48, 1)), [40, 8], generator=g)",
    ],
    ids=["seeded", "nothing drawn", "a generator of its own"],
)
def test_what_is_the_same_everywhere_moves_nothing(start: str) -> None:
    assert "self.accelerator = Accelerator()" in after(start=start)


def test_a_seed_under_a_condition_is_none() -> None:
    start = "if torch.cuda.is_available():\n        torch.manual_seed(0)\n    data = made()"
    lines = after(start=start)
    assert lines.index("accelerator = Accelerator()") < lines.index("data = made()")


def test_a_seed_of_another_library_is_none() -> None:
    lines = after(top="import random", start="random.seed(0)\n    data = made()")
    assert lines.index("accelerator = Accelerator()") < lines.index("data = made()")


def test_where_the_device_depends_on_options_that_are_not_known_yet() -> None:
    text = SCRIPT.format(top="", start="data = made()").replace(
        '"cuda" if torch.cuda.is_available()', '"cuda" if model.training'
    )
    result = migrate(text)
    assert result.refused and not result.changed
    assert any("before the Accelerator can exist" in finding.reason for finding in result.findings)
