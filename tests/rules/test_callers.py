"""CT602: a function that does more for some of its callers than for others: `if opt is not None:`."""

from __future__ import annotations

from .support import Case, each

RULE, WHOLE = "CT602", "CT603"
BATCH = """\
def loss_batch(model, xb, yb, opt=None, metric=None):
    out = model(xb)
    loss = F.cross_entropy(out, yb)
    if opt is not None:
        {backward}
        opt.step()
        opt.zero_grad()
    {measured}
    return {loss}.item(), len(xb), result


def accuracy(out, y):
    return (out.argmax(1) == y).float().mean().item()
"""
OPTIONAL = "result = None\n    if metric is not None:\n        result = metric(out, yb)"
ALWAYS = "result = (out.argmax(1) == yb).sum().item()"
SLOTS = {
    "definitions": BATCH.format(backward="loss.backward()", measured=OPTIONAL, loss="loss"),
    "test_data": "test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))\n"
    "test_loader = DataLoader(test_set, batch_size=8)",
    "batch": "loss_batch(model, x.to(device), y.to(device), optimizer)",
    "loss": "",
    "backward": "",
    "step": "",
    "after_epoch": "model.eval()\nwith torch.no_grad():\n    found = [loss_batch(model, a.to(device), b.to(device), "
    "metric=accuracy) for a, b in test_loader]\nprint(sum(n for _, n, _ in found))",
}
REDUCED = 'accelerator.reduce(loss, reduction="mean")'

POSITIVE = [
    Case(
        RULE,
        "the step and the loss are training's, the measure is evaluation's",
        SLOTS,
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
            "definitions": BATCH.format(
                backward="accelerator.backward(loss)", measured=OPTIONAL, loss=REDUCED
            ),
            "batch": "loss_batch(model, x, y, optimizer)",
            "after_epoch": SLOTS["after_epoch"].replace("print(", "accelerator.print("),
        },
        at="return loss.item()",
        findings=((WHOLE, "test_loader = DataLoader"),),
    ),
    Case(
        RULE,
        "what counts the rows of both, one loader being whole, stays each process's own number",
        SLOTS | {"definitions": BATCH.format(backward="loss.backward()", measured=ALWAYS, loss="loss")},
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
            "definitions": BATCH.format(backward="accelerator.backward(loss)", measured=ALWAYS, loss=REDUCED),
            "batch": "loss_batch(model, x, y, optimizer)",
            "after_epoch": SLOTS["after_epoch"].replace("print(", "accelerator.print("),
        },
        at="return loss.item()",
        findings=((RULE, "result = (out"), (WHOLE, "test_loader = DataLoader")),
    ),
]


@each(POSITIVE)
def test_callers(case: Case) -> None:
    case.check()
