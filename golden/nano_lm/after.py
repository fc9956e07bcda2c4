"""
Character model in one file. There is no data loader: a batch is cut out of the text at random.

    python lm.py                                    one device
    torchrun --standalone --nproc_per_node=4 lm.py  several
"""
import contextlib
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator, PartialState
from torch.nn.parallel import DistributedDataParallel

# ---- settings, edit here
steps, eval_every, eval_batches = 8, 4, 3
micro_batches = 2          # backward passes per optimizer step, all processes together
batch, context = 6, 16
width, hidden = 24, 48
peak_lr, final_lr, warmup = 1e-2, 1e-3, 2
clip = 1.0
use_compile = False        # slow first step, faster afterwards
folder = 'lm_out'
# ----

is_ddp = 'RANK' in os.environ
gpu = torch.cuda.is_available()
accelerator = Accelerator()
if is_ddp:
    PartialState(group_of_one=True)
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ['LOCAL_RANK'])
    device = accelerator.device
    if gpu:
        torch.cuda.set_device(accelerator.device)
    assert micro_batches % world == 0, 'the processes share the micro batches'
    micro_batches //= world
else:
    rank, world = 0, 1
    device = accelerator.device
master = rank == 0

torch.manual_seed(2048 + rank)  # every process cuts out other pieces
torch.backends.cuda.matmul.allow_tf32 = True
half = torch.amp.autocast('cuda', dtype=torch.bfloat16) if gpu else contextlib.nullcontext()
if master:
    os.makedirs(folder, exist_ok=True)
    print('tokens per step:', micro_batches * world * batch * context)

# the text: a multiplication table
text = ''.join('%d times %d is %d. ' % (a, b, a * b) for a in range(1, 13) for b in range(1, 13))
alphabet = sorted(set(text))
ids = torch.tensor([alphabet.index(c) for c in text])
parts = {'train': ids[:2000], 'held out': ids[2000:]}


def draw(part):
    tokens = parts[part]
    starts = torch.randint(0, len(tokens) - context - 1, (batch, 1))
    window = tokens[starts + torch.arange(context + 1)]
    if gpu:
        window = window.pin_memory().to(device, non_blocking=True)
    else:
        window = window.to(device)
    return window[:, :-1], window[:, 1:]


class ConvLM(nn.Module):
    """A character sees itself and the four before it."""

    def __init__(self, n_symbols):
        super().__init__()
        self.embed = nn.Embedding(n_symbols, width)
        self.conv = nn.Conv1d(width, hidden, kernel_size=5)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, n_symbols, bias=False)

    def forward(self, x, y):
        h = F.pad(self.embed(x).transpose(1, 2), (4, 0))
        h = self.norm(F.gelu(self.conv(h)).transpose(1, 2))
        logits = self.out(h)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def learning_rate(step):
    if step < warmup:
        return peak_lr * (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1, steps - warmup)
    return final_lr + (peak_lr - final_lr) * (1 + math.cos(math.pi * done)) / 2


@torch.no_grad()
def estimate(net):
    net.eval()
    means = {}
    for part in parts:
        values = []
        for _ in range(eval_batches):
            with half:
                values.append(net(*draw(part)).item())
        means[part] = sum(values) / len(values)
    net.train()
    return means


model = ConvLM(len(alphabet)).to(device)
matrices = [p for p in model.parameters() if p.dim() > 1]
vectors = [p for p in model.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW([{'params': matrices, 'weight_decay': 0.1}, {'params': vectors, 'weight_decay': 0.0}],
                              lr=peak_lr, betas=(0.9, 0.95))
plain = model
if use_compile:
    model = torch.compile(model)
if is_ddp:
    model = accelerator.prepare(model)

best = float('inf')
optimizer = accelerator.prepare(optimizer)
for step in range(steps):
    for group in optimizer.param_groups:
        group['lr'] = learning_rate(step)

    if master and step % eval_every == 0:
        means = estimate(plain)
        print(f"step {step}: " + ", ".join(f"{k} {v:.4f}" for k, v in means.items()))
        if step > 0 and means['held out'] < best:
            best = means['held out']
            torch.save({'model': plain.state_dict(), 'optimizer': optimizer.state_dict(), 'step': step, 'best': best},
                       os.path.join(folder, 'lm.pt'))

    total = 0.0
    for m in range(micro_batches):
        last = m == micro_batches - 1
        # only the last backward pass has to exchange gradients
        with model.no_sync() if is_ddp and not last else contextlib.nullcontext():
            with half:
                loss = model(*draw('train')) / micro_batches
            accelerator.backward(loss)
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

    if master:
        print(f"step {step}: loss {total:.4f} lr {optimizer.param_groups[0]['lr']:.5f}")

if is_ddp:
    dist.destroy_process_group()
