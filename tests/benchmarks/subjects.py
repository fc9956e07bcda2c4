"""The same work written for plain torch, crosstrain, accelerate and Fabric."""

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

Step = Callable[[], object]
# Where models and batches are; `make gpu-check` measures on a GPU.
DEVICE = torch.device(os.environ.get("CROSSTRAIN_BENCHMARK_DEVICE", "cpu"))
ON_CPU = DEVICE.type == "cpu"
# torch 2.13 renamed the call; 2.9 to 2.12 know the old name only.
gather_single: Callable[..., object] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


@dataclass(frozen=True)
class Task:
    """A model with its optimizer and one batch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    x: Tensor
    y: Tensor

    @property
    def rows(self) -> int:
        """The number of rows of the batch."""
        return len(self.x)


def evaluate(model: nn.Module, loader: Iterable[Any]) -> tuple[float, int]:
    """The loop of an evaluation as most scripts have it: a loss and hits are added up."""
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            output = model(x)
            loss += mse_loss(output, y).item()
            correct += ((output > 0) == (y > 0)).sum().item()
    model.train()
    return loss, correct


def task(width: int, depth: int, rows: int) -> Task:
    """A multilayer perceptron, alike for every subject."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return Task(model, optimizer, torch.randn(rows, width).to(DEVICE), torch.randn(rows, 1).to(DEVICE))


def stepping(work: Task, model: Any, optimizer: Any, backward: Callable[[Tensor], object]) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        backward(mse_loss(model(work.x), work.y))
        optimizer.step()

    return step


