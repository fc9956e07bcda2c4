"""Faults that a hunt found: values of one process's share that the rules once took for values of all."""

from __future__ import annotations

from .support import Case, converts, each, leaves, refuses

NUMBERS, BACKWARD, SHARED, WHOLE_EVALUATION = "CT602", "CT202", "CT605", "CT603"
GATHERED = "out, y = accelerator.gather_for_metrics((out, y))\n"
REDUCED = 'accelerator.reduce(loss, reduction="mean")'
SAVED = 'torch.save({"model": model.state_dict(), <loss>, "rows": <rows>}, "last.pt")'
ROW_BY_ROW = """\
out = model(x)
loss = 0
for b in range(x.size(0)):
    if y[b] > 0:
        loss = loss + F.mse_loss(out[b, 0], x[b, 0])
loss = loss / x.size(0)"""
COUNTED = ROW_BY_ROW.replace("loss = 0\n", "loss, used = 0, 0\n").replace(
    "> 0:\n", "> 0:\n        used += 1\n"
)


def measured(name: str, before: str, after: str, at: str = "") -> Case:
    """What stands after the step of a training loop."""
    return converts(
        NUMBERS,
        name,
        {"after_step": before},
        {"after_step": after},
        at=at or before.split("\n")[0],
    )


SHARES = [
    measured(
        "the values of a pair that has no rows",
        "print(out.max(0).values.sum().item())",
        "accelerator.print(accelerator.gather_for_metrics(out).max(0).values.sum().item())",
    ),
    measured(
        "the attribute of a distribution",
        "spread = torch.distributions.Categorical(logits=out)\nprint(spread.probs.max().item())",
        "spread = torch.distributions.Categorical(logits=accelerator.gather_for_metrics(out))\n"
        "accelerator.print(spread.probs.max().item())",
    ),
    measured(
        "a loss and a number of rows in a checkpoint",
        SAVED.replace("<loss>", '"loss": loss').replace("<rows>", "len(y)"),
        SAVED.replace("torch.save", "accelerator.save")
        .replace("<loss>", f'"loss": {REDUCED}')
        .replace("<rows>", "accelerator.global_rows(y)"),
    ),
    measured(
        "rows in a file",
        'torch.save(out, "out.pt")',
        'accelerator.save(accelerator.gather_for_metrics(out), "out.pt")',
    ),
]

PICKED = [
    measured(
        "rows that a comprehension reads by position",
        "print([y[i].item() for i in range(len(y))])",
        "y = accelerator.gather_for_metrics(y)\naccelerator.print([y[i].item() for i in range(len(y))])",
    ),
    measured(
        "rows that a comprehension counts by a test",
        "right = sum(1 for p, t in zip(out.argmax(1), y) if p == t)\nprint(right)",
        f"{GATHERED}right = sum(1 for p, t in zip(out.argmax(1), y) if p == t)\naccelerator.print(right)",
    ),
    measured(
        "a choice for every row",
        "right = sum([1 if p == t else 0 for p, t in zip(out.argmax(1), y)])\nprint(right)",
        f"{GATHERED}right = sum([1 if p == t else 0 for p, t in zip(out.argmax(1), y)])\naccelerator.print(right)",
    ),
    measured(
        "a loop that counts in a variable of its batch",
        "seen = 0\nfor i in range(len(y)):\n    seen += y[i].item()\nprint(seen)",
        "seen = 0\ny = accelerator.gather_for_metrics(y)\nfor i in range(len(y)):\n    seen += y[i].item()\n"
        "accelerator.print(seen)",
        at="for i in range",
    ),
    measured(
        "pairs of rows",
        "print(list(zip(y, out.argmax(1))))",
        "accelerator.print(\n    list(zip(accelerator.gather_for_metrics(y), "
        "accelerator.gather_for_metrics(out.argmax(1))))\n)",
    ),
]


