"""What models and losses of the script's own return: named fields, tuples, dicts, and branches on their options.

Each case says how the forward pass is written; the loss is a mean over rows wherever the tool can know it, and then
nothing is said about it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from .support import SLOTS, check_invariants, migrate, script

HEAD = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

"""
FORWARD = "    def forward(self, x, labels=None):\n        logits = self.layer(x)\n"
LOSS = "        loss = None\n        if labels is not None:\n            loss = F.cross_entropy(logits, labels)\n"
RECORD = "class Output({base}):\n    loss: torch.Tensor = None\n    logits: torch.Tensor = None\n\n\n"
EVALUATION = """\
model.eval()
right = 0
with torch.no_grad():
    for x, y in test_loader:
        x, y = x.to(device), y.to(device)
        right += ({logits}.argmax(1) == y).sum().item()
print(right)"""
TEST_DATA = """\
test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
test_loader = DataLoader(test_set, batch_size=8)"""


@dataclass(frozen=True)
class Output:
    name: str
    definitions: str  # of the model
    step: str  # the forward pass in training
    logits: str  # and in evaluation


OUTPUTS = [
    Output(
        "a data class",
        "@dataclass\n"
        + RECORD.replace("({base})", "")
        + HEAD
        + FORWARD
        + LOSS
        + "        return Output(loss=loss, logits=logits)",
        "loss = model(x, labels=y).loss",
        "model(x).logits",
    ),
    Output(
        "a named tuple",
        RECORD.format(base="NamedTuple") + HEAD + FORWARD + LOSS + "        return Output(loss, logits)",
        "out = model(x, y)\nloss = out.loss",
        "model(x).logits",
    ),
    Output(
        "a record of a library",
        HEAD + FORWARD + LOSS + "        return SequenceClassifierOutput(loss=loss, logits=logits)",
        "outputs = model(x, labels=y)\nloss = outputs.loss",
        "model(x).logits",
    ),
    Output(
        "a dict",
        HEAD + FORWARD + LOSS + '        return {"loss": loss, "logits": logits}',
        'out = model(x, y)\nloss = out["loss"]',
        'model(x)["logits"]',
    ),
    Output(
        "a dict with a loss where labels are given",
        HEAD + FORWARD + '        out = {"logits": logits}\n        if labels is not None:\n'
        '            out["loss"] = F.cross_entropy(logits, labels)\n        return out',
        'out = model(x, labels=y)\nloss = out["loss"]',
        'model(x)["logits"]',
    ),
    Output(
        "a tuple that grows in front",
        HEAD + FORWARD + "        outputs = (logits,)\n        if labels is not None:\n"
        "            outputs = (F.cross_entropy(logits, labels),) + outputs\n        return outputs",
        "loss = model(x, labels=y)[0]",
        "model(x)[0]",
    ),
    Output(
        "the loss, or else the logits",
        HEAD + FORWARD + "        if labels is None:\n            return logits\n"
        "        return F.cross_entropy(logits, labels)",
        "loss = model(x, y)",
        "model(x)",
    ),
    Output(
        "parts in a ModuleDict",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        '        self.heads = nn.ModuleDict({"a": nn.Linear(8, 3), "b": nn.Linear(8, 3)})\n\n'
        "    def forward(self, x):\n        return {name: head(x) for name, head in self.heads.items()}",
        "out = model(x)\nloss = sum(F.cross_entropy(v, y) for v in out.values())",
        'model(x)["a"]',
    ),
]


@pytest.mark.parametrize("case", OUTPUTS, ids=lambda case: case.name)
def test_output(case: Output) -> None:
    text = script(
        {
            **SLOTS,
            "imports": "from dataclasses import dataclass\nfrom typing import NamedTuple\n"
            "from transformers.modeling_outputs import SequenceClassifierOutput",
            "definitions": case.definitions,
            "model": "model = Net().to(device)",
            "loss": case.step,
            "test_data": TEST_DATA,
            "after_step": "print(loss.item())",
            "after_epoch": EVALUATION.format(logits=case.logits),
        }
    )
    result = migrate(text)
    check_invariants(text, result)
    assert [f.rule for f in result.findings] == []
    assert 'accelerator.print(accelerator.reduce(loss, reduction="mean").item())' in result.after
    assert (
        f"right += accelerator.gather_for_metrics({case.logits}.argmax(1) == y).sum().item()" in result.after
    )


