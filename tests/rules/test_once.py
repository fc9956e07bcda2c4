"""CT602: a loss that is read several times in a step is reduced once, and several losses are reduced together."""

from __future__ import annotations

from .numbers import LOSS, RULE
from .support import SLOTS, Case, converts, each, leaves

START = {"epoch": "total, n = [], 0", "after_epoch": "print(total, n)"}
TOLD = {"after_epoch": "accelerator.print(total, n)"}


def together(name: str, before: str, after: str, at: str = "loss.item()") -> Case:
    return converts(RULE, name, {**START, "after_step": before}, {**TOLD, "after_step": after}, at=at)


def apart(name: str, before: str, after: str, **more: str) -> Case:
    """Readers for which the loss cannot be reduced together."""
    return leaves(RULE, name, {**START, "after_step": before, **more}, {**TOLD, "after_step": after})


TWO = {
    **START,
    "loss": "out = model(x)\nfit = F.cross_entropy(out, y)\nsize = out.square().mean()\nloss = fit + size",
}
BOTH = 'fit, size = accelerator.reduce((fit, size), reduction="mean")'
FIT, SIZE = (LOSS.replace("loss", name) for name in ("fit", "size"))


def two(name: str, before: str, after: str, at: str = "") -> Case:
    """Readers of two losses."""
    return converts(RULE, name, {**TWO, "after_step": before}, {**TOLD, "after_step": after}, at=at)


def two_apart(name: str, before: str, after: str) -> Case:
    """Readers for which two losses cannot be reduced together."""
    return leaves(RULE, name, {**TWO, "after_step": before}, {**TOLD, "after_step": after})


POSITIVE = [
    together(
        "read twice",
        "total.append(loss.item())\nif n % 2 == 0:\n    print(f'{loss.item():.3f}')\nn += 1",
        f"loss = {LOSS}\ntotal.append(loss.item())\nif n % 2 == 0:\n"
        "    accelerator.print(f'{loss.item():.3f}')\nn += 1",
    ),
    together(
        "read first where it may be left out",
        "if n % 2 == 0:\n    print(loss.item())\ntotal.append(loss.item())",
        f"loss = {LOSS}\nif n % 2 == 0:\n    accelerator.print(loss.item())\ntotal.append(loss.item())",
        at="if n % 2",
    ),
    together(
        "read as data and detached",
        "total.append(loss.data.item())\nprint(loss.detach().item())",
        f"loss = {LOSS}\ntotal.append(loss.data.item())\naccelerator.print(loss.detach().item())",
        at="loss.data",
    ),
    two(
        "two losses of one statement",
        "print(fit.item(), size.item())",
        f"{BOTH}\naccelerator.print(fit.item(), size.item())",
        at="print(fit",
    ),
    two(
        "two losses of two statements",
        "total.append(fit.item())\ntotal.append(size.item())",
        f"{BOTH}\ntotal.append(fit.item())\ntotal.append(size.item())",
        at="total.append(fit",
    ),
]
NEGATIVE = [
    apart(
        "each reader may be left out",
        "if n % 2 == 0:\n    print(loss.item())\nif n % 3 == 0:\n    total.append(loss.item())",
        f"if n % 2 == 0:\n    accelerator.print({LOSS}.item())\nif n % 3 == 0:\n    total.append({LOSS}.item())",
    ),
    apart(
        "the readers are an elif",
        "if n == 0:\n    print('first')\nelif loss.item() < n:\n    n = loss.item()\nn += 1",
        f"if n == 0:\n    accelerator.print('first')\nelif {LOSS}.item() < n:\n    n = {LOSS}.item()\nn += 1",
    ),
    apart(
        "it is kept as it is, too",
        "total.append(loss.item())\nprint(loss.item())\nlast = loss",
        f"total.append({LOSS}.item())\naccelerator.print({LOSS}.item())\nlast = loss",
    ),
    apart(
        "a function of its own sees it",
        "total.append(loss.item())\nprint(loss.item())\nlast = lambda: loss",
        f"total.append({LOSS}.item())\naccelerator.print({LOSS}.item())\nlast = lambda: loss",
    ),
    apart(
        "it is forgotten in the end",
        "total.append(loss.item())\nprint(loss.item())\ndel loss",
        f"total.append({LOSS}.item())\naccelerator.print({LOSS}.item())\ndel loss",
    ),
    leaves(
        RULE,
        "more is added to it before backward",
        {
            **START,
            "loss": SLOTS["loss"]
            + "\ntotal.append(loss.item())\nprint(loss.item())\nloss += 0.1 * model.weight.square().sum()",
        },
        {
            **TOLD,
            "loss": SLOTS["loss"]
            + f"\ntotal.append({LOSS}.item())\naccelerator.print({LOSS}.item())\nloss += 0.1 * model.weight.square().sum()",
        },
    ),
    leaves(
        RULE,
        "backward stands between the readers",
        {**START, "loss": SLOTS["loss"] + "\ntotal.append(loss.item())", "after_step": "print(loss.item())"},
        {
            **TOLD,
            "loss": SLOTS["loss"] + f"\ntotal.append({LOSS}.item())",
            "after_step": f"accelerator.print({LOSS}.item())",
        },
    ),
    two_apart(
        "one of the two losses is kept as it is, too",
        "total.append(fit.item())\ntotal.append(size.item())\nlast = size",
        f"total.append({FIT}.item())\ntotal.append({SIZE}.item())\nlast = size",
    ),
    two_apart(
        "the second loss is read where it may be left out",
        "total.append(fit.item())\nif n % 2 == 0:\n    total.append(size.item())",
        f"total.append({FIT}.item())\nif n % 2 == 0:\n    total.append({SIZE}.item())",
    ),
    two_apart(
        "the second loss is made after the first is read",
        "total.append(fit.item())\nsize = loss - fit\ntotal.append(size.item())",
        f"total.append({FIT}.item())\nsize = loss - fit\ntotal.append({SIZE}.item())",
    ),
    leaves(
        RULE,
        "two losses after the loop, where only the last one still has its weight",
        {**TWO, "after_epoch": "print(fit.item(), size.item())"},
        {"after_epoch": f"accelerator.print({FIT}.item(), {SIZE}.item())"},
    ),
]


@each(POSITIVE, NEGATIVE)
def test_once(case: Case) -> None:
    case.check()
