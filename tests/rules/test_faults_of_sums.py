"""Faults that a second adversarial trial found: sums over batches in the spellings that people use."""

from __future__ import annotations

import pytest

from tests.rules.faults import Fault

TEST_DATA = "test_loader = DataLoader(TensorDataset(torch.ones(21, 8), torch.zeros(21, dtype=torch.long)), batch_size=8)"
TESTED = (
    "model.eval()\n{}\nwith torch.no_grad():\n    for x, y in test_loader:\n"
    "        out = model(x.to(device))\n        loss = F.cross_entropy(out, y.to(device))\n        {}\nprint({})"
)
REDUCED = 'accelerator.reduce(loss, reduction="mean")'
ROWS = "accelerator.global_rows(x)"
WEIGHTED = "accelerator.weighted(loss)"


def summed(name: str, start: str, step: str, shown: str, *holds: str) -> Fault:
    return Fault(name, {"epoch": start, "after_step": step, "after_epoch": f"print({shown})"}, holds)


def evaluated(name: str, start: str, step: str, shown: str, **more: str) -> Fault:
    return Fault(name, {"test_data": TEST_DATA, "after_epoch": TESTED.format(start, step, shown)}, **more)


PHASES = """\
for phase in ("train", "test"):
    model.train(phase == "train")
    total = 0.0
    for x, y in train_loader if phase == "train" else test_loader:
        optimizer.zero_grad()
        with torch.set_grad_enabled(phase == "train"):
            out = model(x.to(device))
            loss = F.cross_entropy(out, y.to(device))
            if phase == "train":
                loss.backward()
                optimizer.step()
        total += loss.item() * x.size(0)
    print(phase, total)"""

FAULTS = [
    Fault(
        "a loss that is computed again from labels moved in its call",
        {
            "test_data": TEST_DATA,
            "epoch": PHASES,
            "loop": "if True:",
            "batch": "continue",
            **dict.fromkeys(("loss", "backward", "step"), ""),
        },
        holds=("F.cross_entropy(out, y).item()",),
        lacks=("device)",),
    ),
    Fault(
        "what a function makes of a constant is something, where other calls give it batches",
        {
            "definitions": "def centred(t):\n    n, width = t.size()\n    flat = t.view(n, width)\n"
            "    return flat - flat.mean(1, keepdim=True)\n",
            "setup": "fixed = [centred(t) for t in [torch.ones(8, 3, device=device)]]",
            "after_step": "for goal in fixed:\n    print((centred(out) - goal).pow(2).mean().item())",
        },
        holds=(
            "accelerator.print(accelerator.gather_for_metrics((centred(out) - goal).pow(2)).mean().item())",
        ),
    ),
    summed(
        "an entry by get",
        "sums = {}",
        'sums["loss"] = sums.get("loss", 0.0) + loss.item() * len(x)',
        'sums["loss"]',
        f'sums["loss"] = sums.get("loss", 0.0) + {REDUCED}.item() * {ROWS}',
    ),
    summed(
        "an entry of its own",
        'sums = {"loss": 0.0}',
        'sums["loss"] = loss.item() * len(x) + sums["loss"]',
        'sums["loss"]',
        f'sums["loss"] = {REDUCED}.item() * {ROWS} + sums["loss"]',
    ),
    summed(
        "a list by setdefault",
        "sums = {}",
        'sums.setdefault("loss", []).append(loss.item() * len(x))',
        'sum(sums["loss"])',
        f'sums.setdefault("loss", []).append({REDUCED}.item() * {ROWS})',
    ),
    summed(
        "a share of all rows that has a name",
        "total = 0.0",
        "share = len(x) / len(train_set)\ntotal += loss.item() * share",
        "total",
        f"share = {ROWS} / len(train_set)",
        f"total += {WEIGHTED}.item() * share",
    ),
    summed(
        "the loss times rows that has a name",
        "total = 0.0",
        "weighted = loss * len(x)\ntotal += weighted.item()",
        "total",
        f"weighted = {WEIGHTED} * {ROWS}",
        "total += weighted.item()",
    ),
    summed(
        "the loss and another number added up under a name",
        "total = 0.0",
        "both = loss.detach() + x.abs().mean()\ntotal += both.item()",
        "total",
        'both = accelerator.reduce(loss.detach(), reduction="mean") + accelerator.gather_for_metrics(x.abs()).mean()',
    ),
    evaluated(
        "votes of gathered labels by rows of this process are no number",
        "labels = []\nwith torch.no_grad():\n    for x, y in test_loader:\n        out = model(x.to(device))\n"
        "        labels.append(y.to(device))\nbank, hits = torch.cat(labels), 0",
        "votes = F.one_hot(bank[out.topk(2, dim=1).indices], 3).sum(1)\n"
        "        hits += (votes.argmax(1) == y.to(device)).sum().item()",
        "hits",
        lacks=("y = accelerator.gather_for_metrics(y)",),
        says="CT603",
    ),
    Fault(
        "a sum that a function of torch grows",
        {
            "epoch": "total = torch.zeros((), device=device)",
            "after_step": "total = torch.add(total, loss.detach() * len(x))",
            "after_epoch": "print(total.item())",
        },
        holds=("total = torch.add(total, loss.detach() * len(x))",),
        says="CT602",
    ),
    evaluated(
        "an entry by get, in evaluation",
        "sums = {}",
        'sums["loss"] = sums.get("loss", 0.0) + loss.item() * len(x)',
        'sums["loss"]',
        holds=("        out, y = accelerator.gather_for_metrics((out, y))\n",),
        lacks=("len(x)",),
    ),
    evaluated(
        "a list by setdefault, in evaluation",
        "sums = {}",
        'sums.setdefault("loss", []).append(loss.item() * len(x))',
        'sum(sums["loss"])',
        lacks=("train_loader, test_loader = accelerator.prepare",),
        says="CT603",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault) -> None:
    fault.check()
