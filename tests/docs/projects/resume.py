"""Trains three epochs, saves after each, and goes on from the newest checkpoint. "failing": rank 1 ends once."""

import os
import sys
from pathlib import Path

import torch
from crosstrain import Accelerator, ProjectConfiguration
from torch.utils.data import DataLoader, TensorDataset

folder = Path(sys.argv[1])
project = ProjectConfiguration(folder, automatic_checkpoint_naming=True, total_limit=2)
accelerator = Accelerator(project_config=project)
torch.manual_seed(0)
data = TensorDataset(torch.randn(256, 16), torch.randn(256, 1))
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

if (folder / "checkpoints").exists():
    accelerator.load_state()
for epoch in range(project.iteration, 3):
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_state()
    if epoch == 1 and folder.name == "failing" and not Path("failed").exists():
        accelerator.wait_for_everyone()
        if accelerator.process_index == 1:
            Path("failed").touch()
            os._exit(1)
        accelerator.wait_for_everyone()
accelerator.print(f"sum of the weights: {sum(p.double().sum().item() for p in model.parameters()):.12f}")
accelerator.save_model(model, "weights", max_shard_size="3KB")
