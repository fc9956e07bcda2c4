"""CT602: a loss that is only added up in a step is reduced where the total is read."""

from __future__ import annotations

import pytest

from .as_one import check_two_are_one
from .numbers import ENUMERATED, LOSS, RULE, WEIGHTED, reduced
from .support import Case, converts, each, leaves

START = {"epoch": "total = 0.0"}
ADD = {**START, "after_step": "total += loss.item()"}
ADDED = {"after_step": f"total += {WEIGHTED}"}


def told(name: str, before: str, after: str, **more: str) -> Case:
    """What becomes of the total behind the loop."""
    first, _, rest = after.partition("\n")
    changed = (
        {"after_loop": first, "after_epoch": rest} if first == reduced("total") else {"after_epoch": after}
    )
    return converts(RULE, name, {**ADD, "after_epoch": before, **more}, {**ADDED, **changed}, at="total +=")


def kept(name: str, before: str, after: str, told: str = "print(total)", **more: str) -> Case:
    """How the total is added up in a step."""
    spoken = told.replace("print(", "accelerator.print(")
    return converts(
        RULE,
        name,
        {**START, "after_step": before, "after_epoch": told, **more},
        {"after_step": after, "after_loop": reduced("total"), "after_epoch": spoken},
        at="loss.item()",
    )


def each_step(name: str, before: str, after: str, **more: str) -> Case:
    """A number that is reduced in every step."""
    slots = {**START, "after_epoch": "print(total)", **more}
    spoken = {k: v.replace("print(", "accelerator.print(") for k, v in slots.items() if "print(" in v}
    return leaves(RULE, name, {**slots, "after_step": before}, {**spoken, "after_step": after})


WINDOW = """\
total += loss.item()
if i % 3 == 2:
    print(total / 3)
    total = 0.0"""
WINDOW_AFTER = f"""\
total += {WEIGHTED}
if i % 3 == 2:
    {reduced("total")}
    accelerator.print(total / 3)
    total = 0.0"""
TWO = {
    "epoch": "fits = sizes = 0.0",
    "loss": "out = model(x)\nfit = F.cross_entropy(out, y)\nsize = out.square().mean()\nloss = fit + size",
    "after_step": "fits += fit.item()\nsizes += size.item()",
}
TWO_ADDED = {
    "after_step": "fits += accelerator.weighted(fit).item()\nsizes += accelerator.weighted(size).item()"
}
BOTH = reduced("fits", "sizes")
SUMS = {
    "imports": "from collections import defaultdict",
    "epoch": "sums = defaultdict(float)",
    "loss": "out = model(x)\nlosses = {'fit': F.cross_entropy(out, y), 'size': out.square().mean()}\n"
    "loss = losses['fit'] + losses['size']",
    "after_step": "for name, value in losses.items():\n    sums[name] += value.item()",
}
SUMMED = {
    "after_step": "for name, value in losses.items():\n    sums[name] += accelerator.weighted(value).item()"
}

