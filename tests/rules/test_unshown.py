"""CT602: no collective for numbers that nothing reads, or only a progress bar in every step."""

from __future__ import annotations

from .numbers import LOSS, RULE, WEIGHTED, reduced
from .support import Case, converts, each, leaves

BAR = {"imports": "from tqdm import tqdm", "loop": "bar = tqdm(train_loader)\nfor x, y in bar:"}
QUIET = {"loop": "bar = tqdm(train_loader, disable=not accelerator.is_local_main_process)\nfor x, y in bar:"}
START = {"epoch": "total, seen = 0.0, 0"}
HIT = "(out.argmax(1) == y).sum().item()"


def shown(name: str, after_step: str, at: str, **more: str) -> Case:
    """What a bar alone shows: it stays, with a note."""
    before = {**BAR, **START, "after_step": after_step, **more}
    return leaves(RULE, name, before, QUIET, findings=((RULE, at),))


def told(name: str, before: str, after: str, at: str, **more: str) -> Case:
    """What somebody is told beside the bar."""
    tells = {slot: text.replace("print(", "accelerator.print(") for slot, text in more.items()}
    adds = "accelerator.weighted(" in after
    reduces = {"after_loop": reduced("total")} if adds else {}
    return converts(
        RULE,
        name,
        {**BAR, **START, "after_step": before, **more},
        {**QUIET, **tells, "after_step": after, **reduces},
        at=at,
        findings=((RULE, "bar.set_postfix"),) if adds else (),
    )


def unread(name: str, after_step: str, **more: str) -> Case:
    return leaves(RULE, name, {**START, "after_step": after_step, **more}, {})


NEGATIVE = [
    shown("the loss of each step", "bar.set_postfix(loss=loss.item())", "bar.set_postfix"),
    shown("in a dictionary", "bar.set_postfix({'loss': loss.item()})", "bar.set_postfix"),
    shown("in a text", "bar.set_description(f'{epoch} {loss.item():.3f}')", "bar.set_description"),
    shown(
        "in a formatted text", "bar.set_description('%d %.3f' % (epoch, loss.item()))", "bar.set_description"
    ),
    shown(
        "a mean of the steps so far",
        "total += loss.item()\nseen += 1\nbar.set_postfix(loss=total / seen)",
        "bar.set_postfix",
    ),
    shown(
        "the share that was right so far",
        f"total += {HIT}\nseen += len(y)\nbar.set_postfix(acc=100 * total / seen)",
        "bar.set_postfix",
    ),
    unread("a list that nothing reads", "losses.append(loss.item())", epoch="losses = []"),
    unread("a sum that nothing reads", "total += loss.item()"),
]
POSITIVE = [
    told(
        "printed after the epoch, too",
        "total += loss.item()\nbar.set_postfix(loss=total)",
        f"total += {WEIGHTED}\nbar.set_postfix(loss=total)",
        "total += ",
        after_epoch="print(total)",
    ),
    told(
        "added up and printed later",
        "total += loss.item()\nbar.set_postfix(loss=loss.item())",
        f"total += {WEIGHTED}\nbar.set_postfix(loss=loss.item())",
        "total += ",
        after_epoch="print(total)",
    ),
    told(
        "the rows are told, so the right ones by them are those of all",
        f"total += {HIT}\nseen += len(y)\nbar.set_postfix(acc=total / seen)",
        "total += accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()\n"
        "seen += accelerator.global_rows(y)\nbar.set_postfix(acc=total / seen)",
        "total += ",
        after_epoch="print(seen)",
    ),
    converts(
        RULE,
        "a bar of epochs shows what the epoch came to",
        {
            "imports": "from tqdm import tqdm",
            "setup": "bar = tqdm(total=2)",
            **START,
            "after_step": "total += loss.item()",
            "after_epoch": "bar.set_postfix(loss=total)",
        },
        {
            "setup": "bar = tqdm(total=2, disable=not accelerator.is_local_main_process)",
            "after_step": f"total += {WEIGHTED}",
            "after_loop": reduced("total"),
        },
        at="total += ",
    ),
    converts(
        RULE,
        "a list that is given away",
        {"epoch": "losses = []", "after_step": "losses.append(loss.item())", "after_epoch": "print(losses)"},
        {"after_step": f"losses.append({LOSS}.item())", "after_epoch": "accelerator.print(losses)"},
        at="losses.append",
    ),
]


@each(POSITIVE, NEGATIVE)
def test_unshown(case: Case) -> None:
    case.check()
