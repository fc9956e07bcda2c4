"""A plain script: dropout, and an evaluation that is printed."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = torch.randn(200, 8)
labels = (rows.sum(1) > 0).long()
train_set = TensorDataset(rows[:128], labels[:128])
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(rows[128:], labels[128:]), batch_size=9)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(3):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = torch.zeros(())
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum()
    print(f"epoch {epoch}: correct {int(correct)}")
