"""One plain training script with slots, and the check that every case of every rule goes through.

A case says what is put into the slots and what a careful engineer would have made of it. The rest of the script is
converted as always (`CONVERTED`), so each case compares two whole scripts: an edit too many shows as well as one too few.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileResult, Options, Severity

Slots = Mapping[str, str]

HEAD = '''\
"""Points of three classes."""

import torch
import torch.nn.functional as F
<accelerator>
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
<imports>

<definitions>

'''
BODY = """\
<options>
<device>
<data>
<test_data>
<model>
<optimizer>
<setup>

<prepare>
for epoch in range(2):
    <epoch>
    <loop>
        <batch>
        <zero>
        <loss>
        <backward>
        <step>
        <after_step>
    <after_loop>
    # the epoch is over
    <after_epoch>
<end>
"""

SLOTS = {
    "accelerator": "",
    "imports": "",
    "definitions": "",
    "options": "",
    "device": 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # the fastest there is',
    "data": (
        "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
        "train_loader = DataLoader(train_set, batch_size=8, shuffle=True)"
    ),
    "test_data": "",
    "model": "model = nn.Linear(8, 3).to(device)",
    "optimizer": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "prepare": "",
    "setup": "",
    "epoch": "model.train()",
    "loop": "for x, y in train_loader:  # one epoch",
    "batch": "x, y = x.to(device), y.to(device)",
    "zero": "optimizer.zero_grad()",
    "loss": "out = model(x)\nloss = F.cross_entropy(out, y)",
    "backward": "loss.backward()",
    "step": "optimizer.step()",
    "after_step": "",
    "after_loop": "",
    "after_epoch": "",
    "end": "",
}

CONVERTED = {
    **SLOTS,
    "accelerator": "from crosstrain import Accelerator",
    "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
    "prepare": "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)",
    "backward": "accelerator.backward(loss)",
}


def fill(template: str, slots: Slots) -> str:
    """The template with its slots filled, indented as they stand; an empty slot leaves no line."""
    lines: list[str] = []
    for line in template.split("\n"):
        slot = re.fullmatch(r"(\s*)<(\w+)>", line)
        if slot is None:
            lines.append(line)
        elif slots[slot[2]]:
            lines += [slot[1] + inner if inner else "" for inner in slots[slot[2]].split("\n")]
    return "\n".join(lines)


def script(slots: Slots) -> str:
    return fill(HEAD, slots) + fill(BODY, slots)


@dataclass(frozen=True)
class Case:
    """One use of a rule. `after` holds only the slots that differ from the ordinary conversion."""

    rule: str
    name: str
    before: Slots
    after: Slots = field(default_factory=dict)
    at: str = ""  # part of the line where the rule must be reported
    refused: bool = False
    kept: bool = False  # nothing is to be done with the script

    @property
    def script(self) -> str:
        return script({**SLOTS, **self.before})

    @property
    def expected(self) -> str:
        if self.refused or self.kept:
            return self.script
        kept = {slot: text for slot, text in self.before.items() if slot not in self.after}
        return script({**CONVERTED, **kept, **self.after})


def migrate(text: str) -> FileResult:
    return migrate_text(Path("train.py"), text, Options())


def reported(result: FileResult) -> set[tuple[str, int]]:
    """The changes, by rule and line. Rules that only add an argument show as the change of what they add it to."""
    found = {(change.rule, change.line) for change in result.changes}
    arguments = {"CT102": ("CT204", "CT205"), "CT201": ("CT205",)}
    return found | {(added, line) for rule, line in found for added in arguments.get(rule, ())}


def check_invariants(before: str, result: FileResult) -> None:
    """What holds of every migration whatsoever."""
    assert result.error is None
    ast.parse(result.after)
    assert not comments(before) - comments(result.after), "a comment was lost"
    again = migrate(result.after)
    if result.changed:
        assert not again.changed, "the second migration changed something"
        assert {f.rule for f in again.findings} <= {"CT901"}, (
            again.findings
        )  # a script for Accelerate is left to it
    assert all(finding.reason and finding.remedy for finding in result.findings)
    if result.refused:
        assert not result.changed
        assert any(f.severity is Severity.REFUSED for f in result.findings)


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)
