"""`plain.py` for torchrun, by hand."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rows = torch.randn(200, 8)
labels = (rows.sum(1) > 0).long()
train_set = TensorDataset(rows[:128], labels[:128])
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)
test_loader = DataLoader(TensorDataset(rows[128 + rank :: world], labels[128 + rank :: world]), batch_size=9)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
if rank:
    torch.manual_seed(rank)

for epoch in range(3):
    model.train()
    sampler.set_epoch(epoch)
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    scheduler.step()
    model.eval()
    correct = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in test_loader:
            x, y = x.to(device), y.to(device)
            correct += (model(x).argmax(1) == y).sum()
    dist.all_reduce(correct)
    if rank == 0:
        print(f"epoch {epoch}: correct {int(correct)}")
