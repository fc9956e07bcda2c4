"""Written for Accelerate: accumulation, a schedule by steps, an evaluation, a checkpoint of the weights."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(gradient_accumulation_steps=2)
set_seed(0)
rows = torch.randn(300, 8)
labels = (rows.sum(1) > 0).long()
train_loader = DataLoader(TensorDataset(rows[:192], labels[:192]), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(rows[192:], labels[192:]), batch_size=16)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 36)
model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, test_loader, scheduler
)
for epoch in range(3):
    model.train()
    for x, y in train_loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in test_loader:
            guesses, y = accelerator.gather_for_metrics((model(x).argmax(1), y))
            right += (guesses == y).sum().item()
    accelerator.print(
        f"epoch {epoch}: {right} of {len(test_loader.dataset)} right, rate {scheduler.get_last_lr()[0]:.4f}"
    )
accelerator.save(accelerator.unwrap_model(model).state_dict(), "weights.pt")
