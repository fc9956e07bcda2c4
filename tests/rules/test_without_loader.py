"""CT902: training without a DataLoader is converted for its placement, and said to be the same work on every rank; what
nobody knows to be none is taken for one (CT201)."""

from __future__ import annotations

from .support import SLOTS, Case, each, leaves

RULE = "CT902"
PREPARED = {
    "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
    "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
}
MOVED = {"batch": SLOTS["batch"]}  # as before: what is taken for a DataLoader may be none


def alone(name: str, before: dict[str, str], at: str = "loss.backward()", **after: str) -> Case:
    """Converted, but for the data: the device stays, because nothing else moves them."""
    return leaves(RULE, name, before, {**before, **PREPARED, **after}, findings=((RULE, at),))


def over(name: str, before: dict[str, str]) -> Case:
    """The same of a loop over what is known to be no DataLoader."""
    return alone(name, {**MOVED, **before}, at=before["loop"])


CONVERTED = [
    alone(
        "all data at once",
        {
            "data": "x = torch.ones(8, 8).to(device)\ny = torch.zeros(8, dtype=torch.long).to(device)",
            "loop": "for _ in range(4):",
            "batch": "",
        },
    ),
    alone(
        "batches cut by hand",
        {
            "data": "points = torch.ones(48, 8)\nlabels = torch.zeros(48, dtype=torch.long)",
            "loop": "for i in range(0, 48, 8):",
            "batch": "x, y = points[i : i + 8].to(device), labels[i : i + 8].to(device)",
        },
    ),
    alone(
        "batches cut by hand, counted",
        {
            "data": "points = torch.ones(48, 8)\nlabels = torch.zeros(48, dtype=torch.long)",
            "loop": "for n, i in enumerate(range(0, 48, 8)):",
            "batch": "x, y = points[i : i + 8].to(device), labels[i : i + 8].to(device)",
        },
    ),
    alone(
        "experience instead of data",
        {
            "data": "memory = []",
            "loop": "for _ in range(4):",
            "batch": "x = torch.stack([torch.ones(8) for _ in range(8)]).to(device)\n"
            "y = torch.zeros(8, dtype=torch.long).to(device)",
        },
    ),
]

STREAM = "from texts import BucketIterator"
UNKNOWN = "train_iter = BucketIterator(batch_size=8)"
JOINT = "model, optimizer, train_iter = accelerator.prepare(model, optimizer, train_iter)"
ROWS = """\
def rows(points, labels):
    for i in range(0, 48, 8):
        yield points[i : i + 8], labels[i : i + 8]
"""
POINTS = "points = torch.ones(48, 8)\nlabels = torch.zeros(48, dtype=torch.long)"
WRAPPED = "train_loader = Endless(train_loader)"


def assumed(name: str, before: dict[str, str], at: str, main: bool = False, **after: str) -> Case:
    """What the loop goes over is taken for a DataLoader, and said to be."""
    return Case(
        "CT201",
        name,
        before,
        {**MOVED, "device": PREPARED["device"], **after},
        False,
        findings=(("CT201", at),),
        main=main,
    )


ASSUMED = [
    assumed(
        "batches of an unknown library",
        {"imports": STREAM, "data": UNKNOWN, "loop": "for x, y in train_iter:"},
        at=UNKNOWN,
        prepare=JOINT,
    ),
    assumed(
        "batches of an unknown library, counted",
        {"imports": STREAM, "data": UNKNOWN, "loop": "for i, (x, y) in enumerate(train_iter):"},
        at=UNKNOWN,
        prepare=JOINT,
    ),
    assumed(
        "batches of an unknown object",
        {
            "imports": "from texts import Data",
            "data": "data = Data(8)\ntrain_iter = data.build()",
            "loop": "for x, y in train_iter:",
        },
        at="train_iter = data.build()",
        prepare=JOINT,
    ),
    assumed(
        "one of several loaders that an unknown function makes",
        {
            "imports": "from texts import load",
            "data": "train_iter, words = load(8)",
            "loop": "for x, y in train_iter:",
        },
        at="train_iter, words",
        prepare=JOINT,
    ),
    assumed(
        "drawn one by one",
        {
            "imports": STREAM,
            "data": UNKNOWN,
            "setup": "batches = iter(train_iter)",
            "loop": "for step in range(4):",
            "batch": "x, y = next(batches)\nx, y = x.to(device), y.to(device)",
        },
        at=UNKNOWN,
        batch="x, y = next(batches)\nx, y = x.to(device), y.to(device)",
        prepare=JOINT,
    ),
    Case(
        "CT201",
        "a stream that an unknown library makes of a loader",
        {
            "imports": "from streams import Endless",
            "data": f"{SLOTS['data']}\n{WRAPPED}",
            "loop": "for step in range(4):",
            "batch": "x, y = next(train_loader)\nx, y = x.to(device), y.to(device)",
        },
        {
            "data": f"{SLOTS['data']}\ntrain_loader = accelerator.prepare(train_loader)\n{WRAPPED}",
            "batch": "x, y = next(train_loader)",
            "prepare": PREPARED["prepare"],
        },
        False,
        findings=(("CT201", WRAPPED),),
    ),
]

KNOWN = [
    over(
        "a generator of the script's own",
        {
            "definitions": ROWS,
            "data": POINTS,
            "loop": "for x, y in rows(points, labels):",
        },
    ),
    over(
        "iterators of torchtext",
        {
            "imports": "from torchtext.data import BucketIterator",
            "data": UNKNOWN,
            "loop": "for x, y in train_iter:",
        },
    ),
    over(
        "folds of scikit-learn",
        {
            "imports": "from sklearn.model_selection import KFold",
            "data": f"{POINTS}\nfolds = KFold(4)",
            "loop": "for rows, _ in folds.split(points):",
            "batch": "x, y = points[rows].to(device), labels[rows].to(device)",
        },
    ),
    over(
        "rows in another order",
        {
            "data": POINTS,
            "loop": "for rows in torch.randperm(48).split(8):",
            "batch": "x, y = points[rows].to(device), labels[rows].to(device)",
        },
    ),
    leaves(
        RULE,
        "on the CPU, without a word of a device",
        {
            "device": "",
            "model": "model = nn.Linear(8, 3)",
            "data": "x = torch.ones(8, 8)\ny = torch.zeros(8, dtype=torch.long)",
            "loop": "for _ in range(4):",
            "batch": "",
        },
        {
            "data": "x = torch.ones(8, 8)\ny = torch.zeros(8, dtype=torch.long)\naccelerator = Accelerator(cpu=True)",
            "prepare": PREPARED["prepare"],
        },
        findings=((RULE, "loss.backward()"), ("CT105", "out = model(x)")),
    ),
]


@each(CONVERTED, ASSUMED, KNOWN)
def test_without_loader(case: Case) -> None:
    case.check()
