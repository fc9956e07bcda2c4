import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

accelerator = Accelerator()
# get the data and put a part of it aside
digits = load_digits()
dataset = TensorDataset(
    torch.tensor(digits.data, dtype=torch.float32) / 16,
    torch.tensor(digits.target, dtype=torch.long),
)
dataset, _ = random_split(dataset, [382, len(dataset) - 382])
train_data, val_data = random_split(dataset, [235, 147])

train_dl = DataLoader(train_data, batch_size=64, shuffle=True)
val_dl = DataLoader(val_data, batch_size=64)

device = accelerator.device
model = nn.Sequential(
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
).to(device)
loss_func = nn.CrossEntropyLoss()
opt = torch.optim.Adam(model.parameters())


def fit(epochs):
    for epoch in range(epochs):
        model.train()
        for xb, yb in train_dl:
            loss = loss_func(model(xb.to(device)), yb.to(device))
            accelerator.backward(loss)
            opt.step()
            opt.zero_grad()

        model.eval()
        with torch.no_grad():
            losses, hits, nums = zip(*[
                (loss_func(model(xb.to(device)), yb.to(device)).item(),
                 (model(xb.to(device)).argmax(1) == yb.to(device)).sum().item(),
                 len(xb))
                for xb, yb in val_dl
            ])
        val_loss = sum(l * n for l, n in zip(losses, nums)) / sum(nums)
        accelerator.print(epoch, "val loss:", val_loss, "val acc:", sum(hits) / sum(nums))


model, opt, train_dl = accelerator.prepare(model, opt, train_dl)
fit(2)
