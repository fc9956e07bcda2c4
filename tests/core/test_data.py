"""What a training loop reads, however it comes to its batches: two processes train on one process's batches, each once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ranks import run_ranks

from .support import Trap, check, converted

# Rows are numbered: `seen` holds the numbers of each batch that was trained on.
ROWS = """
from torch.utils.data import TensorDataset

torch.manual_seed(0)
rows = torch.arange(32.0).reshape(32, 1)
targets = torch.zeros(32, 1)
seen = []


def learn(model, optimizer, x, y):
    seen.append(sorted(x.flatten().tolist()))
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MADE = """
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
"""

SO_MANY_STEPS = "while step < 8"
RUN = [
    Trap(
        "a class that keeps iterators of its loaders in a list",
        """
        class Mixed:
            def __init__(self):
                self.loaders = []
                self.iters = []
                for part in (slice(0, 16), slice(16, 32)):
                    loader = DataLoader(TensorDataset(rows[part], targets[part]), batch_size=2, shuffle=True)
                    self.loaders.append(loader)
                    self.iters.append(iter(loader))

            def draw(self):
                parts = []
                for i, it in enumerate(self.iters):
                    try:
                        parts.append(next(it))
                    except StopIteration:
                        self.iters[i] = iter(self.loaders[i])
                        parts.append(next(self.iters[i]))
                xs, ys = zip(*parts)
                return torch.cat(xs), torch.cat(ys)

        source = Mixed()
        step = 0
        while step < 8:
            x, y = source.draw()
            learn(model, optimizer, x, y)
            step += 1
        """,
        (
            "loader = accelerator.prepare(loader)",
            "self.loaders.append(loader)",
            "self.iters.append(iter(loader))",
        ),
        ("prepare(self.loaders[i])",),
    ),
    Trap(
        "a module whose forward trains",
        """
        class Learner(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(1, 1)
                self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.001)

            def forward(self, x, y):
                seen.append(sorted(x.flatten().tolist()))
                loss = F.mse_loss(self.net(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                return loss.item()

        learner = Learner().to("cpu")
        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        for number, (x, y) in enumerate(loader):
            loss = learner(x, y)
        """,
        ("loader = accelerator.prepare(loader)", "for number, (x, y) in enumerate(loader):"),
    ),
    Trap(
        "a loader that is one of two, by the author's flag",
        """
        class Runner:
            def __init__(self, first, second):
                self.first, self.second = first, second
                self.model = nn.Linear(1, 1)
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001)

            def one_pass(self, checks=False):
                loader = self.first if not checks else self.second
                total = 0.0
                for x, y in loader:
                    loss = F.mse_loss(self.model(x), y)
                    if not checks:
                        seen.append(sorted(x.flatten().tolist()))
                        self.optimizer.zero_grad()
                        loss.backward()
                        self.optimizer.step()
                    total += loss.item()
                return total

        runner = Runner(DataLoader(TensorDataset(rows, targets), batch_size=4), DataLoader(TensorDataset(rows, targets)))
        runner.one_pass()
        runner.one_pass(checks=True)
        """,
        (
            "loader = self.first if not checks else self.second",
            "loader = accelerator.prepare(loader) if not checks else accelerator.prepare_evaluation(loader)",
        ),
        ("prepare(self.second", "self.second)"),
    ),
    Trap(
        "loaders of a dictionary, by a phase that the step asks for",
        """
        def step(phase, x, y):
            training = phase == "fit"
            loss = F.mse_loss(model(x), y)
            if training:
                seen.append(sorted(x.flatten().tolist()))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return loss.item()

        loaders = {
            "fit": DataLoader(TensorDataset(rows, targets), batch_size=4),
            "check": DataLoader(TensorDataset(rows, targets), batch_size=4),
        }
        epoch = 0
        while epoch < 2:
            for phase, loader in loaders.items():
                shown = 0.0
                for i, (x, y) in enumerate(loader):
                    shown += step(phase, x, y)
                print(phase, shown / len(loader))
            epoch += 1
        """,
        ("for i, (x, y) in enumerate(loader):",),
        ("prepare(loaders",),
    ),
    Trap(
        "a length and an iterator of the same loader",
        """
        loader = DataLoader(TensorDataset(rows, targets), batch_size=4)
        for epoch in range(2):
            batches = iter(loader)
            i = 0
            while i < len(loader):
                for _ in range(2):
                    if i < len(loader):
                        x, y = next(batches)
                        i += 1
                        learn(model, optimizer, x, y)
        """,
        ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",),
    ),
]


def _script(trap: Trap) -> str:
    return trap.text.replace("DataLoader\n", "DataLoader\n" + ROWS + MADE, 1)


def _with_rows(trap: Trap) -> Trap:
    return Trap(trap.name, _script(trap), trap.lines, trap.absent, trap.says)


def _trained_on(text: str) -> Any:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "script.py", "exec"), names)
    return names["seen"]


@pytest.mark.parametrize("trap", RUN, ids=lambda trap: trap.name)
def test_lines(trap: Trap) -> None:
    check(_with_rows(trap))


@pytest.mark.parametrize("trap", RUN, ids=lambda trap: trap.name)
def test_two_processes_train_on_the_batches_of_one(trap: Trap) -> None:
    text = _script(trap)
    before = _trained_on(text)
    first, second = run_ranks(_trained_on, 2, converted(text).text)
    assert len(first) == len(second)
    if SO_MANY_STEPS in text:  # each process makes as many
        first, second = first[: len(before) // 2], second[: len(before) // 2]
    assert sorted(first + second) == sorted(before)