FOCAL = """\
class Focal(nn.Module):
    def __init__(self, gamma=2.0, {option}={default}):
        super().__init__()
        self.gamma = gamma
        self.{option} = {option}

    def forward(self, logits, labels):
        rows = F.cross_entropy(logits, labels, reduction="none")
        rows = (1 - torch.exp(-rows)) ** self.gamma * rows
        if {test}:
            return rows.mean()
        {rest}"""
BY_NAME = {"option": "reduction", "test": 'self.reduction == "mean"', "default": '"mean"'}
CHAIN = 'elif self.reduction == "sum":\n            return rows.sum()\n        else:\n            return rows'
REST = 'if self.reduction == "sum":\n            return rows.sum()\n        return rows'
BY_FLAG = {"option": "size_average", "test": "self.size_average", "default": "True"}


@pytest.mark.parametrize(
    ("definitions", "made"),
    [
        (FOCAL.format(**BY_NAME, rest=CHAIN), "Focal()"),
        (FOCAL.format(**BY_NAME, rest=REST), "Focal(gamma=1.0)"),
        (FOCAL.format(**{**BY_NAME, "default": '"none"'}, rest=CHAIN), 'Focal(2.0, "mean")'),
        (FOCAL.format(**BY_FLAG, rest="else:\n            return rows.sum()"), "Focal()"),
    ],
    ids=["a default", "returns below each other", "said where it is made", "a flag"],
)
def test_a_reduction_that_is_known(definitions: str, made: str) -> None:
    result = focal(definitions, made)
    assert not result.findings
    assert 'accelerator.reduce(loss, reduction="mean")' in result.after
    assert "loss_reduction" not in result.after


def test_a_sum_that_is_known() -> None:
    result = focal(FOCAL.format(**BY_NAME, rest=CHAIN), 'Focal(reduction="sum")')
    assert 'Accelerator(loss_reduction="sum")' in result.after


@pytest.mark.parametrize(
    ("made", "setup"),
    [
        ("Focal(reduction=options.reduction)", "options = argparse.ArgumentParser().parse_args()"),
        ("Focal()", 'criterion.reduction = "sum"'),
        ("LOSSES[0]()", "LOSSES = [Focal]"),
    ],
    ids=["from the command line", "set later", "made through a list"],
)
def test_a_reduction_that_is_not_known(made: str, setup: str) -> None:
    result = focal(FOCAL.format(**BY_NAME, rest=CHAIN), made, setup)
    assert result.refused or "CT202" in {f.rule for f in result.findings}


def focal(definitions: str, made: str, setup: str = ""):  # type: ignore[no-untyped-def]
    line = f"criterion = {made}"
    text = script(
        {
            **SLOTS,
            "imports": "import argparse",
            "definitions": definitions,
            "setup": f"{line}\n{setup}" if setup.startswith("criterion") else f"{setup}\n{line}",
            "loss": "loss = criterion(model(x), y)\nif not torch.isfinite(loss) or loss.item() > 9:\n    continue",
        }
    )
    result = migrate(text)
    check_invariants(text, result)
    return result


def test_a_batch_spread_over_the_parameters_is_no_receiver() -> None:
    """`model(**batch)` once bound `self` to the batch, and every layer became unknown."""
    text = script(
        {
            **SLOTS,
            "definitions": HEAD + "    def forward(self, x, labels):\n"
            "        return F.cross_entropy(self.layer(x), labels)",
            "model": "model = Net().to(device)",
            "loop": "for batch in train_loader:",
            "batch": "batch = {k: v.to(device) for k, v in batch.items()}",
            "loss": "loss = model(**batch)",
            "after_step": "print(loss.item())",
        }
    )
    result = migrate(text)
    check_invariants(text, result)
    assert not result.findings
    assert 'accelerator.reduce(loss, reduction="mean")' in result.after


def test_a_dict_of_both_loops_is_told_apart() -> None:
    """The loss of evaluation was once reduced with the rows that fill up its last batch."""
    text = script(
        {
            **SLOTS,
            "definitions": OUTPUTS[3].definitions,
            "model": "model = Net().to(device)",
            "test_data": TEST_DATA,
            "loss": 'out = model(x, y)\nloss = out["loss"]',
            "after_epoch": "model.eval()\ntotal = 0.0\nfor x, y in test_loader:\n    out = model(x, y)\n"
            '    total += out["loss"].item() * len(y)\nprint(total)',
        }
    )
    result = migrate(text)
    check_invariants(text, result)
    assert '    total += out["loss"].item() * len(y)' in result.after
    assert "CT603" in {f.rule for f in result.findings}
