"""No parameter for the accelerator, no state made in each step, no husk, and no comment on a line that went."""

from __future__ import annotations

import ast
from textwrap import dedent

from .converting import converted
from .filling import filled

HEAD = """
import os
<torch>

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
"""
TRAINER = """
class Trainer:
    def __init__(self, model, device, loader):
        self.model, self.device, self.loader = model.to(device), device, loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def say(self, text):
        print(text)

    def step(self, x, y):
        loss = F.mse_loss(self.model(x.to(self.device)), y.to(self.device))
        <self.step loss>
        return loss.item()

    def fit(self):
        for x, y in self.loader:
            self.say(self.step(x, y))

def build(device):
    return Trainer(nn.Linear(4, 1), device, loader)

def test_trainer():
    assert Trainer(nn.Linear(4, 1), "cpu", loader)

if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    build(device).fit()
"""
FLAGS = """
use_cuda = torch.cuda.is_available()
<model nn.Linear(4, 1)>
if use_cuda:
    model.cuda()
for x, y in loader:
    if use_cuda:
        x, y = x.cuda(), y.cuda()
    # clear what the step before left
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    # go backward
    loss.backward()
    optimizer.step()
"""
MICRO_BATCHES = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

many = int(os.environ.get("RANK", -1)) != -1
if many:
    dist.init_process_group("nccl")
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
else:
    rank, device = 0, "cuda"
<model nn.Linear(4, 1).to(device)>
if many:
    model = DDP(model, device_ids=[rank])
for x, y in loader:
    for micro in range(2):
        if many:
            # gradients are exchanged in the last one alone
            model.require_backward_grad_sync = micro == 1
        loss = F.mse_loss(model(x.to(device)), y.to(device)) / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def after(script: str) -> str:
    return converted(HEAD.lstrip() + dedent(script))


def parameters(text: str) -> list[tuple[str, list[str]]]:
    functions = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef)]
    return [(one.name, [argument.arg for argument in one.args.args]) for one in functions]


def test_no_function_and_no_class_takes_an_accelerator_or_loses_its_device() -> None:
    assert parameters(after(TRAINER)) == parameters(filled(HEAD + TRAINER))
    assert "accelerator.print(text)" in after(TRAINER)
    assert 'Trainer(nn.Linear(4, 1), "cpu", loader)' in after(TRAINER)


def test_no_step_makes_an_accelerator_or_a_state() -> None:
    for script in (TRAINER, FLAGS, MICRO_BATCHES):
        tree = ast.parse(after(script))
        steps = [n for n in ast.walk(tree) if isinstance(n, ast.For) or getattr(n, "name", "") == "step"]
        text = "".join(ast.unparse(one) for step in steps for one in step.body)  # type: ignore[attr-defined]
        assert "Accelerator()" not in text and "PartialState()" not in text, text


def test_no_husk_and_no_comment_is_left_alone() -> None:
    flags, micro = after(FLAGS), after(MICRO_BATCHES)
    assert "pass\n" not in flags + micro
    assert "    # go backward\n    accelerator.backward(loss)\n" in flags
    comment = "            # gradients are exchanged in the last one alone\n"
    assert comment + "            model.require_backward_grad_sync = micro == 1\n" in micro
