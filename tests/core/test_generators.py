"""Generator functions over a DataLoader: the loader is prepared, so that no process loads what another trains on."""

import pytest

from .rows import check_shares, numbered
from .support import Trap, cases, check

TRAPS = cases("""
== a generator that makes its loader
def batches_of(data):
    loader = DataLoader(data, batch_size=4)
    while True:
        yield from loader
def main():
    step = 0
    source = batches_of(TensorDataset(rows, targets))
    while step < 8:
        x, y = next(source)
        learn(model, optimizer, x, y)
        step += 1
main()
-> loader = DataLoader(data, batch_size=4)
-> loader = accelerator.prepare(loader)
-> while True:
-> source = batches_of(TensorDataset(rows, targets))
== a generator that scales what it reads, in a function that is given it
def scaled(batches):
    for x, y in batches:
        yield x * 1, y
def train(source):
    for x, y in source:
        learn(model, optimizer, x, y)
train(scaled(DataLoader(TensorDataset(rows, targets), batch_size=4)))
-> train(scaled(accelerator.prepare(DataLoader(TensorDataset(rows, targets), batch_size=4))))
== a generator over a loader that a factory of its class makes
class Loader(DataLoader):
    @classmethod
    def over(cls, *data):
        made = cls(TensorDataset(*data), batch_size=4)
        return made
def timed(batches):
    for item in batches:
        yield 0.5, item
for _, (x, y) in timed(Loader.over(rows, targets)):
    learn(model, optimizer, x, y)
-> for _, (x, y) in timed(accelerator.prepare(Loader.over(rows, targets))):
== a generator that needs its batches on the CPU
def turned(batches):
    for x, y in batches:
        yield torch.as_tensor(x.numpy()[::-1].copy()), y
for x, y in turned(DataLoader(TensorDataset(rows, targets), batch_size=4)):
    learn(model, optimizer, x, y)
!! accelerator.prepare(DataLoader
""")


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_generators(trap: Trap) -> None:
    check(numbered(trap))
    check_shares(trap)
