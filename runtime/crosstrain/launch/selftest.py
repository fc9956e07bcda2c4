"""`crosstrain test`: does training on these processes work? Run on every rank by the launcher.

Each check is a promise of the runtime that a broken installation, network or device would break. The main
process prints one line per check; the exit code is 1 if one of them failed anywhere.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from crosstrain import Accelerator
from crosstrain.utils import gather_object, set_seed

ROWS = 37  # divides by nothing
STEPS = 4


def gather(accelerator: Accelerator) -> None:
    """Values of every rank arrive in rank order."""
    rank = torch.tensor([accelerator.process_index], device=accelerator.device)
    expect(accelerator.gather(rank).tolist() == list(range(accelerator.num_processes)), "ranks in order")
    expect(int(accelerator.reduce(rank + 1, "sum")) == sum(range(1, accelerator.num_processes + 1)), "a sum")


def random_numbers(accelerator: Accelerator) -> None:
    """Ranks draw the same numbers after set_seed, and other ones with device_specific."""
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
    """The ranks together make the steps that one process would have made with all their rows."""
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


def saving(accelerator: Accelerator) -> None:
    """What the main process saves is what every rank holds."""
    folder = gather_object(
        [tempfile.mkdtemp(prefix="crosstrain-test-") if accelerator.is_main_process else ""]
    )[0]
    model = accelerator.prepare(model_of_seed(3))
    file = Path(folder) / "model.pt"
    accelerator.save_model(model, file)
    accelerator.wait_for_everyone()
    if accelerator.is_local_main_process and file.exists():  # other machines may not see the folder
        stored = torch.load(file, weights_only=True)
        expect(all(torch.equal(stored[k].cpu(), v.cpu()) for k, v in model.state_dict().items()), "weights")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        file.unlink()
        file.parent.rmdir()


CHECKS: dict[str, Callable[[Accelerator], None]] = {
    "gather and reduce": gather,
    "random numbers": random_numbers,
    "sharded data": sharding,
    "training equals one process": training,
    "saved model": saving,
}


class CheckFailedError(Exception):
    """A promise was not kept; the message says what was seen."""


def expect(holds: bool, what: str) -> None:
    """Raise CheckFailedError unless it holds."""
    if not holds:
        raise CheckFailedError(what)


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
    accelerator.print(
        f"{accelerator.num_processes} processes, {accelerator.device}, backend {accelerator.state.backend}"
    )
    failed = 0
    for name, check in CHECKS.items():
        problem = ""
        try:
            check(accelerator)
        except CheckFailedError as error:
            problem = f"rank {accelerator.process_index}: {error}"
        problems = [text for text in gather_object([problem]) if text]
        failed += bool(problems)
        accelerator.print(
            f"{'FAIL' if problems else 'ok  '}  {name}" + "".join(f"\n      {p}" for p in problems)
        )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
