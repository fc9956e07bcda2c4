"""What a look at scripts that the tool had not met has found: each kind with what stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from .converting import converted
from .projects import convert, write

BUFFER = """import argparse
import torch
from torch.utils.data import DataLoader

args = argparse.ArgumentParser().parse_args()
setattr(args, "gpu", not args.cpu)
if args.gpu and args.reserve > 0:
    {buffer} = torch.randn(int(args.reserve)).cuda()
    {end}

class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda") if self.args.gpu and torch.cuda.is_available() else torch.device("cpu")

    def train(self):
        model = torch.nn.Linear(4, 2).to(self.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader([], 8):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x.to(self.device)), y.to(self.device)).backward()
            optimizer.step()

Trainer(args).train()
"""


@pytest.mark.parametrize(
    ("end", "made"),
    [
        ("del buffer", "Accelerator(cpu=not args.gpu)"),  # it is thrown away: the class chooses the device
        ("print(buffer.sum())", "Accelerator(cpu=not (args.gpu and args.reserve > 0))"),
    ],
)
def test_memory_that_is_kept_free_chooses_no_device(end: str, made: str) -> None:
    assert f"accelerator = {made}" in converted(BUFFER.format(buffer="buffer", end=end))


COLLATE = """from functools import partial
import torch
from torch.utils.data import DataLoader

def together(batch, scale=1):
    rows, sizes = [], []
    with torch.no_grad():
        for row in batch:
            rows.append(row[0] * scale)
            sizes.append(len(row[0]))
    return torch.stack(rows), torch.tensor(sizes)

{given}
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
{end}
"""


@pytest.mark.parametrize(
    "given",
    [
        "loader = DataLoader([], 8, collate_fn=together)",
        "loader = DataLoader([], 8, collate_fn=partial(together, scale=2))",
        "collate = partial(together, scale=2)\nloader = DataLoader([], 8, collate_fn=collate)",
    ],
)
def test_a_collate_function_evaluates_nothing(given: str) -> None:
    after = converted(COLLATE.format(given=given, end=""))
    assert "prepare_evaluation" not in after
    assert "merge" not in after


def test_the_same_loop_over_batches_is_dealt() -> None:
    after = converted(COLLATE.format(given="loader = DataLoader([], 8)", end="print(together(loader))"))
    assert ".prepare_evaluation(batch)" in after


CHECKPOINTS = """import glob
import torch

class Agent:
    def __init__(self):
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def load(self, name):
        self.model.load_state_dict(torch.load(name))

    def step(self, batch, training):
        loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
        if training:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

class Source:
    def __init__(self):
        self.at = 0

    def next_batch(self):
        self.at += 1
        return None if self.at % 4 == 0 else (torch.full((8, 4), float(self.at)), torch.ones(8, 2))

agent, source = Agent(), Source()
while True:
    batch = source.next_batch()
    if batch is None:
        break
    agent.step(batch, training=True)
names = found_by(glob.glob("*.pth"))
for name in names:
    {told}
    while True:
        batch = {fetched}
        if batch is None:
            break
        print(name, agent.step(batch, training=False))
