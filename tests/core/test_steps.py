"""What a step of the training tests, draws, adds up or counts: each script keeps what is its own."""

import pytest

from .converting import converted, notes
from .support import each_row

STEP = """
import random
<torch>
rows = torch.arange(32.0).reshape(16, 2)
loader = DataLoader(TensorDataset(rows, rows[:, :1]), batch_size=4)
<model torch.nn.Linear(2, 1)>
skipped = 0
for x, y in loader:
    optimizer.zero_grad()
{step}
"""
TRAINS_IN_THE_TEST = """
    if torch.isfinite(x).all():
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        continue
    skipped += 1"""
READS_WHAT_IS_BAD = """
    bad = x.sum(1) > 50
    if bad.any():
        print("bad row", x[bad][0])
        continue
    F.mse_loss(model(x), y).backward()
    optimizer.step()"""
NOISE = """
    loss = F.mse_loss(model(x + torch.randn_like(x)), y)
    if loss > 0.8:
        continue
    loss.backward()
    optimizer.step()"""
OWN_ROW = """
    label = random.choice(y.tolist())
    if label == 0:
        continue
    F.mse_loss(model(x), y).backward()
    optimizer.step()"""


@pytest.mark.parametrize("step", [TRAINS_IN_THE_TEST, READS_WHAT_IS_BAD])
def test_a_test_whose_branch_does_more_than_leave_out_is_each_process_s_own(step: str) -> None:
    text = STEP.format(step=step)
    assert '"sum") > 0' not in converted(text)
    assert [one for one in notes(text, "CT605") if "makes the others wait" in one.reason], "and is said"


FAILS = """
    try:
        F.mse_loss(model(x), y).backward()
    except {}:
        continue
    optimizer.step()"""


@pytest.mark.parametrize(("fault", "is_said"), [("RuntimeError", True), ("KeyboardInterrupt", False)])
def test_a_step_that_a_fault_leaves_out_is_spoken_of(fault: str, is_said: bool) -> None:
    said = notes(STEP.format(step=FAILS.format(fault)), "CT605")
    assert [True for one in said if "makes the others wait" in one.reason] == [True] * is_said


SAYS_IT = """
    loss = F.mse_loss(model(x), y)
    if loss.item() == float("inf"):
        print("no finite loss", loss.item())
        loss = torch.zeros_like(loss)
        continue
    loss.backward()
    optimizer.step()"""


def test_all_leave_out_a_batch_where_the_branch_only_says_so() -> None:
    test = 'if accelerator.reduce(int(bool(loss.item() == float("inf"))), "sum") > 0:'
    assert test in converted(STEP.format(step=SAYS_IT))
    assert not notes(STEP.format(step=SAYS_IT), "CT605")
    counts = SAYS_IT.replace("        continue", "        skipped += 1\n        continue")
    assert '"sum") > 0' not in converted(STEP.format(step=counts)), "what is counted is each process's own"


@pytest.mark.parametrize("step", [NOISE, OWN_ROW])
def test_noise_and_a_choice_among_own_rows_are_no_coins(step: str) -> None:
    assert "common_draws" not in converted(STEP.format(step=step))


@each_row(r"""
loss
loss = F.mse_loss(model(x), y, reduction='sum') + 0.01 * model.weight.norm()\n    loss /= len(x)
part = F.mse_loss(model(x), y, reduction='sum')\n    part /= len(x)\n    loss = part + model.weight.norm()
""")
def test_a_sum_that_is_divided_later_is_no_sum(loss: str) -> None:
    text = STEP.format(step=f"    {loss}\n    loss.backward()\n    optimizer.step()")
    assert "loss_reduction" not in converted(text)


def test_a_length_beside_a_batch_does_not_make_it_a_number() -> None:
    text = STEP.format(
        step="    for at in range(longest):\n        x = x + at\n    F.mse_loss(model(x), y).backward()\n"
        "    optimizer.step()"
    ).replace("for x, y in loader:", "for x, y, longest in batches(loader):")
    text = text.replace("skipped = 0\n", "\ndef batches(of):\n    for x, y in of:\n        yield x, y, 3\n\n")
    assert ".prepare(" in converted(text) and not notes(text, "CT902")
