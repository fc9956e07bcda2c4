"""The plain script, distributed by hand."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
rows = torch.randn(200, 8)
labels = (rows.sum(1) > 0).long()
train_set = TensorDataset(rows[:128], labels[:128])
sampler = torch.utils.data.DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)
test_loader = DataLoader(TensorDataset(rows[128 + rank :: world], labels[128 + rank :: world]), batch_size=9)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
if rank:
    torch.manual_seed(rank)
for epoch in range(3):
    sampler.set_epoch(epoch)
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
    dist.all_reduce(correct)
    if rank == 0:
        print(f"epoch {epoch}: correct {int(correct)}")
