"""Processes decide together within a training's steps: a step is left out, and an end reached, by all or by none."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.support.ranks import run_ranks

from .converting import conversion, converted
from .projects import convert, write
from .support import each_row
from .test_deciding import HEAD, STOPPER, after

STEP = (
    HEAD
    + """
for i, (x, y) in enumerate(train_loader):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    {test}
    loss.backward()
    optimizer.step()
"""
)


@each_row(r"""
test => expected
if torch.isnan(loss): continue => if torch.isnan(accelerator.reduce(loss, "mean")): continue
if i > 3 and loss < 0.1: break => if i > 3 and accelerator.reduce(loss, "mean") < 0.1: break
if loss < 9: loss = loss * 2 => if loss < 9: loss = loss * 2  # no process parts
model.train(); n = model.a(x)\n    if n > 1: break => if accelerator.reduce(n, "mean") > 1: break
n = y.part(x)\n    if n > 1: break => if n > 1: break  # of the batch
n = y\n    if n[0] > 1: break => n = y\n    if n[0] > 1: break
n = model(x)\n    if n[0] > 1: break => if accelerator.reduce(n[0], "mean") > 1: break
if y.sum() > 2 and loss < 0.1: break => if y.sum() > 2 and loss < 0.1: break  # not all come to it
if rank == 0 and loss < 0.1: break => if rank == 0 and loss < 0.1: break
if i > 3 and time() > 9: exit(3) => if i > 3 and accelerator.reduce(time(), "mean") > 9: exit(3)
if time() > 9: torch.save(model, "a.pt") => if time() > 9:\n        if accelerator.is_main_process:
if loss < 0.1: exit() => if accelerator.reduce(loss, "mean") < 0.1: exit()
if loss > 9: exit(1) => if loss > 9: exit(1)  # an error ends it for all
""")
def test_in_a_step_the_test_alone_is_changed(test: str, expected: str) -> None:
    text = converted(STEP.format(test=test))
    assert expected in text and "accelerator.backward(loss)" in text, text


@each_row("""
start => expected
trainer.train() => if accelerator.reduce(time.time(), "mean") < accelerator.reduce(self.end, "mean"):
if torch.distributed.get_rank() == 1: trainer.train() => if time.time() < self.end:
""")
def test_an_end_by_the_clock_that_an_object_keeps(start: str, expected: str) -> None:
    text = f"""
import sys, time, torch
class Trainer:
    def __init__(self, net):
        self.net, self.end = net, time.time() + 60
        self.optimizer = torch.optim.SGD(net.parameters(), lr=1)
    def train(self):
        for x in torch.utils.data.DataLoader(data):
            if time.time() < self.end:
                self.step(x)
            else:
                sys.exit(0)
    def step(self, x):
        self.net.train()
        self.net(x).sum().backward()
        self.optimizer.step()
trainer = Trainer(torch.nn.Linear(4, 1))
{start}
"""
    assert expected in converted(text)


@each_row("""
test => expected
torch.isfinite(loss) => torch.isfinite(accelerator.reduce(loss, "mean"))
is_good(loss.item()) => is_good(accelerator.reduce(loss, "mean").item())
i % 2 == 1 => i % 2 == 1
is_known(loss) => is_known(loss)
""")
def test_a_step_behind_the_backward_is_left_out_by_all(test: str, expected: str) -> None:
    text = STEP.format(test="pass").replace("    optimizer.step()", f"    if {test}: optimizer.step()")
    text += "def is_good(x):\n    return x < 9\ndef is_known(x):\n    return x in (1, 2)\n"
    assert f"if {expected}: optimizer.step()" in converted(text)


FOUND = "found = y[y > 0] if y.any() else None"
HARD = "hard = np.where((model(x) > 1).cpu().numpy()); n = np.where(y > 1, y, 1)"


@pytest.mark.parametrize(
    ("above", "test", "is_own"),
    [
        ("pass", "y.sum() == 0", True),
        (HARD, "len(hard[0]) == 0", True),
        (HARD, "len(n) < 4", False),
        ("pass", "y.size()[1] == 0", True),
        ("pass", "y.shape[1] > 9 or i == 3", True),
        ("pass", "len(y) == 0", True),
        ("pass", "y.size(0) < 2", False),
        ("pass", "model.weight.shape[1] == 0", False),
        (FOUND, "found is None", True),
        ("found = model if rows.any() else None", "found is None", False),
    ],
)
def test_a_batch_that_one_process_would_skip_is_skipped_by_all(above: str, test: str, is_own: bool) -> None:
    text = converted("import numpy as np\n" + STEP.format(test=f"{above}\n    if {test}: continue"))
    code = f'accelerator.reduce(int(bool({test})), "sum") > 0' if is_own else test
    assert f"if {code}: continue" in text, text


@each_row(r"""
test => other => is_own
if y.any() => pass => True
if len(y) > 0 => model.eval() => True
if i > 0 => pass => False
if y.any() => loss.mean().backward() => False  # each process takes a step
""")
def test_a_step_within_a_test_of_the_batch_is_left_out_by_all(test: str, other: str, is_own: bool) -> None:
    step = f"{test}:\n        loss.backward()\n    else:\n        {other}"
    text = converted(STEP.format(test="pass").replace("loss.backward()", step))
    code = f'if accelerator.reduce(int(bool({test[3:]})), "sum") == accelerator.num_processes:'
    assert (code in text) is is_own and ("num_processes" in text) is is_own, text


@each_row("""
test => gives => is_own
y.sum() == 0 => None => True
y.sum() == 0 => 0.0, y => True
y.sum() == 0 => y[0] => False  # which another batch may not have
model.training => None => False
""")
def test_a_function_that_takes_no_step_for_a_batch_takes_none_on_all(
    test: str, gives: str, is_own: bool
) -> None:
    step = f"if {test}: return {gives}\n    F.cross_entropy(model(x), y).backward()\n    optimizer.step()"
    text = converted(f"{HEAD}\ndef learn(x, y):\n    {step}\nfor x, y in train_loader: learn(x, y)\n")
    code = f'accelerator.reduce(int(bool({test})), "sum") > 0' if is_own else test
    assert f"if {code}: return {gives}" in text, text


@pytest.mark.parametrize("above", ["if loss > random.random():", FOUND + "\n    if found is not None:"])
def test_a_batch_that_one_process_may_skip_is_said(above: str) -> None:
    done = conversion("import random\n" + STEP.format(test=f"{above}\n        if y.shape[-1] > 9: continue"))
    assert any("skips a batch" in one.reason for one in done.findings), done.text
    assert "if y.shape[-1] > 9: continue" in done.text


KEEPS = (
    STEP.replace("{test}", "pass")
    + """
    if i % 2 == 0:
        if loss.item() < best:
            best = {kept}
            print("better", i)
            torch.save(model.state_dict(), "best.pt")
