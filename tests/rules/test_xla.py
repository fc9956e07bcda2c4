"""CT7: advice for XLA. Nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .support import SLOTS, Case, script

MODULE = """\
class Net(nn.Module):
    def forward(self, x):
        {}
        return x
"""


def advises(rule: str, name: str, at: str, **slots: str) -> Case:
    return Case(rule, name, slots, at=at)


def silent(rule: str, name: str, **slots: str) -> Case:
    return Case(rule, name, slots)


def forward(line: str) -> str:
    return MODULE.format(line)


# fmt: off
POSITIVE = [
    advises("CT701", "boolean indexing of a batch", "x = x[y > 0]", batch="x = x[y > 0]"),
    advises("CT701", "a mask with a name", "x = x[keep]", batch="keep = (y > 0) & ~(y == 3)\nx = x[keep]"),
    advises("CT701", "masked assignment", "x[x > 1] = 0", batch="x[x > 1] = 0"),
    advises("CT701", "nonzero", "torch.nonzero(y)", after_step="places = torch.nonzero(y)"),
    advises("CT701", "in a module", "x[x < 0]", definitions=forward("x = x[x < 0]")),
    advises("CT702", "a branch on the loss", "if loss > 10:", loss=SLOTS["loss"] + "\nif loss > 10:\n    continue"),
    advises("CT702", "not finite", "if not torch.isfinite", after_step="if not torch.isfinite(loss).all():\n    break"),
    advises("CT703", "a running sum", "loss.item()", setup="total = 0.0", after_step="total += loss.item()"),
    advises("CT703", "printed", "print(f", after_step='print(f"loss {loss:.3f}")'),
    advises("CT703", "in a function", "return loss.item()", definitions="def value(loss):\n    return loss.item()\n", after_step="seen = value(loss)"),
    advises("CT704", "to the longest", "padding=True", setup='tokens = tokenizer(["a"], padding=True)', imports="from tokens import tokenizer"),
    advises("CT704", "pad_sequence", "pad_sequence(items)", imports="from torch.nn.utils.rnn import pad_sequence", definitions="def collate(items):\n    return pad_sequence(items)\n"),
    advises("CT705", "a random number of rounds", "for _ in range(rounds)", imports="import random", batch="rounds = random.randint(1, 4)\nfor _ in range(rounds):\n    x = x * 2"),
    advises("CT705", "a random crop", "x[:, start:", imports="import random", batch="start = random.randint(0, 3)\nx = x[:, start:start + 4]"),
    advises("CT706", "an LSTM", "nn.LSTM(8, 3)", setup="layer = nn.LSTM(8, 3)"),
    advises("CT706", "packed", "pack_padded_sequence(x", imports="from torch.nn.utils.rnn import pack_padded_sequence", definitions="def pack(x, n):\n    return pack_padded_sequence(x, n)\n"),
    advises("CT707", "the old spelling", "with autocast():", imports="from torch.cuda.amp import autocast", batch="with autocast():\n    x = x * 2"),
    advises("CT707", "a named device", 'autocast("cuda")', batch='with torch.autocast("cuda"):\n    x = x * 2'),
    advises("CT708", "a rate times processes", "lr * dist", imports="import torch.distributed as dist", options="lr = 0.1\nlr = lr * dist.get_world_size()"),
]

NEGATIVE = [
    silent("CT701", "an index", batch="x = x[0]"),
    silent("CT701", "a slice", batch="x = x[:4]"),
    silent("CT701", "torch.where", batch="x = torch.where(x > 1, 0, x)"),
    silent("CT701", "before the loop", setup="data = torch.ones(9)\ndata = data[data > 0]"),
    silent("CT701", "a list of its own", setup="names = {}", batch="names[len(names) > 3] = 0"),
    silent("CT702", "a count of steps", setup="steps = 0", after_step="steps += 1\nif steps > 3:\n    break"),
    silent("CT702", "None", after_step="if loss is None:\n    continue"),
    silent("CT703", "every hundred steps", setup="step = 0", after_step="if step % 100 == 0:\n    print(loss.item())\nstep += 1"),
    silent("CT703", "after the loop", setup="total = 0.0", after_step="total += loss.detach()", after_epoch="print(total.item())"),
    silent("CT703", "a number", after_step='print("step")'),
    silent("CT704", "a convolution", setup="layer = nn.Conv1d(8, 8, 3, padding=1)"),
    silent("CT704", "to a fixed length", setup='tokens = tokenizer(["a"], padding="max_length")', imports="from tokens import tokenizer"),
    silent("CT705", "a fixed number of rounds", batch="for _ in range(3):\n    x = x * 2"),
    silent("CT705", "a random number on the host", imports="import random", setup="rounds = random.randint(1, 4)\nfor _ in range(rounds):\n    pass"),
    silent("CT706", "a GRU", setup="layer = nn.GRU(8, 3)"),
    silent("CT706", "an LSTM of somebody else's", imports="from layers import LSTM", setup="layer = LSTM(8, 3)"),
    silent("CT707", "for the CPU", batch='with torch.autocast("cpu"):\n    x = x * 2'),
    silent("CT707", "for whatever device", batch="with torch.autocast(device.type):\n    x = x * 2"),
    silent("CT708", "a rate times a factor", options="lr = 0.1\nlr = lr * 2"),
]
# fmt: on


def advice(case: Case, select: tuple[str, ...] = ("CT7",)) -> set[tuple[str, str]]:
    """(code, line) of every note of this family."""
    text = script({**SLOTS, **case.before})
    result = migrate_text(Path("train.py"), text, Options(select=select))
    assert result.after == text or select != ("CT7",)
    lines = text.split("\n")
    return {(one.rule, lines[one.line - 1]) for one in result.findings if one.rule.startswith("CT7")}


@pytest.mark.parametrize("case", POSITIVE, ids=lambda case: f"{case.rule}-{case.name}")
def test_advises(case: Case) -> None:
    found = advice(case)
    assert {code for code, _ in found} == {case.rule}
    assert any(case.at in line for _, line in found)


@pytest.mark.parametrize("case", NEGATIVE, ids=lambda case: f"{case.rule}-{case.name}")
def test_is_silent(case: Case) -> None:
    assert not advice(case)


def test_a_conversion_comes_with_one_note_of_each_rule() -> None:
    text = script(
        {
            **SLOTS,
            "setup": "total = 0.0",
            "batch": "x[x > 1] = 0\nx[x < 1] = 0",
            "after_step": "total += loss.item()",
        }
    )
    result = migrate_text(Path("train.py"), text, Options(advice=True))
    assert result.changed
    first, second = (one for one in result.findings if one.rule.startswith("CT7"))
    assert (first.rule, second.rule) == ("CT701", "CT703")
    assert first.reason.endswith(f"(also line {first.line + 1})")
    every = migrate_text(Path("train.py"), text, Options(select=("CT7",))).findings
    assert [one.rule for one in every] == ["CT701", "CT701", "CT703"]


def test_advice_is_silenced_chosen_and_not_repeated() -> None:
    case = POSITIVE[0]
    assert {code for code, _ in advice(case, select=("CT701",))} == {"CT701"}
    assert not advice(case, select=("CT702",))
    line = "total += loss.item()"
    text = script({**SLOTS, "setup": "total = 0.0", "after_step": line})
    assert [one.rule for one in migrate_text(Path("t.py"), text, Options(advice=True)).findings] == ["CT703"]
    assert not migrate_text(Path("t.py"), text, Options(ignore=("CT7",), advice=True)).findings
    quiet = text.replace(line, f"{line}  # migrate: skip CT703")
    assert not migrate_text(
        Path("t.py"), quiet, Options(advice=True)
    ).findings  # nor is the comment called idle
    after = migrate_text(Path("t.py"), text, Options(advice=True)).after
    assert not migrate_text(Path("t.py"), after, Options(advice=True)).findings


def test_masked_assignment_comes_with_its_exact_fix() -> None:
    text = script({**SLOTS, "batch": "x[x > 1] = 0"})
    [one] = migrate_text(Path("train.py"), text, Options(select=("CT7",))).findings
    assert one.remedy == "write x = torch.where(x > 1, 0, x)"


def test_reads_of_a_loop_are_one_note() -> None:
    text = script(
        {**SLOTS, "setup": "total = seen = 0", "after_step": "total += loss.item()\nseen += y.sum().item()"}
    )
    [one] = migrate_text(Path("train.py"), text, Options(select=("CT7",))).findings
    assert one.reason.startswith("2 values are read")
