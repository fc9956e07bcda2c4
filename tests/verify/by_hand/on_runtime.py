"""`plain.py` for the bundled runtime, by hand."""

import sys

import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(
    mixed_precision="fp16" if "amp" in sys.argv else "no", step_scheduler_with_optimizer=False
)
rows = torch.randn(200, 8)
labels = (rows.sum(1) > 0).long()
train_loader = DataLoader(TensorDataset(rows[:128], labels[:128]), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(rows[128:], labels[128:]), batch_size=9)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, test_loader, scheduler
)

for epoch in range(3):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        with accelerator.autocast():
            loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    scheduler.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            right = (model(x).argmax(1) == y).float()
            correct += int(accelerator.gather_for_metrics(right).sum())
    accelerator.print(f"epoch {epoch}: correct {correct}")
