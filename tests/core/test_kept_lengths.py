"""A number of steps that a method keeps by the length of its loader, for the method that trains."""

from pathlib import Path

import pytest

from .converting import converted
from .running import launched, plain

SCRIPT = """
<torch>
class Trainer:
    def __init__(self, epochs):
        self.model = nn.Linear(2, 1)
        self.epochs = epochs
    def rows(self):
        return DataLoader(TensorDataset(torch.rand(16, 2), torch.zeros(16, 1)), batch_size=4)
    def set_up(self):
        self.loader = self.rows()
        self.most = self.epochs * len(self.loader)
    def train(self):
        self.set_up()
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, self.most)
        total = 0
        for epoch in range(self.epochs):
            for x, y in self.loader:
                <step F.mse_loss(self.model(x), y)>
                schedule.step()
                total += 1
            print("=", epoch, total == self.most, round(schedule.get_last_lr()[0], 3))
Trainer(3).train()
"""
MAKES = "        self.loader = self.rows()\n        self.most = self.epochs * len(self.loader)\n"
IN_INIT = SCRIPT.replace("        self.set_up()\n", "").replace(MAKES, "        pass\n")
IN_INIT = IN_INIT.replace("self.epochs = epochs\n", f"self.epochs = epochs\n{MAKES}")
OPTIMIZER = """        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, self.most)
"""
ALL_IN_INIT = IN_INIT.replace(OPTIMIZER, "").replace(MAKES, MAKES + OPTIMIZER)
ALL_IN_INIT = ALL_IN_INIT.replace("optimizer =", "self.optimizer =").replace("(optimizer", "(self.optimizer")
ALL_IN_INIT = ALL_IN_INIT.replace("<step", "<self.step").replace("schedule", "self.schedule")
ALL_IN_INIT = ALL_IN_INIT.replace("lr_self.schedule", "lr_schedule")
GIVEN = ALL_IN_INIT.replace("0.5, self.most", "0.5, epochs * len(self.loader)")


LATE = GIVEN.replace("        self.most = self.epochs * len(self.loader)\n", "").replace(
    "    def rows",
    "        self.other = nn.Linear(2, 1)\n"
    "        self.second = torch.optim.SGD(self.other.parameters(), lr=0.1)\n"
    "        self.most = self.epochs * len(self.loader)\n    def rows",
)
LATE = LATE.replace("self.model(x), y)", "self.model(x) + self.other(x), y)").replace(
    "                self.schedule.step()",
    "                self.second.step()\n                self.schedule.step()",
)


def test_a_schedule_that_is_made_above_the_place_of_prepare_keeps_the_steps_of_all() -> None:
    prepared = "self.model, self.other, self.optimizer, self.second, self.loader, self.schedule"
    after = converted(LATE)
    assert after.index("epochs * len(self.loader)") < after.index(
        f"        {prepared} = accelerator.prepare("
    )
    assert after.index("accelerator.prepare(") < after.index("self.most = ")


@pytest.mark.parametrize(
    "made",
    ["torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, most)", "get_linear_schedule(optimizer, most)"],
)
def test_a_schedule_that_has_it_by_another_name_keeps_the_steps_of_all(made: str) -> None:
    given = "torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, self.most)"
    text = SCRIPT.replace(f"schedule = {given}", f"most = self.most\n        schedule = {made}")
    after = converted("from transformers import get_linear_schedule\n" + text)
    assert ", self.loader, schedule = accelerator.prepare(" in after


@pytest.mark.parametrize(
    "text", [SCRIPT, IN_INIT, ALL_IN_INIT, GIVEN], ids=["method", "init", "all", "given"]
)
def test_it_is_that_of_one_process_and_the_schedule_that_is_made_of_it_too(text: str, tmp_path: Path) -> None:
    after = converted(text)
    assert (
        plain(tmp_path, after)
        == launched(tmp_path, after)
        == ["= 0 False 0.083", "= 1 False 0.067", "= 2 True 0.05"]
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.most = self.epochs * len(self.loader)", "self.most = 12"),
        ("self.most = self.epochs * len(self.loader)", "print(len(self.loader)); self.most = 12"),
        (
            "self.loader = self.rows()",
            "self.loader = None\n        if self.epochs: self.loader = self.rows()",
        ),
    ],
)
def test_without_one_the_loader_is_prepared_where_it_trains(old: str, new: str) -> None:
    after = converted(SCRIPT.replace(old, new))
    assert after.index("def train") < after.index(", self.loader, schedule = accelerator.prepare(")