def kept(name: str, setup: str, before: str, after: str) -> Case:
    """What a step keeps for later ones, under the name of what `setup` makes; printed in the end."""
    held = setup.split(" ")[0]
    told = {"setup": setup, "after_epoch": f"print({held})"}
    return converts(
        NUMBERS,
        name,
        {**told, "after_step": before},
        {**told, "after_step": after, "after_epoch": f"accelerator.print({held})"},
        at=before.split("\n")[0],
    )


KEPT = [
    kept(
        "a list that is cut to the last ones",
        "bank = []",
        "bank.append(out.detach())\nbank = bank[-3:]",
        "bank.append(accelerator.gather_for_metrics(out.detach()))\nbank = bank[-3:]",
    ),
    kept(
        "rows at the place that their number says",
        "bank, at = torch.zeros(48, 3), 0",
        "bank[at : at + len(x)] = out.detach().cpu()\nat += len(x)",
        "bank[at : at + accelerator.global_rows(x)] = accelerator.gather_for_metrics(out.detach()).cpu()\n"
        "at += accelerator.global_rows(x)",
    ),
    kept(
        "a bank that is moved on by the number of rows",
        "bank = torch.zeros(16, 3)",
        "bank = torch.roll(bank, len(x), 0)\nbank[: len(x)] = out.detach().cpu()",
        "bank = torch.roll(bank, accelerator.global_rows(x), 0)\n"
        "bank[: accelerator.global_rows(x)] = accelerator.gather_for_metrics(out.detach()).cpu()",
    ),
    kept(
        "what a function of torch writes into an older tensor",
        "most = torch.zeros(3)",
        "torch.maximum(most, out.detach().amax(0), out=most)",
        "torch.maximum(most, accelerator.gather_for_metrics(out.detach()).amax(0), out=most)",
    ),
    kept(
        "rows that are mapped",
        "seen = 0",
        "seen += sum(map(int, y))",
        "seen += sum(map(int, accelerator.gather_for_metrics(y)))",
    ),
    kept(
        "the first number of a size",
        "seen = 0",
        "seen += out.size()[0]",
        "seen += accelerator.global_rows(out)",
    ),
]

ATTACK = "delta = torch.zeros_like(x, requires_grad=True)\nF.cross_entropy(model(x + delta), y).backward()\n"
ATTACKED = ATTACK.replace(
    "F.cross_entropy(model(x + delta), y).backward()",
    "accelerator.backward(F.cross_entropy(model(x + delta), y))",
)
MEASURED = "out = model(x + 0.5 * delta.grad)\nloss = F.cross_entropy(out, y)"
SIGNED = "out = model(x + 0.5 * delta.grad.detach().sign())\nloss = F.cross_entropy(out, y)"
ATTACKS = [
    leaves(
        SHARED,
        "the gradient of a mean by its rows",
        {"loss": ATTACK + MEASURED},
        {"loss": ATTACKED + MEASURED},
        findings=[(SHARED, "delta.grad")],
    ),
    leaves(
        SHARED,
        "the sign of a gradient is the same in every share",
        {"loss": ATTACK + SIGNED},
        {"loss": ATTACKED + SIGNED},
    ),
]

TESTED = """\
test_loader = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long)), batch_size=8)"""
MEASURE = """\
model.eval()
right, seen = 0, 0
for x, y in test_loader:
    x, y = x.to(device), y.to(device)
    right += (model(x).argmax(1) == y).sum().item()
    seen += <seen>
print(right / seen)"""
WHOLE = MEASURE.replace("print", "accelerator.print")
COUNTERS = [
    leaves(  # a shared loader has fewer batches, so the rate would be too high
        WHOLE_EVALUATION,
        f"evaluation that counts its batches: {counted}",
        {"test_data": TESTED, "end": MEASURE.replace("<seen>", counted)},
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
            "end": WHOLE.replace("<seen>", counted),
        },
        findings=[(WHOLE_EVALUATION, f"seen += {counted}")],
    )
    for counted in ("8", "test_loader.batch_size")
]

