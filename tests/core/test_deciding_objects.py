"""What is decided by numbers that objects hold: options, averages, dictionaries of losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranks import run_ranks

from .converting import converted
from .test_deciding import HEAD, after, printed

NAMED = """
from types import SimpleNamespace
import time
args = SimpleNamespace(every=3, folder="out", best=100.0)
args.{name} = {value}
value = test_loss()
if args.every < value:
    best = value
if args.best < 2:
    torch.save(model.state_dict(), "best.pt")
    wait += 1
"""


@pytest.mark.parametrize(
    ("name", "value", "is_own"),
    [("folder", 'time.strftime("%H%M%S")', False), ("best", "train()", True), ("best", "len(rows)", False)],
)
def test_one_attribute_of_the_options_is_not_all_of_them(name: str, value: str, is_own: bool) -> None:
    text = after(NAMED.format(name=name, value=value))
    assert ("accelerator.reduce(args.best" in text) is is_own, text
    assert "accelerator.reduce(args.every" not in text


AVERAGED = """
class Mean:
    def __init__(self):
        self.count, self.value = 0, 0.0

    def add(self, number):
        self.value = (self.value * self.count + number) / (self.count + 1)
        self.count += 1

    def item(self):
        return self.value

for epoch in range(2):
    train()
    error = Mean()
    with torch.no_grad():
        for x, y in test_loader:
            error.add(F.cross_entropy(model(x + torch.randn(1)), y).item())
    error = error.item()
    if error < best:
        best = error
        torch.save(model.state_dict(), "best.pt")
    print(epoch, best)
"""


def test_an_object_is_no_number_before_its_name_becomes_one(tmp_path: Path) -> None:
    text = after(AVERAGED)
    assert "    error = error.item()\n" + "    error = accelerator.reduce(error" in text, text
    assert text.count("reduce(error") == 1
    first, second = run_ranks(printed, 2, text.replace("accelerator.print", "print"), str(tmp_path))
    assert first == second and first


def test_a_tensor_whose_name_becomes_its_number_is_reduced_once() -> None:
    text = after(
        "loss = torch.tensor(test_loss())\nloss = loss.item()\nif loss < best:\n    best = loss\n    train()"
    )
    assert text.count('accelerator.reduce(loss, "mean")') == 1, text


@pytest.mark.parametrize("entry", ['parts["all"] = parts["a"] + 0.1 * parts["b"]', "print(parts)"])
def test_an_entry_that_goes_backward_is_reduced_where_it_is_asked_for(entry: str) -> None:
    text = converted(
        f"""{HEAD}
import math

def losses():
    x, y = next(iter(train_loader))
    a, b = F.cross_entropy(model(x), y), model(x).pow(2).mean()
    return dict(a=a, b=b, all=a + b)

for step in range(9):
    parts = losses()
    {entry}
    if math.isnan(parts["all"].item()):
        break
    <step parts["all"]>
"""
    )
    assert 'if math.isnan(accelerator.reduce(parts["all"], "mean").item()):' in text, text
    assert text.count(".reduce(") == 1, text


def test_an_entry_that_is_made_behind_its_dictionary_is_reduced_where_it_is_asked_for() -> None:
    text = after(
        """
for epoch in range(9):
    parts = {"a": train(), "b": train()}
    parts["all"] = parts["a"] + parts["b"]
    if parts["all"] < best:
        torch.save(model.state_dict(), "best.pt")
    parts["c"] = train()
"""
    )
    made = text.index('parts["all"] = parts')
    assert ".reduce(" in text and text.index(".reduce(") > made, text


SETTINGS = """
settings = {{"start": "", "again": False, "wait": 3.0, "model": {{"scale": 1.0}}}}
fresh = settings.get("start", "") != "" and settings.get("again", False)
if not fresh:
    torch.save(model.state_dict(), "first.pt")
for epoch in range(4):
    {kept} = train()
    for row in range(len(rows)):
        if row >= settings.get("wait", 3.0):
            torch.save(rows[row], "row.pt")
    if epoch > 2:
        torch.save(model.state_dict(), "best.pt")
        break
for row in train_loader:
    print(row)
"""


@pytest.mark.parametrize(
    ("kept", "reduced"),
    [
        ('settings["model"]["scale"]', []),
        ('settings["wait"]', ['settings.get("wait", 3.0)']),
        ("settings", ['settings.get("wait", 3.0)']),
    ],
)
def test_an_entry_by_get_is_not_all_of_its_dictionary(kept: str, reduced: list[str]) -> None:
    text = after(SETTINGS.format(kept=kept))
    found = [line for line in text.splitlines() if "accelerator.reduce(" in line]
    assert len(found) == len(reduced) and all(map(str.__contains__, found, reduced)), text
