"""CT604: one loop that trains and evaluates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .as_one import check_two_are_one
from .support import Case, each, leaves, refuses

RULE = "CT604"
DATA = """\
train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(test_set, batch_size=8)"""
PREPARED = """\
model, optimizer, train_loader, test_loader = accelerator.prepare(
    model, optimizer, train_loader, test_loader
)"""
LOOP = """\
{mode}
loader = train_loader if phase == "train" else test_loader
total, right = 0.0, 0
for x, y in loader:
    {moved}optimizer.zero_grad()
    with torch.set_grad_enabled(phase == "train"):
        out = model(x)
        loss = {loss}
        if phase == "train":  # only then
            {backward}
            optimizer.step()
    {measured}
{told}"""
BY_FLAG = 'model.train(phase == "train")'
BY_BRANCH = 'if phase == "train":\n    model.train()\nelse:\n    model.eval()'
MOVED = "x, y = x.to(device), y.to(device)\n    "
MEAN = "F.cross_entropy(out, y)"
WEIGHTED = "total += loss.item() * x.size(0)"
RIGHT = "right += (out.argmax(1) == y).sum().item()"
EMPTY = {
    "epoch": "",
    "backward": "",
    "step": "",
    "batch": "",
    "loop": 'for phase in ["train", "val"]:',
    "data": DATA,
}


def phases(measured: str, mode: str = BY_FLAG, loss: str = MEAN) -> dict[str, str]:
    told = "print(phase, total, right)"
    code = LOOP.format(
        mode=mode, moved=MOVED, loss=loss, backward="loss.backward()", measured=measured, told=told
    )
    return {**EMPTY, "loss": code}


def converted(measured: str, mode: str = BY_FLAG) -> dict[str, str]:
    told = "accelerator.print(phase, total, right)"
    code = LOOP.format(
        mode=mode, moved="", loss=MEAN, backward="accelerator.backward(loss)", measured=measured, told=told
    )
    return {"prepare": PREPARED, "loss": code, "backward": ""}


GATHERED = "out, y = accelerator.gather_for_metrics((out, y))\n    "
AGAIN = "total += F.cross_entropy(out, y).item() * y.size(0)"

LOADERS = """\
loaders = {
    "train": DataLoader(train_set, batch_size=8, shuffle=True),
    "val": DataLoader(test_set, batch_size=8),
}"""
BY_COMPREHENSION = 'loaders = {p: DataLoader(sets[p], batch_size=8) for p in ["train", "val"]}'
BY_ITEMS = "loaders = {name: DataLoader(part, batch_size=8) for name, part in sets.items()}"
ITEM_BY_ITEM = """\
loaders = {}
loaders["train"] = DataLoader(train_set, batch_size=8, shuffle=True)
loaders["val"] = DataLoader(test_set, batch_size=8)"""
SETS = """\
train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
sets = {"train": train_set, "val": test_set}
"""
ITEMS_PREPARED = """\
model, optimizer, loaders["train"], loaders["val"] = accelerator.prepare(
    model, optimizer, loaders["train"], loaders["val"]
)"""


LISTED = "loaders = [DataLoader(train_set, batch_size=8), DataLoader(test_set, batch_size=8)]"
IN_TUPLE = "loaders = (\n    {},\n    {},\n)"
ONE_PREPARED = "model, optimizer, loaders[{item}] = accelerator.prepare(model, optimizer, loaders[{item}])"


def looked_up(slots: dict[str, str], loop: str = "for x, y in loaders[phase]:") -> dict[str, str]:
    """The same loop over an item of a dictionary."""
    choice = 'loader = train_loader if phase == "train" else test_loader\n'
    return {**slots, "loss": slots["loss"].replace(choice, "").replace("for x, y in loader:", loop)}


def by_phase(made: str, loop: str = "for x, y in loaders[phase]:") -> tuple[dict[str, str], dict[str, str]]:
    """A script whose loaders are kept in a dictionary, and what becomes of it."""
    before = {**looked_up(phases(f"{WEIGHTED}\n    {RIGHT}"), loop), "data": SETS + made}
    after = looked_up(converted(f"{GATHERED}{AGAIN}\n    {RIGHT}"), loop)
    return before, {**after, "prepare": ITEMS_PREPARED}


def in_parts(first: str, second: str) -> tuple[dict[str, str], dict[str, str]]:
    """A loss of two parts, which is not computed again; and what becomes of it where both are means."""
    parts = f"loss = {first}\n        loss = loss + {second}"
    before, after = phases(f"{WEIGHTED}\n    {RIGHT}"), converted(f"{WEIGHTED}\n    {RIGHT}")
    reduced = 'accelerator.reduce(loss, reduction="mean").item()'
    loss = after["loss"].replace(f"loss = {MEAN}", parts).replace("loss.item()", reduced)
    return (
        {**before, "loss": before["loss"].replace(f"loss = {MEAN}", parts)},
        {
            **after,
            "device": 'accelerator = Accelerator(even_batches="weighted")  # the fastest there is',
            "loss": loss.replace("x.size(0)", "accelerator.global_rows(x)").replace(
                RIGHT, "right += accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()"
            ),
        },
    )


POSITIVE = [
    *(
        Case("CT201", name, *by_phase(made), at="optimizer = torch")
        for name, made in (
            ("loaders in a dictionary by phase", LOADERS),
            ("loaders made by a comprehension over the phases", BY_COMPREHENSION),
            ("loaders made by a comprehension over the data sets", BY_ITEMS),
            ("a dictionary filled item by item", ITEM_BY_ITEM),
        )
    ),
    Case(
        "CT201",
        "an item of a dictionary, iterated through a call",
        *by_phase(LOADERS, "for x, y in iter(loaders[phase]):"),
        at="optimizer = torch",
    ),
    Case(
        "CT201",
        "loaders in a tuple, whose items cannot be assigned, are prepared where they are made",
        {
            **looked_up(phases(f"{WEIGHTED}\n    {RIGHT}"), 'for x, y in loaders[phase == "val"]:'),
            "data": SETS
            + IN_TUPLE.format("DataLoader(train_set, batch_size=8)", "DataLoader(test_set, batch_size=8)"),
        },
        {
            **looked_up(converted(f"{GATHERED}{AGAIN}\n    {RIGHT}"), 'for x, y in loaders[phase == "val"]:'),
            "data": SETS
            + IN_TUPLE.format(
                "accelerator.prepare(DataLoader(train_set, batch_size=8))",
                "accelerator.prepare(DataLoader(test_set, batch_size=8))",
            ),
            "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
        },
        at="DataLoader(train_set",
    ),
    Case(
        "CT602",
        "the loss of both phases is computed again over all rows",
        phases(f"{WEIGHTED}\n    {RIGHT}"),
        converted(f"{GATHERED}{AGAIN}\n    {RIGHT}"),
        at="total += ",
    ),
    Case(
        "CT602",
        "its mode chosen in a branch",
        phases(f"{WEIGHTED}\n    {RIGHT}", BY_BRANCH),
        converted(f"{GATHERED}{AGAIN}\n    {RIGHT}", BY_BRANCH),
        at="total += ",
    ),
    Case(
        "CT602",
        "a loss of several parts is averaged, and no batch is filled up",
        *in_parts(MEAN, "out.pow(2).mean()"),
        at="total += ",
    ),
]

NEGATIVE = [
    refuses(
        "CT605",
        "batches that are kept to be given later",
        by_phase(LOADERS, "for x, y in reversed(list(loaders[phase])):")[0],
        at="reversed(list(",
    ),
    *(
        leaves(
            "CT201",
            name,
            {"data": f"{SETS}{made}", "loop": f"for x, y in {loop}:", **more},
            {"prepare": ONE_PREPARED.format(item=item)},
        )
        for name, made, loop, item, more in (
            (
                "a dictionary of loaders of which one is trained on",
                LOADERS,
                'loaders["train"]',
                '"train"',
                {},
            ),
            ("a list of loaders of which one is trained on", LISTED, "loaders[0]", "0", {}),
            (
                "the length of a loader beside the one that is trained on",
                LOADERS,
                'loaders["train"]',
                '"train"',
                {"setup": 'steps = len(loaders["val"])'},
            ),
            (
                "the data set of a loader in a dictionary",
                LOADERS,
                'loaders["train"]',
                '"train"',
                {"setup": 'size = len(loaders["train"].dataset)'},
            ),
        )
    ),
    leaves("CT602", "a loss in one loop that nobody reads", {"after_step": "del loss"}),
    leaves(RULE, "two loops", {"after_epoch": "model.eval()"}),
    leaves(
        RULE,
        "one loop over a training loader in two phases",
        {
            "loop": "for x, y in train_loader if epoch else train_loader:",
        },
    ),
    refuses(
        RULE,
        "a loss that is a sum in one phase and a mean in the other",
        phases(
            WEIGHTED,
            loss='F.cross_entropy(out, y) if phase == "train" else F.cross_entropy(out, y, reduction="sum")',
        ),
        at="total += ",
    ),
]
NEGATIVE[-1] = replace(NEGATIVE[-1], findings=(*NEGATIVE[-1].findings, ("CT202", "loss.backward()")))


@each(POSITIVE, NEGATIVE)
def test_mixed_loops(case: Case) -> None:
    case.check()


WHOLE = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train_set = TensorDataset(torch.randn(24, 8), torch.randint(3, (24,)))
test_set = TensorDataset(torch.randn(17, 8), torch.randint(3, (17,)))
loaders = {"train": DataLoader(train_set, batch_size=8, shuffle=True), "val": DataLoader(test_set, batch_size=8)}
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for phase in ["train", "val"]:
        model.train(phase == "train")
        total, right = 0.0, 0
        for x, y in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                out = model(x)
                {loss}
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            {read}
        print(phase, total)
weights = [p.tolist() for p in model.parameters()]
"""
SUM = "loss = F.cross_entropy(out, y, reduction='sum')"
LOSSES = {
    "sums, of which the last batch has one row": (f"{SUM}\n                loss = loss + out.pow(2).sum()", "total += loss.item()"),
    "a mean that is not computed again, for it runs the model": ("loss = F.cross_entropy(model(x + 1), y)", "total += loss.item()"),
}  # fmt: skip


@pytest.mark.parametrize(("loss", "read"), LOSSES.values(), ids=LOSSES)
def test_both_phases_say_on_two_processes_what_they_say_on_one(loss: str, read: str) -> None:
    result = check_two_are_one(WHOLE.replace("{loss}", loss).replace("{read}", read))
    assert "F.cross_entropy" not in result.after.split("optimizer.step()")[1]
