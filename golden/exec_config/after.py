"""Train a small classifier of digits.

Everything below the line can be overridden on the command line:
$ python train.py batch_size=32 learning_rate=0.05
"""
import math
import sys

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

# -----------------------------------------------------------------------------
out_path = 'digits.pt'
eval_interval = 1
batch_size = 25
max_epochs = 4
learning_rate = 0.2  # max learning rate
min_lr = 0.02
warmup_iters = 4
grad_clip = 1.0  # clip gradients at this value, or disable if == 0.0
device = 'cuda' if torch.cuda.is_available() else 'cpu'  # 'cpu', 'cuda', 'cuda:0', ...
# -----------------------------------------------------------------------------
config_keys = [k for k, v in globals().items() if not k.startswith('_') and isinstance(v, (int, float, bool, str))]
for arg in sys.argv[1:]:
    key, value = arg.split('=')
    assert key in config_keys, f"unknown setting {key}"
    exec(f"{key} = {value!r}" if isinstance(globals()[key], str) else f"{key} = {value}")
accelerator = Accelerator(device=device)
device = accelerator.device.type
config = {k: globals()[k] for k in config_keys}  # will be useful for logging
# -----------------------------------------------------------------------------

torch.manual_seed(1337)

digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
train_loader = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=batch_size, shuffle=True)
val_loader = DataLoader(TensorDataset(x[1500:], y[1500:]), batch_size=batch_size)

model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
total_iters = max_epochs * accelerator.share(len(train_loader))


# learning rate decay scheduler (cosine with warmup)
def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (total_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_accuracy():
    model.eval()
    correct = 0
    evaluation_loader = accelerator.prepare_evaluation(val_loader)
    for xb, yb in evaluation_loader:
        xb, yb = xb.to(device), yb.to(device)
        correct += (model(xb).argmax(-1) == yb).sum().item()
    correct = accelerator.merge(evaluation_loader, correct)
    model.train()
    return correct / len(val_loader.dataset)


iter_num = 0
model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
for epoch in range(max_epochs):
    for xb, yb in train_loader:
        lr = get_lr(iter_num)
        for param_group in optimizer.param_groups:
            param_group['lr'] = lr
        xb, yb = xb.to(device), yb.to(device)
        loss = F.cross_entropy(model(xb), yb)
        accelerator.backward(loss)
        if grad_clip != 0.0:
            accelerator.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        iter_num += 1
    if epoch % eval_interval == 0:
        accelerator.print(
            f"epoch {epoch}: loss {accelerator.reduce(loss, 'mean').item():.4f}, accuracy {estimate_accuracy():.4f}"
        )
accelerator.save(model.state_dict(), out_path)
