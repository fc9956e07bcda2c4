"""Trainers that keep their losses in attributes, and run hooks by name."""

from __future__ import annotations

import ast

import pytest

from .support import check_invariants, migrate

RUNNER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Hook:
    def before_epoch(self, runner):
        pass

    def after_epoch(self, runner):
        pass

    def after_step(self, runner):
        pass


class Report(Hook):
    def __init__(self, every):
        self.every = every

    def after_step(self, runner):
        if runner.step % self.every == 0:
            print(f"{runner.step}: {runner.loss.item():.4f}")


class Keep(Hook):
    def after_epoch(self, runner):
        torch.save(runner.model.state_dict(), "model.pt")


class Runner:
    def __init__(self, model, loader, optimizer, device, hooks):
        self.model = model.to(device)
        self.loader, self.optimizer, self.device = loader, optimizer, device
        self.criterion = nn.CrossEntropyLoss()
        self.hooks = hooks
        self.step = 0

    def call(self, name):
        for hook in self.hooks:
            getattr(hook, name)(self)

    def run(self, epochs):
        for _ in range(epochs):
            self.call("before_epoch")
            for x, y in self.loader:
                x, y = x.to(self.device), y.to(self.device)
                self.loss = self.criterion(self.model(x), y)
                self.optimizer.zero_grad()
                self.loss.backward()
                self.optimizer.step()
                self.step += 1
                self.call("after_step")
            self.call("after_epoch")


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(48, 8), torch.zeros(48, dtype=torch.long))
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Runner(model, DataLoader(data, batch_size=8, shuffle=True), optimizer, device, [Report(2), Keep()]).run(2)


main()
"""
GLOBAL = (
    'runner.accelerator.print(f"{runner.step}: '
    "{runner.accelerator.reduce(runner.loss, reduction='mean').item():.4f}\")"
)


def holds(text: str, code: str) -> bool:
    """Whether a text holds some code, however its lines are broken."""
    return ast.unparse(ast.parse(code)) in ast.unparse(ast.parse(text))


MADE = "DataLoader(data, batch_size=8, shuffle=True)"
IN_MAIN = RUNNER.replace("    Runner(model, " + MADE, f"    loader = {MADE}\n    Runner(model, loader")


@pytest.mark.parametrize("script", [RUNNER, IN_MAIN], ids=["made by the runner", "made in main"])
@pytest.mark.parametrize(
    "dispatch",
    [
        "getattr(hook, name)(self)",
        "method = getattr(hook, name)\n            method(self)",
        'getattr(hook, "" + name)(self)',
    ],
    ids=["called at once", "called later", "a name that is put together"],
)
def test_hooks_that_are_called_by_name_see_global_numbers(dispatch: str, script: str) -> None:
    text = script.replace("getattr(hook, name)(self)", dispatch)
    result = migrate(text)
    check_invariants(text, result)
    assert result.changed, result.findings
    assert holds(result.after, GLOBAL)
    assert 'runner.accelerator.save_model(runner.model, "model.pt")\n' in result.after
    assert not [f for f in result.findings if f.rule == "CT401"]


def test_a_loss_in_an_attribute_goes_backward_as_it_is() -> None:
    """Reduced where it is stored, it would have no gradient any more on several processes."""
    after = migrate(RUNNER).after
    assert "                self.loss = self.criterion(self.model(x), y)\n" in after
    assert "self.accelerator.backward(self.loss)\n" in after


def test_parts_of_a_loss_in_attributes_are_read_as_global_numbers() -> None:
    text = RUNNER.replace(
        "                self.loss = self.criterion(self.model(x), y)\n",
        "                self.loss_fit = self.criterion(self.model(x), y)\n"
        "                self.loss_size = self.model(x).pow(2).mean()\n"
        "                self.loss = self.loss_fit + 0.1 * self.loss_size\n",
    ).replace(
        '            self.call("after_epoch")\n',
        '            self.call("after_epoch")\n'
        '            print([float(getattr(self, "loss_" + name)) for name in ("fit", "size")])\n',
    )
    result = migrate(text)
    check_invariants(text, result)
    assert "                self.loss_fit = self.criterion(self.model(x), y)\n" in result.after
    read = 'float(self.accelerator.reduce(getattr(self, "loss_" + name), reduction="mean"))'
    assert holds(result.after, read), result.findings


def test_a_loss_that_is_only_kept_is_made_global_where_it_is_kept() -> None:
    text = RUNNER.replace(
        "                self.loss = self.criterion(self.model(x), y)\n",
        "                loss = self.criterion(self.model(x), y)\n                self.loss = loss.detach()\n",
    ).replace("self.loss.backward()", "loss.backward()")
    after = migrate(text).after
    assert "self.loss = self.accelerator.reduce(loss" in after
    assert "self.accelerator.backward(loss)\n" in after


def test_a_hook_that_runs_before_the_accelerator_is_made_is_not_given_it() -> None:
    text = RUNNER.replace(
        "        self.step = 0\n", "        self.step = 0\n        self.hooks[0].after_step(self)\n"
    )
    result = migrate(text)
    assert "runner.accelerator" not in result.after
