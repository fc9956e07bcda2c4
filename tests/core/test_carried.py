"""State that goes from batch to batch of a training loop: dealt, with one note."""

import pytest

from .support import Trap, check, converted

SCRIPT = """
<model Net()>
loader = DataLoader(data)
hidden = None
for epoch in range(2):
    {before}
    for x, y in loader:
        {inside}
        loss = F.cross_entropy(out, y)
        <step loss>
"""
SAYS = "is carried from batch to batch"


def carried(name: str, before: str, inside: str, says: str = "") -> Trap:
    line = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
    return Trap(name, SCRIPT.format(before=before, inside=inside), (line,), says=says)


TRAPS = [
    carried("detached", "hidden = start()", "out, hidden = model(x, hidden); hidden = hidden.detach()", SAYS),
    carried(
        "a state whose sessions end",
        "hidden = start()",
        "hidden[:, ended(x)] = 0; out, hidden = model(x, h=hidden)",
        SAYS,
    ),
    carried("a pair of states", "h, c = start()", "out, (h, c) = model(x, (h.detach(), c.detach()))", SAYS),
    carried("a state of each batch", "pass", "hidden = start(len(x)); out, hidden = model(x, hidden)"),
    carried(
        "steps within a batch",
        "pass",
        "hidden = start(len(x)); out, hidden = model(x[0], hidden); out, hidden = model(x[1], hidden)",
    ),
    carried("no state", "pass", "x = x.float(); out = model(x)"),
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_carried(trap: Trap) -> None:
    check(trap)
    notes = [one for one in converted(trap.text).findings if SAYS in one.reason]
    assert len(notes) == (1 if trap.says else 0)
    assert all(len(f"{one.reason} {one.remedy}".split()) <= 25 for one in notes)
