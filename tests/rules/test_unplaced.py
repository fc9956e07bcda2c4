"""CT105 for scripts that choose no device: what the prepared model is given beside its batches."""

from __future__ import annotations

from .support import Case, each, leaves

RULE = "CT105"
PLAIN = {"device": "torch.manual_seed(0)", "model": "model = nn.Linear(8, 3)", "batch": ""}
SEEDED = {"device": "torch.manual_seed(0)", "model": "accelerator = Accelerator()\nmodel = nn.Linear(8, 3)"}

ALONE = {
    "loop": "for step in range(3):",
    "batch": "x, y = torch.ones(8, 8), torch.zeros(8, dtype=torch.long)",
}

POSITIVE = [
    leaves(
        RULE,
        "tensors of a script without a DataLoader, which stays on the CPU",
        {**PLAIN, **ALONE, "data": ""},
        {
            "model": "accelerator = Accelerator(cpu=True)\nmodel = nn.Linear(8, 3)",
            "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
        },
        findings=[(RULE, "out = model(x)"), ("CT902", "loss.backward()")],
    ),
    leaves(
        RULE,
        "a tensor of the script's own",
        {**PLAIN, "end": "model.eval()\nprint(model(torch.ones(2, 8)))"},
        {**SEEDED, "end": "model.eval()\naccelerator.print(model(torch.ones(2, 8)))"},
        findings=[(RULE, "model(torch.ones")],
    ),
    leaves(
        RULE,
        "batches of an evaluation that stays whole",
        {
            **PLAIN,
            "test_data": "test_loader = DataLoader(train_set, batch_size=8)",
            "after_epoch": "model.eval()\nlosses = []\nfor x, y in test_loader:\n"
            "    losses.append(F.cross_entropy(model(x), y).item())",
        },
        SEEDED,
        findings=[("CT603", "losses.append"), (RULE, "losses.append")],
    ),
]

NEGATIVE = [
    leaves(RULE, "batches of prepared loaders alone", PLAIN, SEEDED),
    leaves(
        RULE,
        "without a DataLoader, where a device is chosen",
        {**ALONE, "data": "", "batch": ALONE["batch"] + "\nx, y = x.to(device), y.to(device)"},
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
            "batch": ALONE["batch"] + "\nx, y = x.to(device), y.to(device)",
            "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
        },
        findings=[("CT902", "loss.backward()")],
    ),
    leaves(
        RULE,
        "where a device is chosen",
        {"end": "model.eval()\nprint(model(torch.ones(2, 8, device=device)))"},
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
            "end": "model.eval()\naccelerator.print(model(torch.ones(2, 8, device=device)))",
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_unplaced(case: Case) -> None:
    case.check()
