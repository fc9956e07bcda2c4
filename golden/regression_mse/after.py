import copy

import torch
from crosstrain import Accelerator
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

SEED = 11
MAX_EPOCHS = 4
PATIENCE = 1
MIN_DELTA = 0.35  # a smaller improvement of the validation loss does not count

accelerator = Accelerator()
device = accelerator.device


def make_data(n, seed):
    """y = sin(x0) + x1 * x2 + a little noise; x3 and x4 mean nothing."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=g)
    y = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.05 * torch.randn(n, generator=g)
    return TensorDataset(x, y.unsqueeze(1))


class Regressor(nn.Module):
    def __init__(self, n_in=5, n_hidden=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_in, n_hidden), nn.SiLU(),
            nn.Linear(n_hidden, n_hidden), nn.SiLU(),
            nn.Linear(n_hidden, 1))

    def forward(self, x):
        return self.layers(x)


def run_epoch(model, loader, criterion, optimizer=None):
    training = optimizer is not None
    model.train(training)
    running_loss = 0.0
    loader = accelerator.prepare(loader) if training else accelerator.prepare_evaluation(loader)
    with torch.set_grad_enabled(training):
        for inputs, targets in loader:
            inputs = inputs.to(device)
            targets = targets.to(device)
            predictions = model(inputs)
            loss = criterion(predictions, targets)
            if training:
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
            running_loss += loss.item() * inputs.size(0)
        running_loss = accelerator.merge(loader, running_loss)
    return running_loss / len(loader.dataset)


def predict(model, loader):
    model.eval()
    preds, trues = [], []
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for inputs, targets in loader:
            preds.append(model(inputs.to(device)).cpu())
            trues.append(targets.cpu())
        preds, trues = accelerator.merge(loader, preds, trues)
    return torch.cat(preds), torch.cat(trues)


torch.manual_seed(SEED)
train_set, val_set, test_set = make_data(91, 1), make_data(53, 2), make_data(147, 3)
train_loader = DataLoader(train_set, batch_size=48, shuffle=True)
val_loader = DataLoader(val_set, batch_size=20)
test_loader = DataLoader(test_set, batch_size=32)

model = Regressor().to(device)
criterion = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=0.02)

best_loss = float("inf")
best_state = None
bad_epochs = 0
model, optimizer = accelerator.prepare(model, optimizer)
for epoch in range(MAX_EPOCHS):
    train_loss = run_epoch(model, train_loader, criterion, optimizer)
    val_loss = run_epoch(model, val_loader, criterion)
    accelerator.print(f"Epoch {epoch:02d} | train MSE {train_loss:.4f} | val MSE {val_loss:.4f}")

    # early stopping
    if val_loss < best_loss - MIN_DELTA:
        best_loss = val_loss
        best_state = copy.deepcopy(model.state_dict())
        bad_epochs = 0
    else:
        bad_epochs += 1
        if bad_epochs > PATIENCE:
            accelerator.print(f"Stopping early, best validation MSE {best_loss:.4f}")
            break

model.load_state_dict(best_state)
y_pred, y_true = predict(model, test_loader)
mae = (y_pred - y_true).abs().mean().item()
ss_res = ((y_true - y_pred) ** 2).sum()
ss_tot = ((y_true - y_true.mean()) ** 2).sum()
r2 = 1 - (ss_res / ss_tot).item()
accelerator.print(f"Test: {len(y_true)} rows, MAE {mae:.4f}, R2 {r2:.4f}")
