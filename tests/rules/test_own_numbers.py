"""CT602: what cannot be made global in training stays each process's own, and is no reason to refuse."""

from __future__ import annotations

import pytest

from .faults import Fault
from .support import SLOTS, migrate, script

FAR = "out.t().cumsum(1).max()"  # the sum over the rows that were seen so far, of the share at hand
DECIDED = f"broadcast_object_list([bool({FAR} > 9)])[0]"
IMPORTED = "from crosstrain.utils import broadcast_object_list"

FAULTS = [
    Fault(
        "rows of the last batch, counted behind the loop",
        {"after_epoch": "print(len(x))"},
        holds=("accelerator.print(len(x))",),
        lacks=("global_rows", "gather"),
        says="CT602",
    ),
    Fault(
        "hits of the last batch, added up behind the loop",
        {"after_epoch": "print((out.argmax(1) == y).sum().item())"},
        lacks=("gather",),
        says="CT602",
    ),
    Fault(
        "rows of the last batch, counted inside the loop and shown behind it",
        {"after_step": "rows = len(x)", "after_epoch": "print(rows)"},
        holds=("accelerator.print(rows)",),
        lacks=("global_rows",),
        says="CT602",
    ),
    Fault(
        "shown",
        {"after_step": f"print({FAR}.item())"},
        holds=(f"accelerator.print({FAR}.item())",),
        lacks=("gather", "broadcast"),
        says="CT602",
    ),
    Fault(
        "it ends the loop",
        {"after_step": f"if {FAR} > 9:\n    break"},
        holds=(f"if {DECIDED}:", IMPORTED),
        says="CT602",
    ),
    Fault(
        "it ends the loop, if anything else does not",
        {"after_step": f"if epoch > 0 and {FAR} > 9:\n    break"},
        holds=(f"if epoch > 0 and {DECIDED}:", IMPORTED),
    ),
    Fault(
        "a comparison that is kept",
        {
            "after_step": f"far = {FAR}.item() > 9\nif far:\n    break",
        },
        holds=(f"far = broadcast_object_list([bool({FAR}.item() > 9)])[0]", "if far:"),
    ),
    Fault(
        "the best of them is saved",
        {
            "setup": "best = 0.0",
            "after_step": f"now = {FAR}.item()\nif now > best:\n    best = now\n    torch.save(model.state_dict(), 'best.pt')",
        },
        holds=("if broadcast_object_list([bool(now > best)])[0]:",),
    ),
    Fault(
        "a plateau",
        {
            "setup": "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)",
            "after_step": f"seen = {FAR}",
            "after_epoch": "scheduler.step(seen)",
        },
        holds=("scheduler.step(broadcast_object_list([float(seen)])[0])",),
    ),
    Fault(
        "a function that decides",
        {
            "definitions": "class Stopper:\n    def __init__(self):\n        self.best, self.over = 0.0, False\n\n"
            "    def see(self, value):\n        if value < self.best:\n            self.over = True\n        self.best = value\n",
            "setup": "stopper = Stopper()",
            "after_step": f"stopper.see({FAR}.item())\nif stopper.over:\n    break",
        },
        holds=(f"stopper.see(broadcast_object_list([float({FAR}.item())])[0])", "if stopper.over:"),
    ),
    Fault(
        "it only decides what is shown",
        {"after_step": f"if {FAR} > 9:\n    print('far')"},
        holds=(f"if {FAR} > 9:",),
        lacks=("broadcast",),
    ),
    Fault(
        "hits beside rows that cannot be counted together stay one process's, too",
        {
            "epoch": "hits, far = 0, 0.0",
            "after_step": f"hits += (out.argmax(1) == y).sum().item()\nfar += {FAR}.item()",
            "after_epoch": "print(hits / far)",
        },
        holds=("hits += (out.argmax(1) == y).sum().item()",),
        lacks=("gather",),
        says="CT602",
    ),
    Fault(
        "hits that have nothing to do with it are gathered",
        {
            "epoch": "hits, far = 0, 0.0",
            "after_step": f"hits += (out.argmax(1) == y).sum().item()\nfar += {FAR}.item()",
            "after_epoch": "print(hits)\nprint(far)",
        },
        holds=(
            "hits += accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()",
            f"far += {FAR}.item()",
        ),
        says="CT602",
    ),
    Fault(
        "what training goes on with is refused",
        {
            "setup": "bank = torch.zeros(48, 3, device=device)",
            "loss": "out = model(x)\nloss = F.cross_entropy(out, y) + (out - bank[y]).pow(2).mean()\nbank[y] = out.detach()",
        },
        refused="CT602",
    ),
]

MEASURED = """\
def accuracy(model, loader, device, batches):
    hits, rows = 0, 0
    for i, (x, y) in enumerate(loader):
        if i == batches:
            break
        guess = model(x.to(device)).argmax(1)
        hits += (guess == y.to(device)).sum().item()
        rows += len(guess)
    return hits / rows
"""
PHASES = f"""\
for phase, loader in (("train", train_loader), ("test", test_loader)):
    model.train(phase == "train")
    for x, y in loader:
        out = model(x.to(device))
        loss = F.cross_entropy(out, y.to(device))
        if phase == "train":
            loss.backward()
            optimizer.step()
        print({FAR}.item())"""
