"""CT7: advice for XLA. Nothing is changed."""

from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .support import script


def case(rule: str, name: str, at: str = "", **places: str) -> ParameterSet:
    """at: part of the line that is advised about; none where there is nothing to say."""
    return pytest.param(rule, at, script(**places), id=f"{rule}-{name}")


def forward(line: str) -> str:
    return f"class Net(nn.Module):\n    def forward(self, x):\n        {line}\n        return x\n"


def found(text: str, **options: Any) -> list[str]:
    findings = migrate_text(Path("train.py"), text, Options(**options)).findings
    return [finding.rule for finding in findings]


# fmt: off
CASES = [
    case("CT701", "boolean indexing of a batch", "x = x[y > 0]", batch="x = x[y > 0]"),
    case("CT701", "a mask with a name", "x = x[keep]", batch="keep = (y > 0) & ~(y == 3)\nx = x[keep]"),
    case("CT701", "masked assignment", "x[x > 1] = 0", batch="x[x > 1] = 0"),
    case("CT701", "nonzero", "torch.nonzero(y)", after_step="places = torch.nonzero(y)"),
    case("CT701", "in a module", "x[x < 0]", definitions=forward("x = x[x < 0]")),
    case("CT702", "a branch on the loss", "if loss > 10:", loss="loss = F.cross_entropy(model(x), y)\nif loss > 10:\n    continue"),
    case("CT702", "not finite", "if not torch.isfinite", after_step="if not torch.isfinite(loss).all():\n    break"),
    case("CT703", "a running sum", "loss.item()", setup="total = 0.0", after_step="total += loss.item()"),
    case("CT703", "printed", "print(f", after_step='print(f"loss {loss:.3f}")'),
    case("CT703", "in a function", "return loss.item()", definitions="def value(loss):\n    return loss.item()\n", after_step="seen = value(loss)"),
    case("CT704", "to the longest", "padding=True", setup='tokens = tokenizer(["a"], padding=True)', imports="from tokens import tokenizer"),
    case("CT704", "pad_sequence", "pad_sequence(items)", imports="from torch.nn.utils.rnn import pad_sequence", definitions="def collate(items):\n    return pad_sequence(items)\n"),
    case("CT705", "a random number of rounds", "for _ in range(rounds)", imports="import random", batch="rounds = random.randint(1, 4)\nfor _ in range(rounds):\n    x = x * 2"),
    case("CT705", "a random crop", "x[:, start:", imports="import random", batch="start = random.randint(0, 3)\nx = x[:, start:start + 4]"),
    case("CT706", "an LSTM", "nn.LSTM(8, 3)", setup="layer = nn.LSTM(8, 3)"),
    case("CT706", "packed", "pack_padded_sequence(x", imports="from torch.nn.utils.rnn import pack_padded_sequence", definitions="def pack(x, n):\n    return pack_padded_sequence(x, n)\n"),
    case("CT707", "the old spelling", "with autocast():", imports="from torch.cuda.amp import autocast", batch="with autocast():\n    x = x * 2"),
    case("CT707", "a named device", 'autocast("cuda")', batch='with torch.autocast("cuda"):\n    x = x * 2'),
    case("CT708", "a rate times processes", "lr * dist", imports="import torch.distributed as dist", options="lr = 0.1\nlr = lr * dist.get_world_size()"),
    case("CT701", "an index", batch="x = x[0]"),
    case("CT701", "a slice", batch="x = x[:4]"),
    case("CT701", "torch.where", batch="x = torch.where(x > 1, 0, x)"),
    case("CT701", "before the loop", setup="data = torch.ones(9)\ndata = data[data > 0]"),
    case("CT701", "a list of its own", setup="names = {}", batch="names[len(names) > 3] = 0"),
    case("CT702", "a count of steps", setup="steps = 0", after_step="steps += 1\nif steps > 3:\n    break"),
    case("CT702", "None", after_step="if loss is None:\n    continue"),
    case("CT703", "every hundred steps", setup="step = 0", after_step="if step % 100 == 0:\n    print(loss.item())\nstep += 1"),
    case("CT703", "after the loop", setup="total = 0.0", after_step="total += loss.detach()", after_epoch="print(total.item())"),
    case("CT703", "a number", after_step='print("step")'),
    case("CT704", "a convolution", setup="layer = nn.Conv1d(8, 8, 3, padding=1)"),
    case("CT704", "to a fixed length", setup='tokens = tokenizer(["a"], padding="max_length")', imports="from tokens import tokenizer"),
    case("CT705", "a fixed number of rounds", batch="for _ in range(3):\n    x = x * 2"),
    case("CT705", "a random number on the host", imports="import random", setup="rounds = random.randint(1, 4)\nfor _ in range(rounds):\n    pass"),
    case("CT706", "a GRU", setup="layer = nn.GRU(8, 3)"),
    case("CT706", "an LSTM of somebody else's", imports="from layers import LSTM", setup="layer = LSTM(8, 3)"),
    case("CT707", "for the CPU", batch='with torch.autocast("cpu"):\n    x = x * 2'),
    case("CT707", "for whatever device", batch="with torch.autocast(device.type):\n    x = x * 2"),
    case("CT708", "a rate times a factor", options="lr = 0.1\nlr = lr * 2"),
]
# fmt: on


@pytest.mark.parametrize(("rule", "at", "text"), CASES)
def test_advises(rule: str, at: str, text: str) -> None:
    result = migrate_text(Path("train.py"), text, Options(select=("CT7",)))
    assert result.after == text
    said = [(one.rule, text.split("\n")[one.line - 1]) for one in result.findings]
    assert {code for code, _ in said} == ({rule} if at else set())
    assert any(at in line for _, line in said) is bool(at)


def test_a_conversion_comes_with_one_note_of_each_rule() -> None:
    text = script(setup="total = 0.0", batch="x[x > 1] = 0\nx[x < 1] = 0", after_step="total += loss.item()")
    result = migrate_text(Path("train.py"), text, Options(advice=True))
    assert result.changed
    first, second = result.findings
    assert (first.rule, second.rule) == ("CT701", "CT703")
    assert first.reason.endswith(f"(also line {first.line + 1})")
    assert first.remedy == "write x = torch.where(x > 1, 0, x)"
    assert found(text, select=("CT7",)) == ["CT701", "CT701", "CT703"]
    assert not found(result.after, advice=True)


def test_advice_is_silenced_and_chosen() -> None:
    line = "total += loss.item()"
    text = script(setup="total = 0.0", after_step=line)
    assert found(text, select=("CT703",), advice=True) == found(text, advice=True) == ["CT703"]
    assert not found(text, select=("CT702",)) + found(text, ignore=("CT7",), advice=True)
    # Nor is the comment called idle.
    assert not found(text.replace(line, f"{line}  # migrate: skip CT703"), advice=True)


def test_reads_of_a_loop_are_one_note() -> None:
    text = script(setup="total = seen = 0", after_step="total += loss.item()\nseen += y.sum().item()")
    [one] = migrate_text(Path("train.py"), text, Options(select=("CT7",))).findings
    assert one.reason.startswith("2 values are read")
