"""CT602: a loss that is read several times in a step is reduced once."""

from __future__ import annotations

from .numbers import LOSS, RULE
from .support import SLOTS, Case, converts, each, leaves

START = {"epoch": "total, n = 0.0, 0"}


def together(name: str, before: str, after: str, at: str = "loss.item()") -> Case:
    return converts(RULE, name, {**START, "after_step": before}, {"after_step": after}, at=at)


def apart(name: str, before: str, after: str, **more: str) -> Case:
    """Readers for which the loss cannot be reduced together."""
    return leaves(RULE, name, {**START, "after_step": before, **more}, {"after_step": after})


POSITIVE = [
    together(
        "read twice",
        "total += loss.item()\nif n % 2 == 0:\n    print(f'{loss.item():.3f}')\nn += 1",
        f"loss = {LOSS}\ntotal += loss.item()\nif n % 2 == 0:\n"
        "    accelerator.print(f'{loss.item():.3f}')\nn += 1",
    ),
    together(
        "read first where it may be left out",
        "if n % 2 == 0:\n    print(loss.item())\ntotal += loss.item()",
        f"loss = {LOSS}\nif n % 2 == 0:\n    accelerator.print(loss.item())\ntotal += loss.item()",
        at="if n % 2",
    ),
]
NEGATIVE = [
    apart(
        "each reader may be left out",
        "if n % 2 == 0:\n    print(loss.item())\nif n % 3 == 0:\n    total += loss.item()",
        f"if n % 2 == 0:\n    accelerator.print({LOSS}.item())\nif n % 3 == 0:\n    total += {LOSS}.item()",
    ),
    apart(
        "the readers are an elif",
        "if n == 0:\n    print('first')\nelif loss.item() < total:\n    total = loss.item()\nn += 1",
        f"if n == 0:\n    accelerator.print('first')\nelif {LOSS}.item() < total:\n    total = {LOSS}.item()\nn += 1",
    ),
    apart(
        "it is kept as it is, too",
        "total += loss.item()\nprint(loss.item())\nlast = loss",
        f"total += {LOSS}.item()\naccelerator.print({LOSS}.item())\nlast = loss",
    ),
    apart(
        "a function of its own sees it",
        "total += loss.item()\nprint(loss.item())\nlast = lambda: loss",
        f"total += {LOSS}.item()\naccelerator.print({LOSS}.item())\nlast = lambda: loss",
    ),
    apart(
        "it is forgotten in the end",
        "total += loss.item()\nprint(loss.item())\ndel loss",
        f"total += {LOSS}.item()\naccelerator.print({LOSS}.item())\ndel loss",
    ),
    leaves(
        RULE,
        "more is added to it before backward",
        {
            **START,
            "loss": SLOTS["loss"]
            + "\ntotal += loss.item()\nprint(loss.item())\nloss += 0.1 * model.weight.square().sum()",
        },
        {
            "loss": SLOTS["loss"]
            + f"\ntotal += {LOSS}.item()\naccelerator.print({LOSS}.item())\nloss += 0.1 * model.weight.square().sum()"
        },
    ),
    leaves(
        RULE,
        "backward stands between the readers",
        {**START, "loss": SLOTS["loss"] + "\ntotal += loss.item()", "after_step": "print(loss.item())"},
        {
            "loss": SLOTS["loss"] + f"\ntotal += {LOSS}.item()",
            "after_step": f"accelerator.print({LOSS}.item())",
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_once(case: Case) -> None:
    case.check()
