"""CT104: classes that wrap a loader and move its batches, as courses teach them."""

from __future__ import annotations

from .support import Case, converts, each, leaves

RULE = "CT104"
MOVE = """\
def to_device(data, device):
    if isinstance(data, (list, tuple)):
        return [to_device(x, device) for x in data]
    return data.to(device, non_blocking=True)


"""
WRAPPER = '''\
class DeviceDataLoader:
    """Moves what a loader yields."""

    def __init__(self, dl, device):
        self.dl = dl
        self.device = device

    def __iter__(self):
        """One batch after the other."""
        for b in self.dl:
            yield to_device(b, self.device)

    def __len__(self):
        return len(self.dl)
'''
GIVES = "            yield to_device(b, self.device)\n"
PARTS = WRAPPER.replace(
    "        for b in self.dl:\n            yield to_device(b, self.device)\n",
    "        for x, y in self.dl:\n            yield x.to(self.device), y.to(self.device)\n",
)
DATA = """\
train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)"""
WRAPPED = f"{DATA}\ntrain_loader = DeviceDataLoader(train_loader, device)"
INLINE = f"""\
{DATA.replace("DataLoader(train_set, batch_size=8, shuffle=True)", "DeviceDataLoader(DataLoader(train_set, batch_size=8, shuffle=True), device)")}"""
TEST = """\
test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
test_loader = DeviceDataLoader(DataLoader(test_set, batch_size=8), device)"""
MEANS = (
    "model.eval()\ntotal = 0.0\nfor x, y in test_loader:\n    total += F.cross_entropy(model(x), y).item()"
)
KEPT = "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"


def unwrapped(name: str, data: str, definitions: str = MOVE + WRAPPER) -> Case:
    return converts(
        RULE,
        name,
        {"definitions": definitions, "data": data, "batch": ""},
        {"definitions": "", "data": DATA},
        at="class DeviceDataLoader",
    )


def kept(name: str, definition: str, after: str, helper: str = "\n") -> Case:
    """A class that does more than to move: it stays, and is made of the loader as prepared."""
    after = after.replace("dl, device", "dl").replace("        self.device = device\n", "")
    return leaves(
        RULE,
        name,
        {"definitions": MOVE + definition, "data": WRAPPED},
        {
            "definitions": helper + after,
            "data": f"{DATA}\ntrain_loader = accelerator.prepare(train_loader)\ntrain_loader = DeviceDataLoader(train_loader)",
            "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
        },
    )


POSITIVE = [
    unwrapped("by a line of its own", WRAPPED),
    unwrapped("where the loader is made", INLINE),
    unwrapped("part by part", WRAPPED, PARTS),
    unwrapped(
        "an old class", WRAPPED, MOVE + WRAPPER.replace("DeviceDataLoader:", "DeviceDataLoader(object):")
    ),
    converts(
        RULE,
        "a loader that stays whole is moved as before",
        {"definitions": MOVE + WRAPPER, "data": WRAPPED, "test_data": TEST, "batch": "", "end": MEANS},
        {"device": KEPT, "data": DATA},
        at="train_loader = DeviceDataLoader",
        findings=(("CT603", "total += F"),),
    ),
]

NEGATIVE = [
    kept(
        "a class that changes its batches",
        WRAPPER.replace("to_device(b, self.device)", "[2 * t for t in b]"),
        WRAPPER.replace("to_device(b, self.device)", "[2 * t for t in b]"),
        helper=MOVE,
    ),
    kept(
        "a class that gives batches twice",
        WRAPPER.replace(GIVES, GIVES * 2),
        WRAPPER.replace(GIVES, "            yield b\n" * 2),
    ),
    kept(
        "a class with a length of its own",
        WRAPPER.replace("len(self.dl)", "3"),
        WRAPPER.replace("len(self.dl)", "3").replace("to_device(b, self.device)", "b"),
    ),
    leaves(
        RULE,
        "a class around a list of the script's own",
        {
            "definitions": MOVE + WRAPPER,
            "end": "for b in DeviceDataLoader([torch.ones(2, 8)], device):\n    model(b)",
        },
        {"device": KEPT},
    ),
    leaves(
        RULE,
        "a helper for a tensor of the script's own",
        {"definitions": MOVE, "end": "model(to_device(torch.ones(2, 8), device))"},
        {"device": KEPT},
    ),
    leaves(
        RULE,
        "a class that is asked for by name",
        {"definitions": MOVE + WRAPPER, "end": "known = [DeviceDataLoader]"},
    ),
    leaves(RULE, "a class that takes parts apart, and that nobody uses", {"definitions": PARTS}),
    leaves(
        RULE,
        "a class that nobody uses",
        {"definitions": MOVE + WRAPPER},
    ),
]


@each(POSITIVE, NEGATIVE)
def test_wrappers(case: Case) -> None:
    case.check()
