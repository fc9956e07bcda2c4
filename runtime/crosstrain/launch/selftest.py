"""`crosstrain test` checks that training on these processes works. The launcher runs it on every rank.

Each check is a promise of the runtime that a broken installation, network or device would break. The main process prints a
line for each check; the exit code is 1 if any of them failed on any rank.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from crosstrain import Accelerator
from crosstrain.utils import gather_object, set_seed

ROWS = 37  # a prime, so that no batch size divides it
STEPS = 4


def gather(accelerator: Accelerator) -> None:
    """Values of every rank arrive in rank order."""
    rank = torch.tensor([accelerator.process_index], device=accelerator.device)
    expect(accelerator.gather(rank).tolist() == list(range(accelerator.num_processes)), "ranks in order")
    expect(int(accelerator.reduce(rank + 1, "sum")) == sum(range(1, accelerator.num_processes + 1)), "a sum")


def random_numbers(accelerator: Accelerator) -> None:
    """Ranks draw the same numbers after set_seed, and different ones with device_specific."""
    set_seed(11)
    same = gather_object([torch.rand(1).item()])
    set_seed(11, device_specific=True)
    other = gather_object([torch.rand(1).item()])
    expect(len(set(same)) == 1, f"one seed, numbers {same}")
    expect(len(set(other)) == accelerator.num_processes, f"own seeds, numbers {other}")


def sharding(accelerator: Accelerator) -> None:
    """One pass over a loader that does not divide evenly sees every row once, in order."""
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=4))
    seen = [row for (rows,) in loader for row in accelerator.gather_for_metrics(rows).tolist()]
    expect(seen == list(range(ROWS)), f"rows {seen}")


def training(accelerator: Accelerator) -> None:
    """The ranks together make the same steps as one process with all their rows."""
    size = 3 * accelerator.num_processes
    inputs = torch.linspace(-1, 1, STEPS * size * 4).reshape(STEPS * size, 4)
    targets = inputs.sum(1, keepdim=True).sin()
    reference, model = model_of_seed(5), model_of_seed(5)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for i in range(0, len(inputs), size):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(reference(inputs[i : i + size]), targets[i : i + size])
        torch.autograd.backward(loss)
        optimizer.step()
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        expect(torch.allclose(ours.detach().cpu(), theirs, rtol=1e-4, atol=1e-5), "the same weights")


def streams(accelerator: Accelerator) -> None:
    """A stream that only one process reads reaches every rank, each row once, in order."""
    loader = accelerator.prepare(DataLoader(Stream(), batch_size=4))
    seen = [row for rows in loader for row in accelerator.gather_for_metrics(rows).tolist()]
    expect(seen == list(range(ROWS)), f"rows {seen}")


def checkpoint(accelerator: Accelerator) -> None:
    """Loading restores what was saved: the weights, the optimizer and the next random numbers."""
    model = model_of_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    with shared_folder(accelerator) as folder:
        accelerator.save_state(folder)
        expected = [torch.rand(2), one_step(accelerator, model, optimizer)]
        accelerator.load_state(folder)
        found = [torch.rand(2), one_step(accelerator, model, optimizer)]
        accelerator.save_model(model, Path(folder) / "model.pt")
        accelerator.wait_for_everyone()
        stored = torch.load(Path(folder) / "model.pt", map_location="cpu", weights_only=True)
        own = model.state_dict()
    expect(torch.equal(found[0], expected[0]), f"random numbers {expected[0]} after loading, not {found[0]}")
    expect(torch.equal(found[1], expected[1]), "the same weights one step after loading")
    expect(all(torch.equal(stored[name], own[name].cpu()) for name in own), "the weights that were saved")


CHECKS: dict[str, Callable[[Accelerator], None]] = {
    "gather and reduce": gather,
    "random numbers": random_numbers,
    "sharded data": sharding,
    "training equals one process": training,
    "stream of data": streams,
    "checkpoint": checkpoint,
}


class CheckFailedError(Exception):
    """A check failed; the message says what was found or expected."""


def expect(holds: bool, what: str) -> None:
    """Raise CheckFailedError unless ``holds``. Do not call it between collectives, which a rank that fails would leave."""
    if not holds:
        raise CheckFailedError(what)


class Stream(IterableDataset[torch.Tensor]):
    """A data set without a length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(ROWS))


@contextmanager
def shared_folder(accelerator: Accelerator) -> Iterator[str]:
    """A temporary folder that every machine can see; the main process removes it afterwards."""
    mine = tempfile.mkdtemp(prefix="crosstrain-test-", dir=Path.cwd()) if accelerator.is_main_process else ""
    folder = gather_object([mine])[0]
    everywhere = all(gather_object([Path(folder).is_dir()]))
    expect(everywhere, f"a folder that every machine sees: {Path.cwd()} is not one")
    try:
        yield folder
        accelerator.wait_for_everyone()
    finally:
        if accelerator.is_main_process:
            shutil.rmtree(folder)


def one_step(accelerator: Accelerator, model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Make a step on random rows and return all weights after it as one 1-d tensor."""
    optimizer.zero_grad()
    accelerator.backward(model(torch.rand(5, 4, device=accelerator.device)).square().mean())
    optimizer.step()
    return torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])


def model_of_seed(seed: int) -> nn.Module:
    """The same small model on every rank, whatever the seed was before."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return model


def main() -> int:
    """Run every check on every rank; a failure on one of them is a failure."""
    accelerator = Accelerator()
    number, backend = accelerator.num_processes, accelerator.state.backend
    accelerator.print(
        f"{number} process{'es' if number > 1 else ''}, {accelerator.device}, backend {backend or 'none'}"
    )
    failed = 0
    for name, check in CHECKS.items():
        problems = run(accelerator, check)
        failed += bool(problems)
        accelerator.print(f"{'FAIL' if problems else 'pass'}  {name}")
        for problem in problems:
            accelerator.print(f"      {problem}")
    accelerator.print(f"{len(CHECKS) - failed} passed, {failed} failed")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 1 if failed else 0


def run(accelerator: Accelerator, check: Callable[[Accelerator], None]) -> list[str]:
    """The problems that the ranks found, on every rank; empty if the check held on all of them."""
    problem = ""
    try:
        check(accelerator)
    except CheckFailedError as error:
        problem = f"rank {accelerator.process_index}: {error}"
    accelerator.free_memory()
    return [text for text in gather_object([problem]) if text]


if __name__ == "__main__":
    sys.exit(main())
