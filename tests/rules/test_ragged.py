"""CT602 and CT202: batches that every process pads to the longest row of its own share."""

from __future__ import annotations

from .support import SLOTS, Case, Slots, converts, each, leaves, migrate, script, unbroken

NUMBERS, BACKWARD = "CT602", "CT202"
PAD = """\
def collate(rows):
    longest = max(len(r[0]) for r in rows)
    x = torch.stack([F.pad(r[0], (0, longest - len(r[0]))) for r in rows])
    return x, torch.tensor([r[1] for r in rows])"""
APPENDED = """\
def collate(rows):
    xs, ys = [], []
    for row in rows:
        xs.append(row[0])
        ys.append(row[1])
    return nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.tensor(ys)"""
TAGS = """\
def collate(rows):
    x = nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
    y = nn.utils.rnn.pad_sequence([r[1] for r in rows], batch_first=True)
    return x, y"""
DATA = """\
train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
train_loader = DataLoader(train_set, batch_size=8, shuffle=True, collate_fn={})"""
COUNTED = "accelerator.global_rows(x)"


SEEN = ((BACKWARD, "F.cross_entropy(out, y)"),)  # what a model makes of the padding is said


def padding(collate: str = PAD, given: str = "collate", **more: str) -> Slots:
    return {"definitions": collate, "data": DATA.format(given), **more}


POSITIVE = [
    converts(
        NUMBERS,
        "labels beside padded rows, moved in one line",
        padding(
            batch="x, y = (t.to(device) for t in (x, y))",
            after_step="print(len(y))",
        ),
        {"batch": "", "after_step": "accelerator.print(accelerator.global_rows(y))"},
        at="print(len(y))",
        findings=SEEN,
    ),
    converts(
        NUMBERS,
        "rows of a padded tensor are counted",
        padding(after_step="print(len(x))"),
        {"after_step": f"accelerator.print({COUNTED})"},
        findings=SEEN,
    ),
    converts(
        NUMBERS,
        "counted by the size of a variable",
        padding(after_step="n = x.size(0)\nprint(n)"),
        {"after_step": f"n = {COUNTED}\naccelerator.print(n)"},
        at="n = x.size(0)",
        findings=SEEN,
    ),
    converts(
        NUMBERS,
        "by a partial collate function",
        padding(
            given="partial(collate)", imports="from functools import partial", after_step="print(x.shape[0])"
        ),
        {"after_step": f"accelerator.print({COUNTED})"},
        findings=SEEN,
    ),
    converts(
        NUMBERS,
        "by a lambda",
        padding(given="lambda rows: collate(rows)", after_step="print(len(x))"),
        {"after_step": f"accelerator.print({COUNTED})"},
        findings=SEEN,
    ),
    converts(
        NUMBERS,
        "labels beside it have one length",
        padding(after_step="print((out.argmax(1) == y).sum().item())"),
        {"after_step": "accelerator.print(accelerator.gather_for_metrics(out.argmax(1) == y).sum().item())"},
        findings=SEEN,
    ),
    converts(
        NUMBERS,
        "a number per position is added up per process",
        padding(after_step="print((x != 0).sum().item())"),
        {
            "device": 'accelerator = Accelerator(even_batches="weighted")  # the fastest there is',
            "after_step": 'accelerator.print(accelerator.reduce((x != 0).sum(), reduction="sum").item())',
        },
        findings=SEEN,
    ),
    Case(
        BACKWARD,
        "a mean over positions counts the padding",
        padding(
            TAGS,
            loss="out = model(x)\nloss = F.cross_entropy(out.view(-1, 3), y.view(-1))",
        ),
        positive=False,
        findings=((BACKWARD, "y.view(-1)"),),
    ),
]

NEGATIVE = [
    leaves(
        BACKWARD,
        "one label a row",
        padding(APPENDED),
        findings=SEEN,
    ),
    leaves(
        NUMBERS,
        "rows of one length are counted as they are",
        padding(
            "def collate(rows):\n    return torch.stack([r[0] for r in rows]), torch.tensor([r[1] for r in rows])",
            after_step="print(len(x))",
        ),
        {"after_step": f"accelerator.print({COUNTED})"},
    ),
    leaves(
        NUMBERS,
        "labels alone are counted as they are",
        padding(after_step="print(len(y))"),
        {"after_step": "accelerator.print(accelerator.global_rows(y))"},
        findings=SEEN,
    ),
    leaves(
        NUMBERS,
        "padded rows are kept",
        padding(setup="seen = []", after_step="seen.extend(x.tolist())", after_epoch="print(seen)"),
        {"after_epoch": "accelerator.print(seen)"},
        findings=[(NUMBERS, "seen.extend"), *SEEN],
    ),
    leaves(
        NUMBERS,
        "gradients by the rows of a share are measured",
        {
            "definitions": "def slope(a, b):\n    return torch.autograd.grad(a.sum(), b, create_graph=True)[0].norm().item()",
            "loss": "x.requires_grad_()\nout = model(x)\nextra = out * 2\nloss = F.cross_entropy(out, y)",
            "after_step": "print(slope(extra, x))",
        },
        {"after_step": "accelerator.print(slope(extra, x))"},
        findings=[(NUMBERS, "print(slope")],
    ),
]


@each(POSITIVE, NEGATIVE)
def test_ragged(case: Case) -> None:
    case.check()


def test_a_list_that_is_filled_by_a_bound_method() -> None:
    """`append = xs.append`: what it fills is not told, and nothing breaks on it."""
    bound = APPENDED.replace("    for row", "    append = xs.append\n    for row").replace(
        "xs.append(row", "append(row"
    )
    result = migrate(script({**SLOTS, **padding(collate=bound, after_step="print(len(x))")}))
    assert f"accelerator.print({COUNTED})" in result.after


def test_parts_in_parts() -> None:
    """The second of a pair that is the first part of the batch is padded, and not the labels."""
    nested = TAGS.replace(
        "y = nn.utils.rnn.pad_sequence([r[1] for r in rows], batch_first=True)",
        "y = torch.tensor([r[1] for r in rows])",
    )
    nested = nested.replace("return x, y", "return (torch.tensor([len(r[0]) for r in rows]), x), y")
    for loop in ("for (n, x), y in train_loader:", "for i, ((n, x), y) in enumerate(train_loader):"):
        slots = {**SLOTS, **padding(collate=nested, loop=loop, batch="", after_step="print(len(x), len(y))")}
        result = migrate(script(slots))
        assert f"accelerator.print({COUNTED}, accelerator.global_rows(y))" in unbroken(result.after)
