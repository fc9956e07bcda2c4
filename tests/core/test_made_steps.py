"""A training step that a function makes is found, and trains; one that was made without its training is none."""

from pathlib import Path

import pytest
import torch

from .projects import convert, train, write
from .support import Trap, check

STEPS = """
<torch>
from torch.utils.data import DataLoader
def make_step(train, learn=None):
    def step(state, batch):
        net = state["net"]
        if train:
            optimizer = state["optimizer"]
            optimizer.zero_grad()
            loss = net(batch).pow(2).mean()
            loss.backward()
            learn(optimizer)
        else:
            with torch.no_grad():
                loss = net(batch).pow(2).mean()
        return loss
    return step
def make_learn():
    def learn(optimizer):
        optimizer.step()
    return learn
def batches(data):
    while True:
        for part in DataLoader(data, 4):
            yield part
def main():
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    state = {"net": net, "optimizer": torch.optim.SGD(net.parameters(), 0.1)}
    train_batches = iter(batches(torch.randn(16, 4)))
    test_batches = iter(batches(torch.randn(16, 4)))
    train_step = make_step(train=True, learn=make_learn())
    test_step = make_step(train=False)
    tested = []
    for step in range(4):
        batch = next(train_batches)
        loss = train_step(state, batch)
        print(loss.item())
        if step % 2 == 0:
            other = next(test_batches)
            tested.append(test_step(state, other).item())
    return [net.weight.detach().clone(), torch.tensor(tested)]
result = main()
"""
LINES = (
    "optimizer = accelerator.prepare(optimizer)",
    "accelerator.backward(loss)",
    "train_batches = iter(accelerator.prepare(batches(torch.randn(16, 4))))",
    "test_batches = iter(batches(torch.randn(16, 4)))",
)


def test_a_step_that_a_function_makes_is_the_training() -> None:
    """What a branch takes for a test is no training data, and the loss that the step returns is one process's."""
    check(Trap("made", STEPS, LINES, says="numbers of this training loop"))


def test_a_step_that_is_made_without_its_training_trains_nothing() -> None:
    tests_alone = STEPS.replace("make_step(train=True, learn=make_learn())", "make_step(train=False)")
    check(Trap("none", tests_alone, absent=("prepare(batches",)))


@pytest.mark.parametrize(
    "test",
    ['if mode == "train":', 'if mode != "train":\n            return net(batch).mean()\n        if True:'],
)
def test_a_word_may_say_whether_a_step_trains(test: str) -> None:
    """A whole evaluation that is not known for one would be dealt, and its number shown as that of all batches."""
    text = STEPS.replace("make_step(train, ", "make_step(mode, ").replace("if train:", test)
    text = text.replace("train=True", 'mode="train"').replace("train=False", 'mode="eval"')
    looped = "for other in DataLoader(torch.randn(16, 4), 4):\n                "
    text = text.replace("other = next(test_batches)\n            ", looped)
    check(Trap("", text, LINES[1:3], ("prepare(DataLoader", "prepare(test"), "numbers of this training loop"))


def test_it_trains_as_the_original(tmp_path: Path) -> None:
    convert(write(tmp_path, before=STEPS, script=STEPS), "script")
    before, after = train(tmp_path, "before")[0], train(tmp_path, "script")[0]
    assert all(map(torch.equal, before, after))
    first, second = train(tmp_path, "script", 2)
    assert all(map(torch.equal, first, second)), "the same weights, and the whole test, on both"
    assert not torch.equal(first[0], after[0])
