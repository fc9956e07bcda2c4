# Fits sine waves with LBFGS; the line search calls the closure as often as it likes.
import torch
import torch.nn as nn
import torch.optim as optim
from crosstrain import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator()
device = accelerator.device

T = 20
phase = torch.linspace(0, 6, 45).unsqueeze(1)
waves = torch.sin(phase + 0.4 * torch.arange(T + 1))
train_loader = DataLoader(TensorDataset(waves[:32, :-1], waves[:32, -1:]), batch_size=24, shuffle=True)
test_loader = DataLoader(TensorDataset(waves[32:, :-1], waves[32:, -1:]), batch_size=8)

model = nn.Sequential(nn.Linear(T, 12), nn.Tanh(), nn.Linear(12, 1)).to(device)
criterion = nn.MSELoss()
optimizer = optim.LBFGS(model.parameters(), lr=0.8, max_iter=4, line_search_fn='strong_wolfe')

model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
test_loader = accelerator.prepare_evaluation(test_loader)
for i in range(3):
    accelerator.print('STEP: ', i)
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            accelerator.backward(loss)
            return accelerator.reduce(loss, "mean")

        loss = optimizer.step(closure)
        accelerator.print('loss:', round(loss.item(), 6))

    # begin to predict, no need to track gradient here
    with torch.no_grad():
        total = 0.0
        for x, y in test_loader:
            x, y = x.to(device), y.to(device)
            total += criterion(model(x), y).item() * len(x)
        total = accelerator.merge(test_loader, total)
        accelerator.print('test loss:', round(total / len(test_loader.dataset), 6))
