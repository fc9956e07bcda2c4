"""Generator functions over a DataLoader: the loader is prepared, so that no process loads what another trains on."""

import pytest

from .converting import converted
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


STEPS_OF_ANOTHER_CLASS = """
from tqdm import tqdm
<torch>
class Base:
    def run(self):
        for _ in self.epochs():
            for _ in self.steps():
                self.update()
    def steps(self):
        raise NotImplementedError
class Trainer(Base):
    def epochs(self):
        self.model = torch.nn.Linear(4, 2)
        self.loader = DataLoader(data, 4, shuffle=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        for self.epoch in range(2):
            yield
    def steps(self):
        self.bar = tqdm(self.loader)
        for batch in self.bar:
            self.batch = batch
            yield
class Own(Trainer):
    def update(self):
        self.optimizer.zero_grad()
        F.mse_loss(self.model(self.batch[0]), self.batch[1]).backward()
        self.optimizer.step()
class Checker(Base):
    def steps(self):
        for self.batch in self.others:
            yield
Own().run()
"""


def test_a_generator_of_nothing_that_a_base_class_calls() -> None:
    """Its own class reads the loader; the generator itself yields nothing to be dealt."""
    after = converted(STEPS_OF_ANOTHER_CLASS)
    assert "accelerator.prepare(self.steps())" not in after
    assert "self.loader = accelerator.prepare(self.loader)" in after and "self.others = " not in after
