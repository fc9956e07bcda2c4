"""CT201 and CT605: loaders that no variable holds, streams that functions make, and batches that are kept or changed."""

from __future__ import annotations

from .support import SLOTS, Case, Slots, converts, each, leaves, migrate, refuses, script

PREPARE, SHARED = "CT201", "CT605"
SET = "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))"
MADE = "DataLoader(train_set, batch_size=8, shuffle=True)"
DRAWN = "DataLoader(TensorDataset(torch.randn(48, 8), torch.zeros(48).long()), batch_size=8)"
EVEN = "DataLoader(train_set, batch_size=8, drop_last=True)"
CYCLE = """\
def cycle(loader):
    while True:
        for batch in loader:
            yield batch
"""
STREAM = """\
def stream(data):
    {}
    while True:
        yield from {}
"""
STEPS: Slots = {
    "loop": "for step in range(20):",
    "batch": "x, y = next(batches)\nx, y = x.to(device), y.to(device)",
}
STEPPED = {
    "batch": "x, y = next(batches)",
    "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
}
NO_STEP = {"loss": "", "backward": "", "step": ""}
PLAYED = """\
x = torch.randn(48, 8)
y = model(x.to(device)).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=8)"""
FIT = """\
def fit(model, optimizer, played, device):
    loader = DataLoader(TensorDataset(torch.ones(48, 8), played), batch_size=8)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
"""
STREAMED = {
    "definitions": CYCLE,
    "data": f"{SET}\ntrain_loader = {MADE}\nbatches = cycle(train_loader)",
    "loop": "for x, y in batches:",
    "after_step": "scheduler.step()",
}
OPTIMIZER = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, {})"""
ITERTOOLS = {"imports": "import itertools"}


def prepared(made: str) -> str:
    return f"accelerator.prepare({made})"


def in_place(name: str, line: str, made: str = MADE, **more: str) -> Case:
    """Training in steps over a stream of the loader's batches: the loader is prepared where it is made."""
    before = {"definitions": CYCLE, **STEPS, "data": f"{SET}\n{line.format(made)}", **more}
    after = {**STEPPED, "data": f"{SET}\n{line.format(prepared(made))}"}
    return converts(PREPARE, name, before, after, at="batches = ")


def by_stream(name: str, body: tuple[str, str], main: bool = True) -> Case:
    """Training over what a generator of the script yields, which makes its loader itself."""
    loader, after = "DataLoader(data, batch_size=8)", "accelerator.prepare(DataLoader(data, batch_size=8))"
    given = "stream(accelerator, train_set)" if main else "stream(train_set)"
    definition = "def stream(accelerator, data)" if main else "def stream(data)"
    return Case(
        PREPARE,
        name,
        {
            **STEPS,
            "definitions": STREAM.format(*body).replace("MADE", loader),
            "data": SET,
            "setup": "batches = stream(train_set)",
        },
        {
            **STEPPED,
            "definitions": STREAM.format(*body)
            .replace("MADE", after)
            .replace("def stream(data)", definition),
            "setup": f"batches = {given}",
        },
        at=next(line for line in body if "MADE" in line).replace("MADE", loader),
        main=main,
    )


POSITIVE = [
    in_place("in a call of a generator", "batches = cycle({})"),
    in_place("in a call of iter", "batches = iter(cycle({}))"),
    in_place("in a call of itertools.cycle", "batches = itertools.cycle({})", EVEN, **ITERTOOLS),
    converts(
        PREPARE,
        "in the loop itself",
        {"data": SET, "loop": f"for x, y in {MADE}:"},
        {"prepare": STEPPED["prepare"], "loop": f"for x, y in {prepared(MADE)}:"},
    ),
    Case(
        PREPARE,
        "in a function of its own",
        {
            **STEPS,
            "definitions": f"{CYCLE}\n\ndef load(train_set):\n    return cycle({MADE})\n",
            "data": SET,
            "setup": "batches = load(train_set)",
        },
        {
            **STEPPED,
            "definitions": f"{CYCLE}\n\ndef load(accelerator, train_set):\n    return cycle({prepared(MADE)})\n",
            "setup": "batches = load(accelerator, train_set)",
        },
        at="return cycle",
        main=True,
    ),
    by_stream("by the generator that yields its batches", ("loader = MADE", "loader")),
    by_stream("by the generator, at module level", ("loader = MADE", "loader"), main=False),
    by_stream("in the generator, and not named there either", ("# for ever", "MADE")),
    converts(
        PREPARE,
        "full batches that are kept",
        {
            **ITERTOOLS,
            **STEPS,
            "data": f"{SET}\ntrain_loader = {EVEN}",
            "setup": "batches = itertools.cycle(train_loader)",
        },
        {"batch": STEPPED["batch"]},
        at="optimizer = torch",
    ),
]

