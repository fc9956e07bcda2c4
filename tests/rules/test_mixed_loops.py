"""CT604: one loop that trains and evaluates."""

from __future__ import annotations

from .support import Case, each, leaves, refuses

RULE = "CT604"
DATA = """\
train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(test_set, batch_size=8)"""
PREPARED = """\
model, optimizer, train_loader, test_loader = accelerator.prepare(
    model, optimizer, train_loader, test_loader
)"""
LOOP = """\
{mode}
loader = train_loader if phase == "train" else test_loader
total, right = 0.0, 0
for x, y in loader:
    {moved}optimizer.zero_grad()
    with torch.set_grad_enabled(phase == "train"):
        out = model(x)
        loss = {loss}
        if phase == "train":  # only then
            {backward}
            optimizer.step()
    {measured}
{told}"""
BY_FLAG = 'model.train(phase == "train")'
BY_BRANCH = 'if phase == "train":\n    model.train()\nelse:\n    model.eval()'
MOVED = "x, y = x.to(device), y.to(device)\n    "
MEAN = "F.cross_entropy(out, y)"
WEIGHTED = "total += loss.item() * x.size(0)"
RIGHT = "right += (out.argmax(1) == y).sum().item()"
EMPTY = {
    "epoch": "",
    "backward": "",
    "step": "",
    "batch": "",
    "loop": 'for phase in ["train", "val"]:',
    "data": DATA,
}


def phases(measured: str, mode: str = BY_FLAG, loss: str = MEAN) -> dict[str, str]:
    told = "print(phase, total, right)"
    code = LOOP.format(
        mode=mode, moved=MOVED, loss=loss, backward="loss.backward()", measured=measured, told=told
    )
    return {**EMPTY, "loss": code}


def converted(measured: str, mode: str = BY_FLAG) -> dict[str, str]:
    told = "accelerator.print(phase, total, right)"
    code = LOOP.format(
        mode=mode, moved="", loss=MEAN, backward="accelerator.backward(loss)", measured=measured, told=told
    )
    return {"prepare": PREPARED, "loss": code, "backward": ""}


GATHERED = "out, y = accelerator.gather_for_metrics((out, y))\n    "
AGAIN = "total += F.cross_entropy(out, y).item() * y.size(0)"

POSITIVE = [
    Case(
        "CT602",
        "the loss of both phases is computed again over all rows",
        phases(f"{WEIGHTED}\n    {RIGHT}"),
        converted(f"{GATHERED}{AGAIN}\n    {RIGHT}"),
        at="total += ",
    ),
    Case(
        "CT602",
        "its mode chosen in a branch",
        phases(f"{WEIGHTED}\n    {RIGHT}", BY_BRANCH),
        converted(f"{GATHERED}{AGAIN}\n    {RIGHT}", BY_BRANCH),
        at="total += ",
    ),
]

NEGATIVE = [
    leaves(RULE, "two loops", {"after_epoch": "model.eval()"}),
    leaves(
        RULE,
        "one loop over a training loader in two phases",
        {
            "loop": "for x, y in train_loader if epoch else train_loader:",
        },
    ),
    refuses(
        RULE,
        "a loss that cannot be computed again",
        {
            **phases(f"{WEIGHTED}\n    {RIGHT}"),
            "loss": phases(f"{WEIGHTED}\n    {RIGHT}")["loss"].replace(
                f"loss = {MEAN}", f"loss = {MEAN}\n        loss = loss + out.pow(2).mean()"
            ),
        },
        at="total += ",
    ),
]


@each(POSITIVE, NEGATIVE)
def test_mixed_loops(case: Case) -> None:
    case.check()
