"""CT601: sums that each process takes over its own rows, and rows that are gathered all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .as_one import check_two_are_one
from .support import Case, each, migrate
from .test_evaluation import distributed

OWN = "output, y = accelerator.own_rows((model(x), y))\nif not len(y):\n    continue\n"
ADD = "total += F.cross_entropy(model(x), y).item() * len(y)"
ADDED = "total += F.cross_entropy(output, y).item() * len(y)"


def summed(name: str, body: str, after: str, *sums: str, start: str = "total = 0.0", end: str = "") -> Case:
    """An evaluation whose sums are added up apart."""
    names = ", ".join(sums)
    given = names if len(sums) == 1 else f"({names})"
    reduced = f'    {names} = accelerator.reduce({given}, reduction="sum")'
    told = f"print({names})"
    return distributed(
        name,
        body,
        OWN + after,
        start=start,
        end=end or told,
        told_end=f"{reduced}\n{(end or told).replace('print(', 'accelerator.print(')}",
    )


POSITIVE = [
    summed("a mean loss times how many", ADD, ADDED, "total"),
    summed(
        "a mean loss times how many there are of something else",
        "total += F.cross_entropy(model(x), y).item() * x.size(0)",
        "total += F.cross_entropy(output, y).item() * y.size(0)",
        "total",
        end="print(total / len(test_loader.dataset))",
    ),
    summed(
        "a summed loss",
        'total += F.cross_entropy(model(x), y, reduction="sum").item()',
        'total += F.cross_entropy(output, y, reduction="sum").item()',
        "total",
        end="print(total / len(test_set))",
    ),
    summed(
        "a loss in a variable, and divided",
        "loss = F.cross_entropy(model(x), y)\ntotal += loss.item() * len(y) / 20",
        "loss = F.cross_entropy(output, y)\ntotal += loss.item() * len(y) / 20",
        "total",
    ),
    summed(
        "several sums",
        f"{ADD}\nseen += len(y)",
        f"{ADDED}\nseen += len(y)",
        "total",
        "seen",
        start="total, seen = 0.0, 0",
    ),
    summed(
        "bound together",
        f"{ADD}\nseen += len(y)",
        f"{ADDED}\nseen += len(y)",
        "total",
        "seen",
        start="total = seen = 0",
    ),
]

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train_loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8)
test_loader = DataLoader(TensorDataset(torch.randn({rows}, 4), torch.randint(3, ({rows},))), batch_size=8)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()


def evaluate():
    model.eval()
    total, hits, seen = 0.0, 0, 0
    with torch.no_grad():
        for x, y in test_loader:
            out = model(x)
            total += criterion(out, y).item() * x.size(0)
            hits += (out.argmax(1) == y).sum().item()
            seen += y.size(0)
    return total / seen, hits, seen


for epoch in range(2):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    loss, hits, seen = evaluate()
    print(epoch, loss, hits, seen)
weights = [p.tolist() for p in model.parameters()]
"""


ADDS = "            total += criterion(out, y).item() * x.size(0)\n"
STARTS = "    total, hits, seen = 0.0, 0, 0\n"
CALL = "    loss, hits, seen = evaluate()\n"


@each(POSITIVE)
def test_rule(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("rows", [16, 17, 20, 21, 3])
def test_a_process_may_have_none_of_the_last_rows(rows: int) -> None:
    """Of 17 rows in batches of 8 the last is one process's alone; the other's only complete the batch."""
    result = check_two_are_one(SCRIPT.replace("{rows}", str(rows)))
    assert "accelerator.own_rows((out, y))" in result.after
    assert "total, hits, seen = accelerator.reduce((total, hits, seen)" in result.after


def test_accelerate_has_no_own_rows() -> None:
    result = migrate_text(Path("train.py"), SCRIPT.replace("{rows}", "16"), Options(runtime="accelerate"))
    assert "gather_for_metrics((out, y))" in result.after
    assert "own_rows" not in result.after


GATHERED = {
    "a total that does not begin with 0": (STARTS, "    total, hits, seen = 1e-8, 0, 0\n"),
    "a total that may not begin": (STARTS, f"{STARTS}    if not seen:\n        total = 0.0\n"),
    "a total that is given": (STARTS, f"{STARTS}    total = float(len(told))\n"),
    "a total that goes on": (
        STARTS + "    with torch.no_grad():\n        for",
        STARTS + "    for _ in range(2):\n        for",
    ),
    "a tensor": (".item() * x.size(0)", " * x.size(0)"),
    "rows that are kept beside it": (ADDS, f"{ADDS}            found.append(y.tolist())\n"),
    "something else that is kept": (ADDS, f"{ADDS}            found.append('a batch')\n"),
    "an entry that is set": (ADDS, f"{ADDS}            told['batches'] = 'some'\n"),
    "a variable of the loop that is read behind it": (
        f"{ADDS}",
        f"{ADDS}            last = 'seen'\n            told['last'] = last\n",
    ),
    "a model that is asked again": (
        ADDS,
        f"{ADDS}            hits += (model(-x).argmax(1) == 0).sum().item()\n",
    ),
    "a variable of the module": (STARTS, f"    global seen\n{STARTS}"),
    "classes alone": (ADDS, ""),
}


@pytest.mark.parametrize("name", GATHERED)
def test_rows_are_gathered_all_the_same(name: str) -> None:
    text = SCRIPT.replace("{rows}", "17").replace("optimizer =", "found, told = [], {}\noptimizer =")
    before, after = GATHERED[name]
    assert text.count(before) == 1
    changed = text.replace(before, after)
    result = check_two_are_one(changed) if "begin" in name or "goes on" in name else migrate(changed)
    assert "own_rows" not in result.after
    assert "gather_for_metrics" in result.after
