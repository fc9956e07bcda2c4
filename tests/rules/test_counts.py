"""CT602: a variable that holds the number of a batch's rows is that of all processes' rows, counted once a step."""

from __future__ import annotations

from .numbers import COUNT, LOSS, RULE
from .support import SLOTS, Case, converts, each, leaves

START = {"epoch": "seen, total = 0, 0.0", "after_epoch": "print(total / seen)"}
TOLD = {"after_epoch": "accelerator.print(total / seen)"}


def counted(name: str, before: str, after: str, at: str = "", **more: str) -> Case:
    return converts(RULE, name, {**START, "after_step": before, **more}, {**TOLD, "after_step": after}, at=at)


def uncounted(name: str, before: str, after: str, **more: str) -> Case:
    return leaves(RULE, name, {**START, "after_step": before, **more}, {**TOLD, "after_step": after})


POSITIVE = [
    counted(
        "counted where it is defined",
        "n = x.size(0)\nseen += n\ntotal += loss.item() * n",
        f"n = accelerator.gather_for_metrics(y).size(0)\nseen += n\ntotal += {LOSS}.item() * n",
        at="n = x.size",
    ),
    converts(
        RULE,
        "counted above the forward, too",
        {
            **START,
            "loss": "n = len(x)\nseen += n\n" + SLOTS["loss"],
            "after_step": "total += loss.item() * n",
        },
        {
            **TOLD,
            "loss": "n = len(accelerator.gather_for_metrics(y))\nseen += n\n" + SLOTS["loss"],
            "after_step": f"total += {LOSS}.item() * n",
        },
        at="n = len(x)",
    ),
    converts(
        RULE,
        "this process's rows are needed, too, and the labels in the loss",
        {
            **START,
            "loss": "n = len(x)\nseen += n\nout = model(x).reshape(n, 3)\nloss = F.cross_entropy(out, y)",
            "after_step": "total += loss.item() * n",
        },
        {
            **TOLD,
            "loss": f"n = len(x)\nrows = {COUNT}\nseen += rows\nout = model(x).reshape(n, 3)\n"
            "loss = F.cross_entropy(out, y)",
            "after_step": f"total += {LOSS}.item() * rows",
        },
        at="seen += n",
    ),
    *(
        converts(
            RULE,
            f"the rows of the outputs are those of the classes: {classes}",
            {
                **START,
                "after_step": f"{classes}\ntotal += (pred == y).sum().item() / len(out)",
                "after_epoch": "print(total)",
            },
            {
                "after_epoch": "accelerator.print(total)",
                "after_step": f"{classes}\npred, y = accelerator.gather_for_metrics((pred, y))\n"
                "total += (pred == y).sum().item() / len(pred)",
            },
            at="total += (pred",
        )
        for classes in (
            "pred = out.argmax(1)",
            "pred = torch.argmax(torch.softmax(out.data, dim=1), dim=1)",
            "_, pred = out.max(1)",
        )
    ),
]
NEGATIVE = [
    leaves(
        RULE,
        "read once, where it may be left out",
        {**START, "after_step": "n = len(x)\nif epoch > 0:\n    seen += n\ntotal += loss.item()"},
        {**TOLD, "after_step": f"n = len(x)\nif epoch > 0:\n    seen += {COUNT}\ntotal += {LOSS}.item()"},
    ),
    leaves(
        RULE,
        "a function of its own reads the number, too",
        {**START, "after_step": "n = len(x)\nseen += n\ntotal += n\nshow = lambda: n"},
        {
            **TOLD,
            "after_step": "n = len(x)\ny = accelerator.gather_for_metrics(y)\nseen += len(y)\ntotal += len(y)\n"
            "show = lambda: n",
        },
    ),
    uncounted(
        "this process's rows are needed, too, but the labels no more",
        "seen += n\ntotal += loss.item() * n",
        f"y = accelerator.gather_for_metrics(y)\nseen += len(y)\ntotal += {LOSS}.item() * len(y)",
        loss="n = len(x)\nout = model(x).reshape(n, 3)\nloss = F.cross_entropy(out, y)",
    ),
    leaves(
        RULE,
        "classes of other outputs",
        {
            **START,
            "after_step": "again = model(x)\npred = again.argmax(1)\ntotal += (pred == y).sum().item() / len(out)",
            "after_epoch": "print(total)",
        },
        {
            "after_epoch": "accelerator.print(total)",
            "after_step": "again = model(x)\npred = again.argmax(1)\n"
            "pred, out, y = accelerator.gather_for_metrics((pred, out, y))\n"
            "total += (pred == y).sum().item() / len(out)",
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_counts(case: Case) -> None:
    case.check()
