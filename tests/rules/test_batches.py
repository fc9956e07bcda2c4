"""CT104: batches, which the prepared loader yields on the device."""

from __future__ import annotations

from .support import Case, converts, each, leaves

RULE = "CT104"
ACCELERATOR = "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"
DICTS = {
    "definitions": """\
class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return {"x": torch.ones(8), "y": 0}
""",
    "data": "train_loader = DataLoader(Points(), batch_size=8)",
    "loop": "for batch in train_loader:",
    "loss": 'out = model(batch["x"])\nloss = F.cross_entropy(out, batch["y"])',
}
MOVE = """\
def move(thing, device):
    if isinstance(thing, dict):
        return {k: move(v, device) for k, v in thing.items()}
    return thing.to(device)
"""


IN_LOOPS = """\
def move(obj, device):
    if torch.is_tensor(obj):
        return obj.to(device)
    elif isinstance(obj, dict):
        res = {}
        for k, v in obj.items():
            res[k] = move(v, device)
        return res
    elif isinstance(obj, list):
        res = []
        for v in obj:
            res.append(move(v, device))
        return res
    else:
        raise TypeError("cannot be moved")
"""
BY_TYPE = """\
def move(data, where):
    \"\"\"Everything to one device.\"\"\"
    if isinstance(data, (list, tuple)):
        return type(data)(move(part, where) for part in data)
    if hasattr(data, "items"):
        return {k: move(v, where) for k, v in data.items()}
    return data.to(where, non_blocking=True) if torch.is_tensor(data) else data
"""
HELPERS = [
    ("by comprehensions", MOVE, "def move"),
    ("in loops", IN_LOOPS, "def move"),
    ("by the container's type", BY_TYPE, "def move"),
]


def batch(name: str, before: str, after: str = "", **more: str) -> Case:
    """A way to move a batch, and what is left of it."""
    return converts(RULE, name, {"batch": before, **more}, {"batch": after})


def of_dict(
    name: str,
    before: str,
    after: str = "",
    definitions: str = "",
    definitions_after: str = "",
    moved: str = "",
) -> Case:
    slots = {**DICTS, "batch": before}
    changed = {"batch": after}
    if definitions:
        slots["definitions"], changed["definitions"] = definitions, definitions_after
    return converts(RULE, name, slots, changed, at=moved or before.split("\n")[0])


def of_tuple(name: str, before: str, after: str) -> Case:
    slots = {"batch": before, "loop": "for batch in train_loader:"}
    return converts(RULE, name, slots, {"batch": after})


