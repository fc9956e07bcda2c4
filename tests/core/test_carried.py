"""State that goes from batch to batch of a training loop: dealt, with one note."""

import pytest

from .support import Trap, check, converted, each_row

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
START = "hidden = start()"
STEP = "out, hidden = model(x[{}], hidden);"
BRANCH = "if keep: hidden = hidden.detach()\n        else: hidden = start()\n        "


def carried(name: str, before: str, inside: str, says: str = "") -> Trap:
    line = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
    return Trap(name, SCRIPT.format(before=before, inside=inside), (line,), says=says)


TRAPS = [
    carried("detached", START, "out, hidden = model(x, hidden); hidden = hidden.detach()", SAYS),
    carried("whose sessions end", START, "hidden[:, ended(x)] = 0; out, hidden = model(x, h=hidden)", SAYS),
    carried("given to forward", START, "out, _, hidden = model.forward(x, hidden, True)", SAYS),
    carried("a pair of states", "h, c = start()", "out, (h, c) = model(x, (h.detach(), c.detach()))", SAYS),
    carried("begun anew by one branch", START, BRANCH + "out, hidden = model(x, hidden)", SAYS),
    carried("a state of each batch", "pass", "hidden = start(len(x)); out, hidden = model(x, hidden)"),
    carried("steps within a batch", "pass", "hidden = start(len(x)); " + STEP.format(0) + STEP.format(1)),
    carried("no state", "pass", "x = x.float(); out = model(x)"),
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_carried(trap: Trap) -> None:
    check(trap)
    notes = [one for one in converted(trap.text).findings if SAYS in one.reason]
    assert len(notes) == (1 if trap.says else 0)
    assert all(len(f"{one.reason} {one.remedy}".split()) <= 25 for one in notes)


@each_row("""
loss => below => says
real - k * fake => k += 0.1 * (real.item() - fake.item()) => `k`
real + net.R ** 2 => net.R.data = torch.quantile(fake.detach(), 0.9) => `net.R`
real - fake @ bank.T => bank[n] = fake.detach() => `bank`
real - k * fake => k = min(1, n / 10); mean = 0.9 * mean + fake.item() => ''
(real - fake / k) + total => total = 0.0; k = fake => ''
""")
def test_what_a_step_makes_of_its_batches_for_later_ones(loss: str, below: str, says: str) -> None:
    inside = (
        f"real = model(x).mean(); fake = model(y).mean(); loss = {loss}\n        <step loss>\n        {below}"
    )
    script = SCRIPT[: SCRIPT.index("        loss = ")].format(before="pass", inside=inside)
    found = [
        one.reason for one in converted(Trap("kept", script).text).findings if "later steps" in one.reason
    ]
    assert [one.partition(" is ")[0] for one in found] == [says] * bool(says)


@pytest.mark.parametrize(
    ("written", "is_said"),
    [("ctx.memory[at] = rows", True), ("own[at] = rows", False), ("ctx.grads[at] = rows", False)],
)
def test_rows_that_a_backward_pass_writes_into_a_memory_are_one_process_s(
    written: str, is_said: bool
) -> None:
    own = "class Near(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, rows, at, memory):\n"
    own += "        ctx.memory, ctx.grads = memory, torch.zeros(8); ctx.save_for_backward(rows, at)\n        return rows @ memory.T\n"
    own += f"    @staticmethod\n    def backward(ctx, up):\n        rows, at = ctx.saved_tensors\n        {written}\n"
    text = own + SCRIPT.format(before="pass", inside="out = Near.apply(model(x), y, memory)")
    said = [one for one in converted(Trap("memory", text).text).findings if "later steps" in one.reason]
    assert bool(said) is is_said