POSITIVE = [
    told(
        "printed behind the loop",
        "print(total / len(train_loader))",
        f"{reduced('total')}\naccelerator.print(total / len(train_loader))",
    ),
    told(
        "divided, and then printed",
        "total /= len(train_loader)\nprint(total)",
        f"{reduced('total')}\ntotal /= len(train_loader)\naccelerator.print(total)",
    ),
    told(
        "read by two branches",
        "if epoch > 0:\n    print(total)\nelse:\n    print('first', total)",
        f"if epoch > 0:\n    {reduced('total')}\n    accelerator.print(total)\n"
        f"else:\n    {reduced('total')}\n    accelerator.print('first', total)",
    ),
    told(
        "what decides",
        "if total < best:\n    best = total",
        f"{reduced('total')}\nif total < best:\n    best = total",
        setup="best = 1e9",
    ),
    told(
        "printed by a loop over something else",
        "for word in ('a', 'b'):\n    print(word, total)",
        f"{reduced('total')}\nfor word in ('a', 'b'):\n    accelerator.print(word, total)",
    ),
    converts(
        RULE,
        "a window",
        {**START, **ENUMERATED, "after_step": WINDOW},
        {"after_step": WINDOW_AFTER},
        at="total +=",
    ),
    kept("scaled", "total += loss.item() * 2", f"total += {WEIGHTED} * 2"),
    kept("assigned", "total = total + loss.item()", f"total = total + {WEIGHTED}"),
    kept("the last of them", "total = loss.item()", f"total = {WEIGHTED}"),
    kept(
        "a moving average",
        "total = 0.9 * total + 0.1 * loss.item()",
        f"total = 0.9 * total + 0.1 * {WEIGHTED}",
    ),
    kept(
        "a total read by float",
        "total += float(loss)  # loss.item()",
        "total += float(accelerator.weighted(loss))  # loss.item()",
    ),
    kept(
        "on the device",
        "total += loss.detach()  # not loss.item()",
        "total += accelerator.weighted(loss.detach())  # not loss.item()",
    ),
    kept(
        "times the rows",
        "total += loss.item() * x.size(0)",
        f"total += {WEIGHTED} * accelerator.global_rows(x)",
    ),
    kept(
        "by a variable of its own",
        "value = loss.item()\ntotal += value",
        f"value = {WEIGHTED}\ntotal += value",
    ),
    kept(
        "its mean so far in every step",
        "total += loss.item()\nmean = total / (i + 1)",
        f"total += {WEIGHTED}\nmean = total / (i + 1)",
        **ENUMERATED,
    ),
    converts(
        RULE,
        "two totals",
        {**TWO, "after_epoch": "print(fits, sizes)"},
        {**TWO_ADDED, "after_loop": BOTH, "after_epoch": "accelerator.print(fits, sizes)"},
        at="fits +=",
    ),
    converts(
        RULE,
        "two totals that two statements print",
        {**TWO, "after_epoch": "print(fits)\nprint(sizes)"},
        {**TWO_ADDED, "after_loop": BOTH, "after_epoch": "accelerator.print(fits)\naccelerator.print(sizes)"},
        at="fits +=",
    ),
    converts(
        RULE,
        "a dictionary",
        {**SUMS, "after_epoch": "print({k: v / len(train_loader) for k, v in sums.items()})"},
        {
            **SUMMED,
            "after_loop": reduced("sums"),
            "after_epoch": "accelerator.print({k: v / len(train_loader) for k, v in sums.items()})",
        },
        at="sums[name] +=",
    ),
    converts(
        RULE,
        "shown by a progress bar, too",
        {
            **START,
            "imports": "from tqdm import tqdm",
            "epoch": "total = 0.0\nbar = tqdm(train_loader)",
            "loop": "for x, y in bar:",
            "after_step": "total += loss.item()\nbar.set_postfix(loss=loss.item(), total=total)",
            "after_epoch": "print(total)",
        },
        {
            "epoch": "total = 0.0\nbar = tqdm(train_loader, disable=not accelerator.is_local_main_process)",
            "after_step": f"total += {WEIGHTED}\nbar.set_postfix(loss=loss.item(), total=total)",
            "after_loop": reduced("total"),
            "after_epoch": "accelerator.print(total)",
        },
        at="total +=",
        findings=((RULE, "bar.set_postfix"),),
    ),
]
NEGATIVE = [
    each_step(
        "printed in every step",
        "total += loss.item()\nprint(total)",
        f"total += {LOSS}.item()\naccelerator.print(total)",
    ),
    each_step(
        "the loss is printed in every step",
        "total += loss.item()\nprint(loss.item())",
        f"loss = {LOSS}\ntotal += loss.item()\naccelerator.print(loss.item())",
    ),
    each_step(
        "what decides in every step",
        "total += loss.item()\nif total > 100:\n    break",
        f"total += {LOSS}.item()\nif total > 100:\n    break",
    ),
    each_step("squared", "total += loss.item() ** 2", f"total += {LOSS}.item() ** 2"),
    each_step(
        "a list of them", "total.append(loss.item())", f"total.append({LOSS}.item())", epoch="total = []"
    ),
    each_step(
        "a function of its own sees the total",
        "total += loss.item()\nshow = lambda: total",
        f"total += {LOSS}.item()\nshow = lambda: total",
    ),
    each_step(
        "beside something else in a dictionary",
        "total['loss'] += loss.item()",
        f"total['loss'] += {LOSS}.item()",
        epoch="total = {'loss': 0.0, 'name': 'first'}",
    ),
    each_step(
        "a dictionary that somebody else has",
        "total['loss'] += loss.item()",
        f"total['loss'] += {LOSS}.item()",
        epoch="total = {'loss': 0.0}\nhistory.append(total)",
        setup="history = []",
    ),
    each_step(
        "told where only one process may come",
        "total += loss.item()",
        f"total += {LOSS}.item()",
        after_epoch="try:\n    model.check()\nexcept AttributeError:\n    print(total)",
    ),
    each_step(
        "an attribute",
        "state.total += loss.item()",
        f"state.total += {LOSS}.item()",
        definitions="class State:\n    total = 0.0",
        setup="state = State()",
        after_epoch="print(state.total)",
    ),
    *(
        each_step(f"no mean of theirs: {read}", read, read.replace("loss.item()", f"{LOSS}.item()"), **more)
        for read, more in (
            ("total *= loss.item()", {}),
            ("total += 1 / loss.item()", {}),
            ("total += loss.item() > 1", {}),
            ("total += round(loss.item(), 3)", {}),
            ("total += abs(loss.item())", {}),
            ("total += loss.item() % 2", {}),
            ("total += loss.item() // 2", {}),
            ("total = min(total, loss.item())", {}),
            ("total += math.sqrt(loss.item())", {"imports": "import math"}),
        )
    ),
]


@each(POSITIVE)
def test_totals(case: Case) -> None:
    case.check()


@each(NEGATIVE)
def test_what_each_step_needs(case: Case) -> None:
    case.check()


RUN = """\
import torch
import torch.nn.functional as F
from collections import defaultdict
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
train_loader = DataLoader(data, batch_size=4)
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total, by_rows, rows, window, last = 0.0, 0.0, 0, 0.0, 0.0
    mean = torch.zeros((), device=device)
    sums = defaultdict(float)
    for i, (x, y) in enumerate(train_loader):
        x, y = x.to(device), y.to(device)
        out = model(x)
        losses = {"fit": F.cross_entropy(out, y), "size": out.square().mean()}
        loss = losses["fit"] + 0.1 * losses["size"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        by_rows += loss.item() * len(x)
        rows += len(x)
        mean += loss.detach() / len(train_loader)
        last = loss.item()
        for name, value in losses.items():
            sums[name] += value.item()
        window += loss.item()
        if i % 4 == 1:
            print(window / 4)
            window = 0.0
    print(total / len(train_loader), by_rows / rows, mean.item(), last)
    print(window, " ".join(f"{value:.6f}" for value in sums.values()))
weights = model.weight.flatten().tolist()
"""


@pytest.mark.parametrize("shared", ["", 'even_batches="weighted", '])
def test_totals_are_those_of_one_process(shared: str) -> None:
    """Of batches that two processes share evenly, and of those they do not (five rows)."""
    text = RUN.replace("batch_size=4", "batch_size=5") if shared else RUN
    result = check_two_are_one(text, options=shared)
    assert result.after.count("accelerator.reduce(") == 2
