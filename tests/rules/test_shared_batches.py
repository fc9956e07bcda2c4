"""CT605 and CT904: what depends on how a batch is shared, and random numbers drawn alike; CT202: failures passed over."""

from __future__ import annotations

from .support import SLOTS, Case, Slots, each, leaves

SHARED, ALIKE, BACKWARD = "CT605", "CT904", "CT202"
SIZED = """\
batch_size = 8
train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
train_loader = DataLoader(train_set, batch_size=batch_size)"""
KEPT = "device = accelerator.device"
PLACED = f"accelerator = Accelerator()\n{KEPT}  # the fastest there is"
STATE = "state = torch.zeros(batch_size, 8, device=device)"
HELPER = "def start(n, device):\n    return torch.zeros(n, 8, device=device)"
HELPER_AFTER = HELPER
NOISE = (
    "noise = torch.randn(len(x), 8, device=x.device)\nout = model(x + noise)\nloss = F.cross_entropy(out, y)"
)
ORDER = "order = torch.randperm(x.size(0)).to(device)"
MIXUP = (
    "mixed = 0.7 * x + 0.3 * x[order, :]\nout = model(mixed)\n"
    "loss = 0.7 * F.cross_entropy(out, y) + 0.3 * F.cross_entropy(out, y[order])"
)
PREPARED = "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)"


def says(rule: str, name: str, before: Slots, at: str, after: Slots | None = None) -> Case:
    """The script is converted around it, and the finding names its line."""
    return leaves(rule, name, before, after, findings=[(rule, at)])


POSITIVE = [
    says(
        SHARED,
        "a tensor of one batch's size beside the batch",
        {"data": SIZED, "setup": STATE, "loss": "out = model(x + state)\nloss = F.cross_entropy(out, y)"},
        STATE,
        {"device": PLACED},
    ),
    says(
        SHARED,
        "made by a function that is given the size",
        {
            "definitions": HELPER,
            "data": SIZED,
            "setup": "state = start(batch_size, device)",
            "loss": "out = model(x + state)\nloss = F.cross_entropy(out, y)",
        },
        "return torch.zeros",
        {"device": PLACED},
    ),
    says(
        SHARED,
        "labels of ones for a whole batch",
        {
            "data": SIZED,
            "loss": "real = torch.full((batch_size,), 1.0, device=x.device)\nout = model(x)\n"
            "loss = F.mse_loss(out[:, 0], real)",
        },
        "torch.full",
    ),
    says(  # both models stay on one device from the start
        SHARED,
        "statistics of an averaged model",
        {
            "imports": "from torch.optim.swa_utils import AveragedModel, update_bn",
            "optimizer": f"averaged = AveragedModel(model)\n{SLOTS['optimizer']}",
            "end": "update_bn(train_loader, averaged)",
        },
        "update_bn(train_loader",
        {"device": PLACED, "model": SLOTS["model"]},
    ),
    says(
        SHARED,
        "batch normalisation of what may be one row",
        {"model": "model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3)).to(device)"},
        "nn.BatchNorm1d",
        {"model": "model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3))"},
    ),
    says(
        SHARED,
        "two loaders in one step",
        {
            "data": f"{SLOTS['data']}\nother_loader = DataLoader(train_set, batch_size=8)",
            "loop": "for (x, y), (z, _) in zip(train_loader, other_loader):",
            "batch": "x, y, z = x.to(device), y.to(device), z.to(device)",
            "loss": "out = model(x) + model(z)\nloss = F.cross_entropy(model(x), y) + F.mse_loss(model(z), model(x))",
        },
        "loss.backward()",
        {
            "prepare": "model, optimizer, train_loader, other_loader = accelerator.prepare(\n"
            "    model, optimizer, train_loader, other_loader\n)",
            "batch": "",
        },
    ),
    says(
        SHARED,
        "rows mixed with others of their batch",
        {
            "loss": f"{ORDER}\n{MIXUP}",
            "after_step": "print(loss.item(), (out.argmax(1) == y[order]).sum().item())",
        },
        "mixed = ",
        {
            "device": PLACED,
            "after_step": 'accelerator.print(accelerator.reduce(loss, reduction="mean").item(), '
            "accelerator.gather_for_metrics(out.argmax(1) == y[order]).sum().item())",
        },
    ),
    says(
        SHARED,
        "a batch mixed with itself backwards",
        {"loss": "out = model(0.7 * x + 0.3 * x.flip(0))\nloss = F.cross_entropy(out, y)"},
        "x.flip(0)",
    ),
    says(ALIKE, "noise beside the batch", {"loss": NOISE}, "torch.randn"),
    says(
        ALIKE,
        "noise of the batch's shape",
        {"loss": "out = model(x + 0.1 * torch.randn_like(x))\nloss = F.cross_entropy(out, y)"},
        "torch.randn_like",
    ),
    says(
        ALIKE,
        "dropout",
        {"model": "model = nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 3)).to(device)"},
        "out = model(x)",
        {"model": "model = nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 3))"},
    ),
    says(
        BACKWARD,
        "a step whose failure is passed over",
        {
            "loss": "out = model(x)\ntry:\n    loss = F.cross_entropy(out, y)\n    loss.backward()\n"
            "except RuntimeError:\n    continue",
            "backward": "",
        },
        "except RuntimeError",
        {
            "loss": "out = model(x)\ntry:\n    loss = F.cross_entropy(out, y)\n    accelerator.backward(loss)\n"
            "except RuntimeError:\n    continue",
            "backward": "",
        },
    ),
]