"""


@pytest.mark.parametrize(
    ("told", "fetched", "dealt"),
    [
        ("agent.load(name)", "source.next_batch()", False),
        ("source.begin(name)", "source.next_batch()", True),  # what it fetches is the item's
        ("agent.load('best.pth')", "read(name)", True),
    ],
)
def test_a_while_that_fetches_its_own_batches(told: str, fetched: str, dealt: bool) -> None:
    after = converted(CHECKPOINTS.format(told=told, fetched=fetched))
    assert (".prepare(names)" in after) is dealt


GIVEN_DEVICE = {
    "trainer": """
        import torch

        class Base:
            def __init__(self, epochs, device=torch.device("cuda:0")):
                self.epochs = epochs
                self.device = torch.device(device)

            def run(self, loader, model):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in loader:
                    optimizer.zero_grad()
                    torch.nn.functional.mse_loss(model(x.to(self.device)), y.to(self.device)).backward()
                    optimizer.step()

        class Trainer(Base):
            pass
        """,
    "train": """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        from trainer import Trainer

        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        model = torch.nn.Linear(4, 2).to(device)
        Trainer({given}).run(DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), 2), model)
        result = model.weight.tolist()
        """,
}


@pytest.mark.parametrize(("given", "stays"), [("1, device", True), ("1, device=device", True), ("1", False)])
def test_a_class_of_another_file_keeps_the_device_that_it_is_given(
    given: str, stays: bool, tmp_path: Path
) -> None:
    """Other scripts of the project give theirs; where a call gives none, the default would be one GPU for all processes."""
    files = GIVEN_DEVICE | {"train": GIVEN_DEVICE["train"].format(given=given)}
    convert(write(tmp_path, **files), "train")
    after = (tmp_path / "trainer.py").read_text()
    assert ("self.device = torch.device(device)" in after) is stays


JOURNAL = {
    "journal": """
        from torch.utils.tensorboard import SummaryWriter

        class Journal:
            def __init__(self):
                self.events = None

            def update(self, value, step):
                if self.events is None:
                    self.events = SummaryWriter("events")
                self.events.{use}("loss", value, step)

            def close(self):
                {closed}
        """,
    "train": """
        import torch
        from journal import Journal
        from torch.utils.data import DataLoader

        journal = Journal()
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, (x, y) in enumerate(DataLoader([], 2)):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            journal.update(loss.item(), step)
        journal.close()
        """,
}


@pytest.mark.parametrize(
    ("closed", "made"), [("self.events.close()", True), ("return self.events.log_dir", False)]
)
def test_an_event_file_of_a_module_that_other_scripts_import(closed: str, made: bool, tmp_path: Path) -> None:
    """One process opens it, unless another one may ask it for something."""
    text = JOURNAL["journal"].format(use="add_scalar", closed=closed)
    files = JOURNAL | {"journal": text, "test": "from journal import Journal\nJournal().update(1, 2)\n"}
    convert(write(tmp_path, **files), "train")
    after = (tmp_path / "journal.py").read_text()
    assert ('SummaryWriter("events") if PartialState().is_main_process else None' in after) is made
    assert "if PartialState().is_main_process:\n            self.events.add_scalar" in after


COMMANDS = """import click
import torch
from torch.utils.data import DataLoader

{group}

{command}
def fit(rate):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for x, y in DataLoader([], 8):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

if __name__ == "__main__":
    {start}
"""
GROUP = "@click.group()\ndef cli():\n    pass"


@pytest.mark.parametrize(
    ("group", "command", "start", "trains"),
    [
        (GROUP, '@cli.command()\n@click.option("--rate", type=float)', "cli()", True),
        ("app = typer.Typer()", "@app.command", "app()", True),
        (GROUP, "@cli.command()", "print('nothing')", False),
        (GROUP, "@cached.method()", "cli()", False),
    ],
)
def test_a_command_of_a_group_is_reached_by_the_group(
    group: str, command: str, start: str, trains: bool
) -> None:
    after = converted(COMMANDS.format(group=group, command=command, start=start))
    assert ("    accelerator = Accelerator()\n    model = torch.nn.Linear(4, 2)" in after) is trains
    assert ("accelerator.backward(" in after) is trains


PIECES = """import random
import torch
from torch.utils.data import DataLoader

{pieces}
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for piece in pieces:
    rows = read(piece)
    random.shuffle(rows)
    for step in range(len(rows) // 4):
        optimizer.zero_grad()
        model(torch.tensor(rows[step * 4 : (step + 1) * 4])).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("pieces", "numbered"),
    [
        ("pieces = list(range(5))", True),
        ("pieces = DataLoader([], 64)", False),  # its batches are dealt, and not the parts of one
        ("pieces = read('names')", False),
    ],
)
def test_batches_of_a_numbered_piece_are_dealt(pieces: str, numbered: bool) -> None:
    after = converted(PIECES.format(pieces=pieces))
    assert ("for step in accelerator.prepare(range(len(rows) // 4)):" in after) is numbered
    assert ("optimizer, pieces = accelerator.prepare(model, optimizer, pieces)" in after) is not numbered


EVENTS = {
    "logs": """
        from torch.utils.tensorboard import SummaryWriter

        def logs():
            writer = SummaryWriter("events")
            return print, writer
        """,
    "train": """
        import torch
        from logs import logs
        from torch.utils.data import DataLoader

        show, writer = logs()
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, (x, y) in enumerate(DataLoader([], 2)):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            {use}
        """,
}


@pytest.mark.parametrize(
    ("use", "made"),
    [('writer.add_scalar("loss", loss, step)', True), ("folder = writer.get_logdir()", False)],
)
def test_a_writer_that_is_returned_beside_something_else(use: str, made: bool, tmp_path: Path) -> None:
    convert(write(tmp_path, **EVENTS | {"train": EVENTS["train"].format(use=use)}), "train")
    after = (tmp_path / "logs.py").read_text()
    assert (".is_main_process else None" in after) is made