RATES = [
    leaves(  # twice as many rows a batch on two processes
        NUMBERS,
        "rows divided by a number of batches",
        {
            "epoch": "right = 0",
            "after_step": "right += (out.argmax(1) == y).sum().item()",
            "after_epoch": "print(right / (len(train_loader) * 8))",
        },
        {
            "after_step": "right += accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()",
            "after_epoch": "accelerator.print(right / (len(train_loader) * 8))",
        },
        findings=[(NUMBERS, "print(right")],
    )
]

INNER = (
    "inner = F.cross_entropy(model(x), y)\n"
    "steps = torch.autograd.grad(inner, list(model.parameters()), create_graph=True)\n"
)
ADAPTED = "weight, bias = [p - 0.1 * g for p, g in zip(model.parameters(), steps)]\nout = F.linear(x, weight, bias)\n"
GRADIENTS = [
    refuses(  # their rows were once gathered, as if there were one for each sample
        BACKWARD,
        "a step by gradients that nobody averages",
        {
            "after_step": f"{INNER}with torch.no_grad():\n    for p, g in zip(model.parameters(), steps):\n        p -= 0.1 * g"
        },
        "steps = ",
    ),
    refuses(
        BACKWARD,
        "their norm",
        {"after_step": f"{INNER}print(steps[0].norm().item())"},
        "steps = ",
    ),
    leaves(
        BACKWARD,
        "steps that the loss goes through",
        {"loss": f"{INNER}{ADAPTED}loss = F.cross_entropy(out, y)"},
        findings=[(BACKWARD, "loss.backward()")],
    ),
    leaves(
        BACKWARD,
        "gradients by rows",
        {
            "loss": "x.requires_grad_(True)\nout = model(x)\nslope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]\n"
            "loss = F.cross_entropy(out, y) + slope.pow(2).sum(1).mean()"
        },
    ),
]

TRAINED = [
    leaves(  # `y[b]` of all processes' rows would be a row of the first process, whoever asks
        BACKWARD,
        "a loss that decides row by row decides about its own rows",
        {"loss": ROW_BY_ROW},
        findings=[(BACKWARD, "loss.backward()")],
    ),
    leaves(
        BACKWARD,
        "rows that a comprehension picks for the loss",
        {
            "loss": "out = model(x)\nmine = [i for i in range(len(y)) if y[i] >= 0]\n"
            "loss = F.cross_entropy(out[mine], y[mine])"
        },
        findings=[(BACKWARD, "loss.backward()")],
    ),
    refuses(
        NUMBERS,
        "what such a loop counts is printed",
        {"loss": COUNTED, "after_step": "print(used)"},
        "for b in range(x.size(0))",
    ),
    leaves(  # the positions are those of one share, and would be looked up among the rows of all
        NUMBERS,
        "positions found in one share",
        {
            "setup": "kept = []",
            "after_step": "hard = (out[:, 0] - y).abs().topk(2).indices\nfor i in hard:\n    kept.append(x[i])",
            "after_epoch": "print(torch.stack(kept).mean().item())",
        },
        {"after_epoch": "accelerator.print(torch.stack(kept).mean().item())"},
        findings=[(NUMBERS, "for i in hard")],
    ),
    refuses(
        NUMBERS,
        "such a loop ends by what it found",
        {"loss": ROW_BY_ROW.replace("    if y[b] > 0:", "    if y[b] < 0:\n        break\n    if y[b] > 0:")},
        "for b in range(x.size(0))",
    ),
    refuses(
        NUMBERS,
        "such a loop prints",
        {"loss": ROW_BY_ROW.replace("loss = loss +", "print(y[b].item())\n        loss = loss +")},
        "for b in range(x.size(0))",
    ),
]


@each(SHARES, PICKED, KEPT, ATTACKS, COUNTERS, RATES, GRADIENTS, TRAINED)
def test_share(case: Case) -> None:
    case.check()