"""
)


@pytest.mark.parametrize("kept", ["loss.item()", "loss", "round(loss.item(), 3)", "float(loss.detach())"])
def test_what_is_kept_is_what_was_compared(kept: str) -> None:
    """Else the next comparison would be with a number of each process's own."""
    text = converted("best = 9.0\n" + KEEPS.replace("{kept}", kept))
    assert f"best = {kept}".replace("loss", 'accelerator.reduce(loss, "mean")', 1) in text


FULL_BATCH = """
best, wait, rest = 9.0, 0, rows[24:]
for epoch in range(8):
    optimizer.zero_grad()
    order = torch.randperm(24)
    loss = F.cross_entropy(model(rows[order]), labels[order]) + 0.1 * model(rest).pow(2).mean()
    if loss < best:
        best, wait = loss.item(), 0
        torch.save(model.state_dict(), "best.pt")
    else:
        wait += 1
    if wait == 2:
        print("stopped", epoch)
        break
    loss.backward()
    optimizer.step()
print(epoch, [p.sum().item() for p in model.parameters()])
"""


def test_what_flows_into_backward_is_not_touched_where_no_loop_goes_over_data(tmp_path: Path) -> None:
    text = converted(HEAD + FULL_BATCH)
    assert "    loss = accelerator.reduce" not in text and "accelerator.backward(loss)" in text, text
    assert 'if accelerator.reduce(loss, "mean") < best:' in text
    assert 'best, wait = accelerator.reduce(loss, "mean").item(), 0' in text
    first, second = run_ranks(printed, 2, text.replace("accelerator.print", "print"), str(tmp_path))
    assert first == second and first


OWN_BATCH = (
    STEP.replace("{test}", "rate = y.float().mean().item()")
    + """
    if rate > 0.6:
        torch.save(model.state_dict(), "often.pt")
        {more}
"""
)


@pytest.mark.parametrize(
    ("more", "alone"), [("pass", 1), ("keep(model)", 2), ("break", 0), ("one_of_two(model)", 0)]
)
def test_one_process_saves_by_a_number_of_its_own_batch(more: str, alone: int) -> None:
    """Unless all must come to what stands beside it."""
    made = "".join(f"def {n}(net):\n    torch.save(net, 'n')\n" for n in ("keep", "one_of_two", "one_of_two"))
    done = conversion(made + OWN_BATCH.replace("{more}", more))
    saves = ['torch.save(model.state_dict(), "often.pt")', more][:alone] or [more]
    guarded = "".join(["accelerator.is_main_process:", *saves]).replace(" ", "")
    assert (guarded in "".join(done.text.split())) is bool(alone), done.text
    assert any(one.rule == "CT605" for one in done.findings) is not bool(alone)


def test_a_function_of_another_file_that_saves_is_guarded_once(tmp_path: Path) -> None:
    script = "from kept import keep\n" + OWN_BATCH.replace("{more}", "keep(model)")
    folder = write(tmp_path, kept="import torch\ndef keep(net):\n    torch.save(net, 'n')\n", train=script)
    assert convert(folder, "train").files[-1].after.decode().count("accelerator.is_main_process:") == 1


def printed(text: str, folder: str) -> str:
    os.chdir(folder)
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(io.StringIO()):
        exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
    return said.getvalue()


def test_both_processes_stop_after_the_same_epoch(tmp_path: Path) -> None:
    text = after(STOPPER).replace("accelerator.print", "print")
    first, second = run_ranks(printed, 2, text, str(tmp_path))
    assert first.splitlines()[-2:] == second.splitlines()[-2:] and "stopped" in first


BUCKETS = """
import torch
from torch.nn import functional as F
class Rows:
    def __init__(self, number):
        self.number = number
    def __iter__(self):
        for start in range(0, self.number, 4):
            yield torch.ones(min(4, self.number - start), 2)
def learn(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    for x in batches:
        if x.size(0) != 4:
            continue
        <step F.mse_loss(model(x), x)>
        steps += 1
    return steps
batches = Rows(14)
result = learn(torch.nn.Linear(2, 2), batches)
"""


def test_batches_that_are_dealt_whole_have_rows_of_their_own_number() -> None:
    """The fourth of four batches is short: the second process may not leave it out alone."""
    text = converted(BUCKETS)
    assert 'if accelerator.reduce(int(bool(x.size(0) != 4)), "sum") > 0:' in text, text
