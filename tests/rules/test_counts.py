"""CT602: a variable that holds the number of a batch's rows is that of all processes' rows."""

from __future__ import annotations

from .numbers import RULE, WEIGHTED, reduced
from .support import SLOTS, Case, converts, each, leaves

START = {"epoch": "seen, total = 0, 0.0", "after_epoch": "print(total / seen)"}
TOLD = {"after_epoch": "accelerator.print(total / seen)"}
ADDED = {**TOLD, "after_loop": reduced("total")}
ROWS = "accelerator.global_rows(y)"


def counted(name: str, before: str, after: str, at: str = "", **more: str) -> Case:
    return converts(
        RULE, name, {**START, "after_step": before, **more}, {**ADDED, "after_step": after}, at=at
    )


def uncounted(name: str, before: str, after: str, **more: str) -> Case:
    return leaves(RULE, name, {**START, "after_step": before, **more}, {**ADDED, "after_step": after})


POSITIVE = [
    counted(
        "counted where it is defined",
        "n = x.size(0)\nseen += n\ntotal += loss.item() * n",
        f"n = accelerator.global_rows(x)\nseen += n\ntotal += {WEIGHTED} * n",
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
            **ADDED,
            "loss": "n = accelerator.global_rows(x)\nseen += n\n" + SLOTS["loss"],
            "after_step": f"total += {WEIGHTED} * n",
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
            **ADDED,
            "loss": f"n = len(x)\nrows = {ROWS}\nseen += rows\nout = model(x).reshape(n, 3)\n"
            "loss = F.cross_entropy(out, y)",
            "after_step": f"total += {WEIGHTED} * rows",
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
                "after_step": f"{classes}\ntotal += "
                "accelerator.gather_for_metrics(pred == y).sum().item() / accelerator.global_rows(out)",
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
        {**ADDED, "after_step": f"n = len(x)\nif epoch > 0:\n    seen += {ROWS}\ntotal += {WEIGHTED}"},
    ),
    leaves(
        RULE,
        "a function of its own reads the number, too",
        {**START, "after_step": "n = len(x)\nseen += n\ntotal += n\nshow = lambda: n"},
        {
            **TOLD,
            "after_step": f"n = len(x)\nrows = {ROWS}\nseen += rows\ntotal += rows\nshow = lambda: n",
        },
    ),
    uncounted(
        "this process's rows are needed, too, but the labels no more",
        "seen += n\ntotal += loss.item() * n",
        f"rows = {ROWS}\nseen += rows\ntotal += {WEIGHTED} * rows",
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
            "total += accelerator.gather_for_metrics(pred == y).sum().item() / accelerator.global_rows(out)",
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_counts(case: Case) -> None:
    case.check()
