"""`text/plain.py` for huggingface/accelerate, by hand."""

import sys

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


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


torch.manual_seed(1)
accelerator = Accelerator(
    mixed_precision="fp16" if "amp" in sys.argv else "no", gradient_accumulation_steps=2
)
tokens = torch.randint(1, 40, (179, 10))
labels = (tokens.sum(1) % 3).long()
tokens[torch.arange(10) >= torch.randint(3, 11, (179, 1))] = 0
train_set = TensorDataset(tokens[:128], labels[:128])
test_set = TensorDataset(tokens[128:], labels[128:])
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(test_set, batch_size=7)
model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
total = 2 * len(train_loader) // 2
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / total)
model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, test_loader, scheduler
)
if accelerator.process_index:
    torch.manual_seed(accelerator.process_index)

for epoch in range(2):
    model.train()
    for x, y in train_loader:
        with accelerator.accumulate(model):
            with accelerator.autocast():
                loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in test_loader:
            guesses, y = accelerator.gather_for_metrics((model(x).argmax(1), y))
            hits += (guesses == y).sum().item()
    accelerator.print(f"epoch {epoch + 1}: accuracy {hits / len(test_set):.4f}")
