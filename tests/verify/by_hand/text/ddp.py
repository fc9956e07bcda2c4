"""`text/plain.py` for torchrun, by hand."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 12, padding_idx=0)
        self.norm = nn.LayerNorm(12)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(2)
        mean = (self.embedding(tokens) * mask).sum(1) / mask.sum(1)
        return self.head(self.drop(self.norm(mean)))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
amp = "amp" in sys.argv
tokens = torch.randint(1, 40, (179, 10))
labels = (tokens.sum(1) % 3).long()
tokens[torch.arange(10) >= torch.randint(3, 11, (179, 1))] = 0
train_set = TensorDataset(tokens[:128], labels[:128])
test_set = TensorDataset(tokens[128:], labels[128:])
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=7, sampler=range(rank, len(test_set), world))
model = Reader().to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
total = 2 * len(train_loader) // 2
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / total)
scaler = torch.amp.GradScaler(device.type, enabled=amp)
if rank:
    torch.manual_seed(rank)

for epoch in range(2):
    model.train()
    sampler.set_epoch(epoch)
    for number, (x, y) in enumerate(train_loader, start=1):
        x, y = x.to(device), y.to(device)
        model.require_backward_grad_sync = number % 2 == 0
        with torch.autocast(device.type, torch.float16, enabled=amp):
            loss = F.cross_entropy(model(x), y) / 2
        scaler.scale(loss).backward()
        if number % 2 == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
    model.eval()
    hits = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in test_loader:
            hits += (model(x.to(device)).argmax(1) == y.to(device)).sum()
    dist.all_reduce(hits)
    if rank == 0:
        print(f"epoch {epoch + 1}: accuracy {hits.item() / len(test_set):.4f}")
