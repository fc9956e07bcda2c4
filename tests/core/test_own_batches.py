"""Batches that the script puts together itself: whether each process draws its own, or all are at the same place."""

from pathlib import Path

import pytest

from .converting import converted, notes, once_more
from .projects import convert, train, write
from .support import each_row

SCRIPT = """
import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import nn
class Rows:
    def __init__(self):
        self.x = np.random.rand(64, 4).astype("float32")
        self.at = 0
        self.order = np.arange(64)
    def next_batch(self, size=8):
        start = self.at
        self.at += size
        if self.at > len(self.x):
            self.at, start = size, 0
        return torch.tensor(self.x[start:self.at])
rows = Rows()
<model nn.Linear(4, 1)>
for step in range(100):
    batch = rows.next_batch()
    batch = batch + np.random.uniform(-1, 1)
    loss = model(batch).mean()
    <step loss>
"""
OWN = [
    (
        "return torch.tensor(self.x[start:self.at])",
        "return torch.tensor(np.random.permutation(self.x)[:size])",
    ),
    ("self.at, start = size, 0", "self.at, start = size, 0\n            np.random.shuffle(self.x)"),
    ("batch = rows.next_batch()", "batch = torch.tensor(make_moons(8)[0])"),
    ("self.at += size", "self.at = np.random.randint(len(self.x) - size)"),
    ("self.x[start:self.at]", "[self.x[i] for i in np.random.choice(self.at, size)]"),
]

DEALT = "batches = accelerator.prepare(rows.next_batch() for _ in itertools.count())\n"
BY_ANOTHER = """self.at, batch = self.rows_at(self.at, size)
        return batch
    def rows_at(self, start, size):
        return start + size, torch.tensor(self.x[start:start + size])
"""
ROUND = """rows = np.array([self.x[i % 64] for i in range(self.at, self.at + size)])
        self.at += size
        return torch.tensor(rows)
"""


def test_batches_from_a_place_that_moves_on_are_dealt() -> None:
    """What is drawn beside it, to shift a picture, gives no process data of its own."""
    own, end = SCRIPT.index("start = self.at"), SCRIPT.index("\nrows = ")
    for script in (
        SCRIPT,
        SCRIPT.replace("start = self.at", "start, k = self.at, np.random.randint(3)"),
        SCRIPT[:own] + BY_ANOTHER + SCRIPT[end:],
        SCRIPT[:own] + ROUND + SCRIPT[end:],
    ):
        after = converted(script)
        assert DEALT in after and "batch = next(batches)" in after and not notes(script, "CT902")
        assert once_more(after) == after
    after = converted(SCRIPT.replace("rows", "batches"))
    assert "dealt = accelerator.prepare(batches.next_batch() for" in after and "next(dealt)" in after


@each_row(r"""
line => asked
batch = batch + => print(rows.at)\n    batch = batch +
batch = rows.next_batch() => k = 8\n    batch = rows.next_batch(k)
self.at, start = size, 0 => raise IndexError
""")
def test_a_place_that_is_asked_is_the_same_for_all(line: str, asked: str) -> None:
    assert line in SCRIPT and DEALT not in converted(SCRIPT.replace(line, asked))
    assert notes(SCRIPT.replace(line, asked), "CT902")


@pytest.mark.parametrize(("line", "drawn"), OWN)
def test_an_order_that_is_drawn_is_each_process_s_own(line: str, drawn: str) -> None:
    assert line in SCRIPT
    assert not notes(SCRIPT.replace(line, drawn), "CT902")


@each_row(r"""
steps => more => share
len(rows.x) // 8 => '' => range(accelerator.share(len(rows.x) // 8))
steps => steps = int(len(rows.x) / 8) => steps = accelerator.share(int(len(rows.x) / 8))
steps => steps = 100 => range(steps)
steps => steps = len(rows.x) // 8\nlr_scheduler.LambdaLR(optimizer, steps) => range(steps)
""")
def test_an_epoch_has_the_steps_of_one_process(steps: str, more: str, share: str) -> None:
    top, loop = SCRIPT.split("for step in range(100):\n")
    loop = "".join(f"    {line}\n" for line in loop.splitlines())
    text = f"from torch.optim import lr_scheduler{top}{more}\nfor n in range(3):\n    for step in range({steps}):\n{loop}"
    after = converted(text)
    assert share in after and "batch = next(batches)" in after, after
    assert bool(notes(text, "CT201")) is ("Lambda" in more)


def test_state_that_is_carried_past_the_batches_of_others_is_said() -> None:
    text = SCRIPT.replace("for step in", "state = None\nfor step in")
    carried = text.replace("loss = model(batch)", "out, state = model(batch, state)\n    loss = out")
    assert not notes(text, "CT201") and "`state` is carried" in notes(carried, "CT201")[0].reason


LINES = """
import random
import torch
from torch.utils.data import DataLoader, Dataset
class Lines(Dataset):
    def __init__(self):
        self.file = open("lines.txt")
        self.rows = [[float(n)] for n in range(8)]
    def __len__(self):
        return 8
    def __getitem__(self, index):
        {item}
<model torch.nn.Linear(1, 1)>
result = []
for x in DataLoader(Lines(), batch_size=2):
    <step model(x).mean()>
    result += x.flatten().tolist()
"""
NEXT_LINE = "return torch.tensor([float(self.file.readline())])"
DISPATCHED = "Accelerator(dispatch_batches=True)"


def test_lines_that_are_read_on_are_read_by_one_process(tmp_path: Path) -> None:
    folder = write(tmp_path, script=LINES.format(item=NEXT_LINE))
    (folder / "lines.txt").write_text("".join(f"{n}\n" for n in range(8)))
    before = train(folder, "script")
    convert(folder, "script")
    assert train(folder, "script") == before == [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]
    assert train(folder, "script", 2) == [[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]


def test_lines_that_are_read_on_are_evaluated_whole(tmp_path: Path) -> None:
    more = "loader = DataLoader(Lines(), batch_size=2)\nmodel.eval()\nresult = 0.0\nfor x in loader:\n    "
    more += "with torch.no_grad():\n        result += (x + 0 * model(x)).sum().item()\nprint(result)\n"
    folder = write(tmp_path, script=LINES.format(item=NEXT_LINE) + more)
    (folder / "lines.txt").write_text("".join(f"{n}\n" for n in range(8)))
    convert(folder, "script")
    assert "prepare_evaluation(" in (folder / "script.py").read_text()
    assert train(folder, "script", 2) == [28.0, 28.0]


@pytest.mark.parametrize(
    "item",
    [
        "return torch.tensor(self.rows[index])",
        "return torch.tensor(random.choice(self.rows))",
        f"self.file.seek(2 * index)\n        {NEXT_LINE}",
    ],
)
def test_items_by_index_or_by_chance_are_each_process_s_own(item: str) -> None:
    assert DISPATCHED in converted(LINES.format(item=NEXT_LINE))
    assert DISPATCHED not in converted(LINES.format(item=item))
