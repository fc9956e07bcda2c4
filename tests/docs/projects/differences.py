"""What Accelerate's users may not expect, printed by the main process. Run it on two."""

from pathlib import Path

import torch
from crosstrain import Accelerator
from crosstrain.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Linear):
    size = 4


accelerator = Accelerator()
model = accelerator.prepare(Net(4, 1))
accelerator.print("keys:", *model.state_dict(), "| attributes:", getattr(model, "size", "lost"))

set_seed(1)
loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(9.0)), batch_size=2))
tokens = 0
for (rows,) in loader:
    noise = torch.rand(1)
    tokens += len(accelerator.gather_for_metrics(rows.repeat_interleave(3)))
accelerator.print("batch size:", loader.batch_size, "| tokens of 9 rows with 3 each:", tokens)
own = accelerator.gather(noise).unique().numel() > 1
accelerator.print("noise of its own for each process after set_seed:", own)

loose = torch.zeros(2, requires_grad=True)
optimizer = accelerator.prepare(torch.optim.SGD([loose], lr=1.0))
for batch in accelerator.prepare(iter([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])])):
    accelerator.backward((loose * batch).sum() / 1)
    optimizer.step()
accelerator.print("loose parameters after one step on both batches:", loose.tolist())

accelerator.save({"step": 1}, "state.pt")
complete = torch.load("state.pt")["step"] == 1  # on both processes, at once
accelerator.save_model(model, "model.safetensors")
accelerator.print("complete:", complete, "| one file:", Path("model.safetensors").is_file())