FAULTS += [
    Fault(
        "a helper that measures a loader that is shared and one that is whole gathers nothing",
        {
            "definitions": MEASURED,
            "test_data": "test_loader = DataLoader(TensorDataset(torch.ones(21, 8), torch.zeros(21, dtype=torch.long)), batch_size=8)",
            "after_epoch": "print(accuracy(model, train_loader, device, 3), accuracy(model, test_loader, device, 3))",
        },
        holds=("hits += (guess ==", "rows += len(guess)"),
        lacks=("gather", "test_loader)  # prepared", ", test_loader = accelerator"),
        says="CT602",
    ),
    Fault(
        "where one loop trains and evaluates, it may be a number of the evaluation",
        {
            "test_data": "test_loader = DataLoader(TensorDataset(torch.ones(21, 8), torch.zeros(21, dtype=torch.long)), batch_size=8)",
            "epoch": PHASES,
            "loop": "if True:",
            "batch": "continue",
            **dict.fromkeys(("loss", "backward", "step"), ""),
        },
        refused="CT604",
    ),
]

SCORES = """\
def checked(held):
    if not isinstance(held, dict) or "far" not in held:
        raise TypeError("no scores")
    if held["far"].ndim != 0:
        raise ValueError("not a number")
    return held["far"]


def score(held):
    far = checked(held)
    if far > 9:
        return 9.0
    return float(far)
"""
FAULTS += [
    Fault(
        "what a test asks of form is alike, and one that only raises ends the run",
        {"definitions": SCORES, "after_step": f"print(score({{'far': {FAR}}}))"},
        holds=(f"accelerator.print(score({{'far': {FAR}}}))", "far = checked(held)"),
        lacks=("broadcast",),
        says="CT602",
    ),
    Fault(
        "a function that only computes may go two ways: what is done with its answer is decided once",
        {"definitions": SCORES, "after_step": f"if score({{'far': {FAR}}}) > 8:\n    break"},
        holds=(f"if broadcast_object_list([bool(score({{'far': {FAR}}}) > 8)])[0]:", "    if far > 9:"),
        says="CT602",
    ),
    Fault(
        "a batch that one process leaves out is left out by all",
        {"batch": f"x, y = x.to(device), y.to(device)\nout = model(x)\nif {FAR} > 9:\n    continue"},
        holds=(f"if any(gather_object([bool({FAR} > 9)])):", "from crosstrain.utils import gather_object"),
    ),
    Fault(
        "a step that one process must not make is made by none",
        {
            "backward": f"if {FAR} < 9:\n    loss.backward()\n    optimizer.step()",
            "step": "",
        },
        holds=(f"if all(gather_object([bool({FAR} < 9)])):",),
    ),
    Fault(
        "a test of two of them is decided as one",
        {"after_step": f"if {FAR} > 9 or {FAR} < 1:\n    break"},
        holds=(f"if broadcast_object_list([bool({FAR} > 9 or {FAR} < 1)])[0]:",),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_numbers_that_cannot_be_made_global(fault: Fault) -> None:
    fault.check()


def test_one_note_for_a_statement() -> None:
    slots = {"after_step": f"print({FAR}.item(), {FAR.replace('out', 'x')}.item())"}
    result = migrate(script({**SLOTS, **slots}))
    said = [f for f in result.findings if "local to each process" in f.reason]
    assert len(said) == 1
    assert said[0].reason.startswith(f"`{FAR}`, `{FAR.replace('out', 'x')}` stay local to each process: ")


BESIDE_THE_LOSS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Pairs(nn.Module):
    def forward(self, out, y):
        apart = torch.cdist(out, out)[y.unsqueeze(0) != y.unsqueeze(1)]
        near = torch.sum(apart < 1)
        return apart.sum() / (near + 1), near / apart.size(0)


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,))), batch_size=8)
model, criterion = nn.Linear(4, 2), Pairs()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for x, y in loader:
    optimizer.zero_grad()
    loss, share = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    total += float(share)
print(total)
"""


def test_a_number_that_comes_out_of_one_call_with_the_loss_is_said_to_be_each_process_s_own() -> None:
    """It stayed so without a word."""
    result = migrate(BESIDE_THE_LOSS)
    assert "total += float(share)" in result.after
    (said,) = [found for found in result.findings if found.rule == "CT602"]
    assert said.reason.startswith("`share` stays local to each process")


HELD_OUT = "test_loader = DataLoader(TensorDataset(torch.ones(21, 8), torch.zeros(21, dtype=torch.long)), batch_size=8)"


def test_what_a_function_of_another_package_makes_of_the_training_loader_is_said_to_be_each_process_s_own() -> (
    None
):
    slots = {
        "imports": "import zoo\nfrom tqdm import tqdm",
        "test_data": HELD_OUT,
        "loop": "for x, y in tqdm(train_loader):",
        "after_epoch": "print(zoo.score(model, train_loader), zoo.score(model, test_loader), len(train_loader))",
    }
    notes = [f.reason for f in migrate(script({**SLOTS, **slots})).findings if f.rule == "CT602"]
    assert len(notes) == 1, notes
    assert "`zoo.score` is a function of another package" in notes[0]