POSITIVE += [
    says(
        SHARED,
        "rows counted by the batch size",
        {"data": SIZED, "setup": "seen = 0", "after_step": "seen += batch_size"},
        "seen += batch_size",
    ),
    says(
        SHARED,
        "rows counted by the loader's batch size and a step",
        {
            "data": SIZED,
            "setup": "step, seen = 0, []",
            "after_step": "step += 1\nseen.append(step * train_loader.batch_size)",
        },
        "seen.append(step * train_loader.batch_size)",
    ),
]

POSITIVE += [
    says(
        SHARED,
        "rows counted by their batches, behind the loop",
        {"setup": "batches = 0", "after_step": "batches += 1", "end": "rows = batches * 8"},
        "rows = batches * 8",
    ),
    says(
        SHARED,
        "rows counted by the number that is the batch size",
        {"setup": "seen = 0", "after_step": "seen += 8"},
        "seen += 8",
    ),
]

NEGATIVE = [
    leaves(
        SHARED,
        "another number than the batch size",
        {"setup": "seen = 0", "after_step": "seen += 2"},
    ),
    leaves(
        SHARED,
        "a batch size that counts no rows",
        {
            "data": SIZED,
            "setup": "seen, width = 0, 2",
            "after_step": "seen += 1\nwide = width * batch_size",
            "end": "total = 3 * batch_size",
        },
    ),
    leaves(
        SHARED,
        "a tensor of one batch's size that meets no batch",
        {"data": SIZED, "setup": "fixed = torch.zeros(batch_size, 8)\nprint(fixed.sum())"},
        {"setup": "fixed = torch.zeros(batch_size, 8)\naccelerator.print(fixed.sum())"},
    ),
    leaves(
        SHARED,
        "statistics from a loader of their own",
        {
            "imports": "from torch.optim.swa_utils import AveragedModel, update_bn",
            "optimizer": f"averaged = AveragedModel(model)\n{SLOTS['optimizer']}",
            "end": "update_bn(DataLoader(train_set, batch_size=8), averaged)",
        },
        {"device": PLACED, "model": SLOTS["model"]},
    ),
    leaves(
        SHARED,
        "a size taken from the batch",
        {
            "data": SIZED,
            "loss": "state = torch.zeros(x.size(0), 8, device=x.device)\nout = model(x + state)\n"
            "loss = F.cross_entropy(out, y)",
        },
    ),
    leaves(
        SHARED,
        "batch normalisation without an uneven batch",
        {
            "data": SLOTS["data"].replace("shuffle=True", "drop_last=True"),
            "model": "model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3)).to(device)",
        },
        {"model": "model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3))"},
    ),
    leaves(
        "CT602",
        "a test for an empty batch",
        {"batch": "if len(y) == 0:\n    continue\nx, y = x.to(device), y.to(device)"},
        {"batch": "if len(y) == 0:\n    continue"},
    ),
    leaves(
        SHARED,
        "features turned around",
        {"loss": "out = model(torch.flip(x, dims=[1]))\nloss = F.cross_entropy(out, y)"},
    ),
    leaves(
        "CT104",
        "a tensor that a function makes for the batch is still moved",
        {
            "definitions": "def steps_of(n):\n    return torch.ones(n, 8)\n",
            "loss": "t = steps_of(x.shape[0]).to(device)\nout = model(x + t)\nloss = F.cross_entropy(out, y)",
        },
        {"device": PLACED},
    ),
    leaves(
        ALIKE,
        "noise outside of training",
        {"end": "model.eval()\nprint(model(torch.randn(2, 8, device=device)))"},
        {"device": PLACED, "end": "model.eval()\naccelerator.print(model(torch.randn(2, 8, device=device)))"},
    ),
    leaves(
        ALIKE,
        "one number for the whole batch",
        {"loss": "scale = torch.rand(1).item()\nout = model(x * scale)\nloss = F.cross_entropy(out, y)"},
    ),
    leaves(
        BACKWARD,
        "a failure that is raised again",
        {
            "loss": "out = model(x)\ntry:\n    loss = F.cross_entropy(out, y)\n    loss.backward()\n"
            'except RuntimeError:\n    print("out of memory?")\n    raise',
            "backward": "",
        },
        {
            "loss": "out = model(x)\ntry:\n    loss = F.cross_entropy(out, y)\n    accelerator.backward(loss)\n"
            'except RuntimeError:\n    accelerator.print("out of memory?")\n    raise',
            "backward": "",
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_shared_batches(case: Case) -> None:
    case.check()
