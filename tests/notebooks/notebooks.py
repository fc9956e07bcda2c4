"""Whole notebooks as people write them. Each prints what training gives, so that runs can be compared."""

START = """\
# %% [markdown]
# Points of three classes
# %%
%pip --version
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
# %%
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print("training on", device)
torch.manual_seed(3)
# %%
points = torch.randn(60, 8)
train_set = TensorDataset(points, points[:, :3].argmax(1))
test_points = torch.randn(21, 8)
test_set = TensorDataset(test_points, test_points[:, :3].argmax(1))
train_loader = DataLoader(train_set, batch_size=10, shuffle=True)
test_loader = DataLoader(test_set, batch_size=10)
"""

# Functions that use the notebook's variables, a loop in a cell, an evaluation and a file below.
GLOBALS = f"""{START}\
# %%
# the model
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
# %%
def train(epoch):
    model.train()
    total = 0.0
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(train_loader)
# %%
def test():
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            x, y = x.to(device), y.to(device)
            correct += (model(x).argmax(1) == y).sum().item()
    return correct
# %%
%%time
losses = []
for epoch in range(3):
    losses.append(train(epoch))
# %%
print("losses", [round(loss, 4) for loss in losses])
print("correct", test())
# %%
torch.save(model.state_dict(), "points.pt")
!ls points.pt
"""

# No functions at all: one cell that trains, and one that evaluates on what it has trained.
FLAT = (
    START
    + """\
# %%
model = nn.Linear(8, 3).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
# %%
# Train it.
for epoch in range(3):
    running = 0.0
    for inputs, labels in train_loader:
        inputs, labels = inputs.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(f"epoch {epoch}: {running / len(train_loader):.4f}")
# %%
correct = 0
with torch.no_grad():
    for inputs, labels in test_loader:
        inputs, labels = inputs.to(device), labels.to(device)
        correct += (model(inputs).argmax(1) == labels).sum().item()
print("correct", correct)
"""
)


def with_module() -> tuple[str, str]:
    """GLOBALS with its training step in `steps.py`: (notebook, module)."""
    start, stop = GLOBALS.index("# %%\ndef train(epoch)"), GLOBALS.index("# %%\ndef test()")
    text = f"{GLOBALS[:start]}# %%\nfrom steps import train\n{GLOBALS[stop:]}"
    text = text.replace("train(epoch)", "train(model, train_loader, optimizer, device)")
    step = GLOBALS[start:stop].removeprefix("# %%\n")
    step = step.replace("train(epoch)", "train(model, loader, optimizer, device)")
    step = step.replace("train_loader", "loader")
    return text, f"import torch.nn.functional as F\n\n\n{step}"