POSITIVE = [
    batch("both at once", "x, y = x.to(device), y.to(device)"),
    batch("one after the other", "x = x.to(device)\ny = y.to(device)"),
    batch("not waiting for it", "x = x.to(device, non_blocking=True)\ny = y.to(device, non_blocking=True)"),
    batch("with cuda()", "x, y = x.cuda(), y.cuda()"),
    batch("with cuda(), not waiting for it", "x = x.cuda(non_blocking=True)\ny = y.cuda(non_blocking=True)"),
    batch("where the script wants a GPU", "if torch.cuda.is_available():\n    x, y = x.cuda(), y.cuda()"),
    batch("by the device's name", 'x, y = x.to("cuda"), y.to("cuda:0")'),
    batch(
        "in a Variable",
        "x, y = Variable(x.cuda()), Variable(y.cuda())",
        "x, y = Variable(x), Variable(y)",
        imports="from torch.autograd import Variable",
    ),
    batch(
        "with a type that stays",
        "x, y = x.to(device, torch.float32), y.to(device)",
        "x, y = x.to(torch.float32), y",
    ),
    batch("with a shape that stays", "x = x.to(device).view(-1, 8)\ny = y.to(device)", "x = x.view(-1, 8)"),
    converts(
        RULE,
        "where it is used",
        {"batch": "", "loss": "out = model(x.to(device))\nloss = F.cross_entropy(out, y.to(device))"},
        {"loss": "out = model(x)\nloss = F.cross_entropy(out, y)"},
    ),
    converts(
        RULE,
        "new names for the moved",
        {
            "batch": "inputs, labels = x.to(device), y.to(device)",
            "loss": "loss = F.cross_entropy(model(inputs), labels)",
        },
        {"batch": "inputs, labels = x, y"},
    ),
    converts(
        RULE,
        "a list comprehension",
        {"batch": "x, y = [t.to(device) for t in (x, y)]"},
        {"batch": ""},
    ),
    of_dict("a dictionary, made anew", "batch = {k: v.to(device) for k, v in batch.items()}"),
    of_dict(
        "a dictionary, entry by entry",
        "for k in batch:\n    batch[k] = batch[k].to(device)",
    ),
    of_dict(
        "a dictionary, entry by entry with items()",
        "for k, v in batch.items():\n    batch[k] = v.to(device)",
    ),
    of_dict("a batch that moves itself", "batch = batch.to(device)"),
    converts(
        RULE,
        "entries of a dictionary",
        {
            **DICTS,
            "batch": 'x, y = batch["x"].to(device), batch["y"].to(device)',
            "loss": "loss = F.cross_entropy(model(x), y)",
        },
        {"batch": 'x, y = batch["x"], batch["y"]'},
        at='x, y = batch["x"]',
    ),
    *(
        of_dict(
            f"a helper that moves what is nested: {name}",
            "batch = move(batch, device)",
            definitions=f"{helper}\n\n{DICTS['definitions']}",
            definitions_after=f"\n{DICTS['definitions']}",
            moved=moved,
        )
        for name, helper, moved in HELPERS
    ),
    of_tuple("mapped over the batch", "x, y = map(lambda t: t.to(device), batch)", "x, y = batch"),
    of_tuple("collected in a tuple", "x, y = tuple(t.to(device) for t in batch)", "x, y = batch"),
    of_tuple(
        "a generator",
        "x, y = (t.to(device) for t in batch)",
        "x, y = batch",
    ),
    of_tuple("a list", "x, y = [t.to(device) for t in batch]", "x, y = batch"),
    of_tuple(
        "a list under the same name", "batch = [t.to(device) for t in batch]\nx, y = batch", "x, y = batch"
    ),
    of_tuple("by position", "x = batch[0].to(device)\ny = batch[1].to(device)", "x = batch[0]\ny = batch[1]"),
    of_tuple(
        "a tuple under the same name",
        "batch = tuple(t.to(device) for t in batch)\nx, y = batch",
        "x, y = batch",
    ),
    batch(
        "in a volatile Variable",
        "x, y = Variable(x.cuda(), volatile=True), Variable(y.cuda())",
        "x, y = Variable(x, volatile=True), Variable(y)",
        imports="from torch.autograd import Variable",
    ),
    batch(
        "a type of CUDA's own",
        "x = x.type(torch.cuda.FloatTensor)\ny = y.type(torch.cuda.LongTensor)",
        "x = x.float()\ny = y.long()",
    ),
]

