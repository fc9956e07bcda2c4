"""The training that faults are injected into: everything that could fail to resume exactly is in it.

Run as a script by `crosstrain launch`, or as a function by `tests.support.ranks`. Each rank appends a line to
its journal for every batch, each with one write, so that a kill leaves whole lines.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from crosstrain import Accelerator, ProjectConfiguration
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

ROWS = 46  # 6 batches of 4 rows an epoch and rank, the last completed
EPOCHS = 4
SAVE_EVERY = 2  # micro-batches, so that every other checkpoint is inside an accumulation window
WINDOW = 3


class Augmented(Dataset[tuple[int, Tensor]]):
    """Row `index` with noise that is drawn anew each time."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        return index, torch.full((4,), index / ROWS) + torch.randn(4) * 0.1


class Progress:
    """Batches done, epochs done: what a script keeps itself."""

    def __init__(self) -> None:
        self.step = 0
        self.epoch = 0

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class Journal:
    """Append-only lines, one file per rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file = os.open(folder / f"journal-{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.write(pid=os.getpid())

    def write(self, **entry: Any) -> None:
        os.write(self._file, json.dumps(entry | {"time": time.time()}).encode() + b"\n")


def train(folder: str, project: str, background: bool = False) -> str:
    """Train to the end, from the newest checkpoint if there is one; the digest of the final weights.

    ``background``: with `save_state(blocking=False)`; the journal names a checkpoint when the training may rely on it.
    """
    config = ProjectConfiguration(project, automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=config, gradient_accumulation_steps=WINDOW)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 256), nn.Dropout(0.2), nn.BatchNorm1d(256), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.9)
    loader = DataLoader(Augmented(), batch_size=4, shuffle=True)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    journal = Journal(Path(folder), accelerator.process_index)
    try:
        accelerator.load_state()
    except FileNotFoundError:
        journal.write(loaded=None)
    else:
        journal.write(loaded=progress.step)
    started: str | None = None
    while progress.epoch < EPOCHS:
        for rows, batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).square().mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            progress.step += 1
            journal.write(step=progress.step, rows=rows.tolist())
            if progress.step % SAVE_EVERY == 0:
                where = Path(accelerator.save_state(blocking=not background)).name
                relied_on, started = (started, where) if background else (where, None)
                if relied_on is not None:
                    journal.write(saved=relied_on, step=progress.step)
        progress.epoch += 1
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.numpy().tobytes())
    accelerator.end_training()
    if started is not None:
        journal.write(saved=started, step=progress.step)
    journal.write(finished=digest.hexdigest())
    return digest.hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(sys.argv[1], sys.argv[2], background="background" in sys.argv[3:])