class Torch:
    """What one writes by hand; with several processes, DDP and DistributedSampler."""

    name = "torch"

    def step(self, work: Task) -> Step:
        return stepping(work, self._wrap(work.model), work.optimizer, Tensor.backward)

    def accumulated(self, work: Task, steps: int) -> Step:
        """``steps`` micro-batches, a clipping and a step."""
        model = self._wrap(work.model)

        def step() -> None:
            for index in range(steps):
                alone = hasattr(model, "no_sync") and index < steps - 1
                with model.no_sync() if alone else contextlib.nullcontext():
                    (mse_loss(model(work.x), work.y) / steps).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            work.optimizer.step()
            work.optimizer.zero_grad()

        return step

    def loader(self, loader: DataLoader[Any]) -> Iterable[Any]:
        if not dist.is_initialized():
            return loader if ON_CPU else OnDevice(loader)
        if isinstance(loader.dataset, IterableDataset):
            return DataLoader(Shard(loader.dataset), batch_size=loader.batch_size)
        sampler: Any = DistributedSampler(loader.dataset, shuffle=False)  # type: ignore[arg-type]
        return DataLoader(loader.dataset, batch_size=loader.batch_size, sampler=sampler)

    def evaluation(self, work: Task, loader: DataLoader[Any]) -> Step:
        """The loop over this process's batches, without adding anything up over the processes."""
        batches = len(loader)
        rank, world = dist.get_rank(), dist.get_world_size()
        rows = range(rank * batches // world * work.rows, (rank + 1) * batches // world * work.rows)
        share = DataLoader(loader.dataset, batch_sampler=BatchSampler(rows, work.rows, drop_last=False))
        return lambda: evaluate(work.model, share)

    def gather(self, first: Tensor, second: Tensor) -> Step:
        """One collective for both: the least that it can cost."""
        flat = torch.cat([first.reshape(-1), second.reshape(-1)])
        out = flat.new_empty(dist.get_world_size() * flat.numel())
        return lambda: gather_single(out, flat)

    def checkpoint(self, work: Task, folder: Any) -> tuple[Step, Step]:
        """Saving and loading model and optimizer."""

        def save() -> None:
            torch.save(work.model.state_dict(), folder / "model.pt")
            torch.save(work.optimizer.state_dict(), folder / "optimizer.pt")

        def load() -> None:
            work.model.load_state_dict(torch.load(folder / "model.pt"))
            work.optimizer.load_state_dict(torch.load(folder / "optimizer.pt"))

        return save, load

    @staticmethod
    def _wrap(model: nn.Module) -> Any:
        return nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model


@dataclass(frozen=True)
class OnDevice:
    """A loader whose batches are moved by hand."""

    loader: DataLoader[Any]

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield batch.to(DEVICE) if isinstance(batch, Tensor) else [part.to(DEVICE) for part in batch]


class Shard(IterableDataset[Any]):
    """Every second row, or whatever this rank's share is, of a stream."""

    def __init__(self, rows: IterableDataset[Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        rank, world = dist.get_rank(), dist.get_world_size()
        return (row for index, row in enumerate(self._rows) if index % world == rank)


class Crosstrain:
    name = "crosstrain"

    def accelerator(self, **options: Any) -> Any:
        from crosstrain import Accelerator

        return Accelerator(cpu=ON_CPU, **options)

    def step(self, work: Task) -> Step:
        accelerator = self.accelerator()
        return stepping(work, *accelerator.prepare(work.model, work.optimizer), accelerator.backward)

    def accumulated(self, work: Task, steps: int) -> Step:
        accelerator = self.accelerator(gradient_accumulation_steps=steps)
        model, optimizer = accelerator.prepare(work.model, work.optimizer)

        def step() -> None:
            for _ in range(steps):
                with accelerator.accumulate(model):
                    accelerator.backward(mse_loss(model(work.x), work.y))
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()

        return step

    def loader(self, loader: DataLoader[Any], **options: Any) -> Iterable[Any]:
        return self.accelerator(**options).prepare(loader)  # type: ignore[no-any-return]

    def evaluation(self, work: Task, loader: DataLoader[Any]) -> Step:
        """Each process takes its batches, and the sums are merged."""
        accelerator = self.accelerator()
        model, loader = accelerator.prepare_model(work.model), accelerator.prepare_evaluation(loader)
        return lambda: accelerator.merge(loader, *evaluate(model, loader))

    def gather(self, first: Tensor, second: Tensor) -> Step:
        accelerator = self.accelerator()
        return lambda: accelerator.gather((first, second))

    def checkpoint(self, work: Task, folder: Any) -> tuple[Step, Step]:
        accelerator = self.accelerator()
        accelerator.prepare(work.model, work.optimizer)
        path = str(folder / "state")
        return lambda: accelerator.save_state(path), lambda: accelerator.load_state(path)


class Accelerate(Crosstrain):
    name = "accelerate"

    def accelerator(self, **options: Any) -> Any:
        from accelerate import Accelerator, DataLoaderConfiguration
        from accelerate.state import AcceleratorState, GradientState

        AcceleratorState._reset_state(True) if not dist.is_initialized() else AcceleratorState._reset_state()
        GradientState._reset_state()
        if "dispatch_batches" in options:
            options = {"dataloader_config": DataLoaderConfiguration(**options)}
        return Accelerator(cpu=ON_CPU, **options)


class Fabric:
    name = "fabric"

    def fabric(self) -> Any:
        from lightning_fabric import Fabric as LightningFabric

        if not dist.is_initialized():
            return LightningFabric(accelerator=DEVICE.type, devices=1)
        fabric = LightningFabric(accelerator=DEVICE.type, devices=dist.get_world_size(), strategy="ddp")
        fabric.launch()
        return fabric

    def step(self, work: Task) -> Step:
        fabric = self.fabric()
        return stepping(work, *fabric.setup(work.model, work.optimizer), fabric.backward)

    def accumulated(self, work: Task, steps: int) -> Step:
        fabric = self.fabric()
        model, optimizer = fabric.setup(work.model, work.optimizer)

        def step() -> None:
            for index in range(steps):
                with fabric.no_backward_sync(model, enabled=index < steps - 1):
                    fabric.backward(mse_loss(model(work.x), work.y) / steps)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()

        return step

    def loader(self, loader: DataLoader[Any]) -> Iterable[Any]:
        return self.fabric().setup_dataloaders(loader)  # type: ignore[no-any-return]

    def gather(self, first: Tensor, second: Tensor) -> Step:
        fabric = self.fabric()
        return lambda: fabric.all_gather((first, second))

    def checkpoint(self, work: Task, folder: Any) -> tuple[Step, Step]:
        fabric = self.fabric()
        model, optimizer = fabric.setup(work.model, work.optimizer)
        path, state = folder / "state.ckpt", {"model": model, "optimizer": optimizer}
        return lambda: fabric.save(path, state), lambda: fabric.load(path, state)


def installed() -> list[Any]:
    """The subjects that can be measured here, plain torch first."""
    there = [Torch(), Crosstrain()]
    peers: list[tuple[str, Any]] = [("accelerate", Accelerate), ("lightning_fabric", Fabric)]
    return there + [kind() for module, kind in peers if importlib.util.find_spec(module) is not None]