NEGATIVE = [
    refuses(
        PREPARE,
        "a loader of each round, over what the model has just played",
        {"data": "", "epoch": PLAYED, "loop": "for x, y in loader:"},
        at="loader = DataLoader",
    ),
    refuses(
        PREPARE,
        "the same in a function of its own",
        {
            **NO_STEP,
            "definitions": FIT,
            "data": "",
            "loop": "for turn in range(3):",
            "batch": "played = model(torch.randn(48, 8).to(device)).argmax(1)\nfit(model, optimizer, played, device)",
        },
        at="loader = DataLoader",
        main=True,
    ),
    leaves(
        PREPARE,
        "a loader of each epoch over data that is drawn for it, alike on all processes",
        {"data": "", "loop": f"for x, y in {DRAWN}:"},
        {"prepare": STEPPED["prepare"], "loop": f"for x, y in {prepared(DRAWN)}:"},
        findings=(("CT904", "torch.randn(48, 8)"),),
    ),
    leaves(
        "CT205",
        "a stream that begins before the scheduler is made, for a number of steps",
        {**STREAMED, "optimizer": OPTIMIZER.format("60")},
        {
            "data": f"{SET}\ntrain_loader = {MADE}\ntrain_loader = accelerator.prepare(train_loader)\nbatches = cycle(train_loader)",
            "optimizer": OPTIMIZER.format("60"),
            "prepare": "model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)",
        },
    ),
    refuses(
        SHARED,
        "batches that are given again, of which the last may be smaller",
        {
            **ITERTOOLS,
            **STEPS,
            "data": f"{SET}\ntrain_loader = {MADE}",
            "setup": "batches = itertools.cycle(train_loader)",
        },
        at="batches = itertools",
    ),
    leaves(
        SHARED,
        "batches that are drawn only to be counted",
        {"data": f"{SET}\ntrain_loader = {MADE}", "after_epoch": "print(len(list(train_loader)))"},
        {"after_epoch": "accelerator.print(len(list(train_loader)))"},
    ),
    refuses(
        SHARED,
        "batches that are drawn before they are trained on",
        {"data": f"{SET}\ntrain_loader = {MADE}", "loop": "for x, y in list(train_loader):"},
        at="list(train_loader)",
    ),
    leaves(
        PREPARE,
        "a first look at a loader that has no name",
        {"options": f"{SET}\nlook = next(iter({MADE}))"},
        {"options": f"{SET}\nlook = next(iter({MADE}))"},
    ),
    leaves(PREPARE, "a loader that is only counted", {"setup": f"count = len({MADE})"}),
    leaves(
        "CT106",
        "a function that makes a loader which nothing iterates",
        {"definitions": f"def size(train_set):\n    return len({MADE})\n", "end": "size(train_set)"},
        main=True,
    ),
    leaves(PREPARE, "a list of something else", {"end": "layers = list(model.parameters())"}),
]


@each(POSITIVE, NEGATIVE)
def test_unnamed_loaders(case: Case) -> None:
    case.check()


def test_an_optimizer_of_the_batch_is_told_from_one_of_loose_parameters() -> None:
    attack = """\
def attack(model, x, y):
    rows = x.clone().detach().requires_grad_(True)
    turns = torch.optim.SGD([rows], lr=0.1)
    loss = -F.cross_entropy(model(rows), y)
    loss.backward()
    turns.step()
    return rows.detach()
"""
    slots = {**SLOTS, "definitions": attack, "loss": f"x = attack(model, x, y)\n{SLOTS['loss']}"}
    result = migrate(script(slots))
    assert result.refused
    assert ["torch.autograd.grad" in finding.remedy for finding in result.findings] == [True]
