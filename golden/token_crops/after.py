"""A character model trained on random crops of one long array of tokens."""
import math
import sys

import numpy as np
import torch
import torch.nn as nn
from crosstrain import Accelerator
from torch.nn import functional as F

# -----------------------------------------------------------------------------
max_iters = int(sys.argv[1]) if len(sys.argv) > 1 else 60
eval_interval = 20
eval_iters = 5
batch_size = 16
block_size = 24
n_embd = 32
learning_rate = 1e-2
accelerator = Accelerator()
device = accelerator.device
# -----------------------------------------------------------------------------

torch.manual_seed(1337)
np.random.seed(1337)

text = "".join("the %s %s the %s. " % (a, v, o)
               for a in ("cat", "dog", "bird", "fish")
               for v in ("sees", "hears", "likes")
               for o in ("sun", "rain", "wind", "moon", "tree"))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
tokens = np.array([stoi[c] for c in text], dtype=np.uint16)
train_data, val_data = tokens[: int(0.9 * len(tokens))], tokens[int(0.9 * len(tokens)):]


def get_batch(split):
    data = train_data if split == 'train' else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i:i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
    return x.to(device), y.to(device)


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(chars), n_embd)
        self.rnn = nn.GRU(n_embd, n_embd, batch_first=True)
        self.lm_head = nn.Linear(n_embd, len(chars))

    def forward(self, idx, targets=None):
        h, _ = self.rnn(self.embed(idx))
        logits = self.lm_head(h)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {}
    for split in ('train', 'val'):
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            _, loss = model(*get_batch(split))
            losses[k] = loss.item()
        out[split] = losses.mean().item()
    model.train()
    return out


model = CharModel().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)

model, optimizer = accelerator.prepare(model, optimizer)
for it in range(max_iters):
    if it % eval_interval == 0:
        losses = estimate_loss()
        accelerator.print(f"step {it}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
    lr = 0.5 * learning_rate * (1 + math.cos(math.pi * it / max_iters))
    for group in optimizer.param_groups:
        group['lr'] = lr
    xb, yb = get_batch('train')
    logits, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    accelerator.backward(loss)
    optimizer.step()