NEGATIVE = [
    leaves(
        RULE,
        "a helper that also changes what it moves",
        {
            "definitions": "def scaled(thing, device):\n    return thing.to(device) / 2",
            "batch": "x = scaled(x, device)\ny = y.to(device)",
        },
        {
            "definitions": "def scaled(thing):\n    return thing / 2",
            "batch": "x = scaled(x)",
        },
    ),
    leaves(
        RULE,
        "a helper that changes the type",
        {
            "definitions": "def floats(thing, device):\n    return thing.to(device, torch.float64).float()",
            "batch": "x = floats(x, device)\ny = y.to(device)",
        },
        {
            "definitions": "def floats(thing):\n    return thing.to(torch.float64).float()",
            "batch": "x = floats(x)",
        },
    ),
    leaves(
        RULE,
        "a helper that evaluation still needs",
        {
            **DICTS,
            "definitions": f"{MOVE}\n\n{DICTS['definitions']}",
            "batch": "",
            "end": "model.eval()\nprint(model(move({'x': torch.ones(2, 8)}, device)['x']))",
        },
        {
            "device": ACCELERATOR,
            "end": "model.eval()\naccelerator.print(model(move({'x': torch.ones(2, 8)}, device)['x']))",
        },
    ),
    leaves(RULE, "where it is already", {"batch": "x = x.to(x.device)"}),
    leaves(RULE, "where the output is", {"after_step": "labels = y.to(out.device)"}),
    leaves(RULE, "a type by keyword", {"batch": "x = x.to(dtype=torch.float32)"}),
    leaves(RULE, "a type by its name", {"batch": "x = x.type(torch.float32)"}),
    leaves(RULE, "a type of another tensor", {"batch": "x = x.type_as(model.weight)"}),
    leaves(RULE, "one dimension more and one less", {"batch": "x = x.unsqueeze(0).squeeze(0)"}),
    leaves(RULE, "rows put together", {"batch": "x, y = torch.cat([x, x]), torch.cat([y, y])"}),
    leaves(RULE, "parts that are picked", {"after_step": "labels = [t for t in (x, y) if t.dim() == 1]"}),
    leaves(RULE, "a dictionary of the batch", {"after_step": 'seen = {"x": x, "y": y}'}),
    leaves(RULE, "an image layout", {"batch": "x = x.contiguous(memory_format=torch.contiguous_format)"}),
    leaves(
        RULE,
        "a data set that puts its items somewhere",
        {
            "definitions": (
                "class Points(torch.utils.data.Dataset):\n"
                "    def __init__(self, device):\n"
                "        self.device = device\n"
                "\n"
                "    def __len__(self):\n"
                "        return 48\n"
                "\n"
                "    def __getitem__(self, index):\n"
                "        return torch.ones(8).to(self.device), 0\n"
            ),
            "data": "train_loader = DataLoader(Points(device), batch_size=8)",
        },
        {"device": ACCELERATOR},
    ),
    leaves(
        RULE,
        "items that a collate function puts somewhere",
        {
            "definitions": (
                "def collate(rows):\n"
                "    return torch.stack([r[0] for r in rows]).cpu(), torch.tensor([r[1] for r in rows])\n"
            ),
            "data": (
                "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
                "train_loader = DataLoader(train_set, batch_size=8, collate_fn=collate)"
            ),
        },
    ),
    leaves(RULE, "what the model gives back", {"after_step": "kept = out.detach().to(torch.float64)"}),
    leaves(RULE, "another type and no device", {"batch": "x = x.to(torch.float32)"}),
    leaves(RULE, "floats and longs", {"batch": "x, y = x.float(), y.long()"}),
    leaves(RULE, "the type of another tensor", {"batch": "x = x.to(y).type_as(model.weight)"}),
    leaves(RULE, "the CPU by its name", {"after_step": 'seen = x.to("cpu")'}),
    leaves(RULE, "back to the CPU", {"after_step": "seen = out.detach().cpu()"}),
    leaves(RULE, "new data of the step", {"after_step": "noise = torch.zeros(3).to(x.device)"}),
    leaves(
        RULE,
        "new data of the batch's size must still be moved",
        {"after_step": "noise = torch.zeros(x.size(0)).to(device)"},
        {"device": ACCELERATOR},
    ),
    leaves(RULE, "a shape", {"batch": "x = x.view(x.size(0), -1)"}),
    leaves(
        RULE,
        "data that comes from no loader",
        {"end": "probe = torch.ones(2, 8).to(device)\nmodel(probe)"},
        {"device": ACCELERATOR},
    ),
    leaves(
        RULE,
        "an evaluation loader that is not prepared",
        {
            "test_data": "test_loader = DataLoader(train_set, batch_size=8)",
            "after_epoch": (
                "model.eval()\n"
                "losses = []\n"
                "with torch.no_grad():\n"
                "    for x, y in test_loader:\n"
                "        x, y = x.to(device), y.to(device)\n"
                "        losses.append(F.cross_entropy(model(x), y).item())"
            ),
        },
        {"device": ACCELERATOR},
        findings=[("CT603", "losses.append")],
    ),
    leaves(RULE, "a name in a comment", {"batch": "# x.to(device) happens in the loader\nx = x.clone()"}),
    leaves(RULE, "a copy kept on purpose", {"batch": "x = x.clone().detach()"}),
    leaves(RULE, "pinned", {"batch": "x = x.contiguous()"}),
]


@each(POSITIVE, NEGATIVE)
def test_batches(case: Case) -> None:
    case.check()
