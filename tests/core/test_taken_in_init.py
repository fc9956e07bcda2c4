"""An attribute whose iterator `__init__` makes: it is prepared behind what binds it, and there alone."""

from pathlib import Path

import pytest

from .converting import converted
from .running import launched, plain

SCRIPT = """
<torch>
def make_loader(rows):
    data = TensorDataset(torch.arange(2.0 * rows).view(rows, 2), torch.zeros(rows, 1))
    return DataLoader(data, batch_size=1), 10
class Trainer:
    def __init__(self):
        self.steps = 4
        self.loader, self.classes = make_loader(6)
        self.batches = iter(self.loader)
        self.model = nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
    def batch(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)
    def train(self):
        for step in range(self.steps):
            x, y = self.batch()
            loss = F.mse_loss(self.model(x), y)
            <self.step loss>
            print("= step", step, int(x[0, 0]) // 2)
Trainer().train()
"""
PREPARE = "self.loader = accelerator.prepare(self.loader)"


def test_it_is_prepared_behind_what_binds_it(tmp_path: Path) -> None:
    after = converted(SCRIPT)
    lines = [line.strip() for line in after.splitlines()]
    at = lines.index(PREPARE)
    assert lines[at - 1 : at + 2 : 2] == [
        "self.loader, self.classes = make_loader(6)",
        "self.batches = iter(self.loader)",
    ]
    assert after.count(PREPARE) == 1, "not in every step again"
    assert plain(tmp_path, after) == [f"= step {i} {i}" for i in range(4)]
    assert launched(tmp_path, after) == ["= step 0 0", "= step 1 2", "= step 2 4", "= step 3 0"]


def test_what_another_method_binds_too_is_prepared_there_as_well() -> None:
    again = "    def batch(self):\n        if self.steps == 2:\n            self.loader, _ = make_loader(4)\n"
    after = converted(SCRIPT.replace("    def batch(self):\n", again))
    assert after.count("accelerator.prepare(self.loader)") == 2


FILLED = """
<torch>
from torch.utils.data import DataLoader
class Endless:
    def __init__(self, loader):
        self.loader, self.batches = loader, None
    def next(self):
        try:
            return next(self.batches)
        except TypeError:
            self.batches = iter(self.loader)
            return next(self.batches)
    {length}
def endless():
    loader = DataLoader(rows, batch_size=2)
    return Endless(loader)
def fill(x, loader):
    found = loader.next()
    {fills}
loaders, x, model = dict(train=endless(), test=endless()), torch.zeros(2, 3), nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    fill(x, loaders["train"])
    <step model(x).mean()>
"""

LENGTH = "\n    def __len__(self):\n        return len(self.loader)"


@pytest.mark.parametrize(
    ("length", "fills", "made"),
    [
        (LENGTH, "x.data.copy_(found)", [PREPARE]),
        ("", "x.data.copy_(found)", ["self.batches = iter(accelerator.prepare(self.loader))"]),
        (LENGTH, "print(found)", []),  # it shows a batch, and the training reads something else
    ],
)
def test_a_function_that_writes_a_batch_into_what_it_got(length: str, fills: str, made: list[str]) -> None:
    after = converted(FILLED.format(length=length, fills=fills))
    assert [line.strip() for line in after.splitlines() if "prepare(" in line and "model" not in line] == made
