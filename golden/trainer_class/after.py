import csv

import torch
import torch.nn as nn
import torch.optim as optim
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class MLP(nn.Module):
    def __init__(self, in_features=64, hidden=48, classes=10):
        super().__init__()
        self.fc1 = nn.Linear(in_features, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        x = torch.tanh(self.fc1(x))
        x = torch.tanh(self.fc2(x))
        return self.out(x)


class Trainer:
    """Owns everything that training needs."""

    def __init__(self, model, train_loader, val_loader, lr=0.1, epochs=2, log_file="log.csv"):
        accelerator = Accelerator()
        self.device = accelerator.device
        self.model = model.to(self.device)
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.epochs = epochs
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = optim.SGD(self.model.parameters(), lr=lr, momentum=0.9, nesterov=True)
        self.model, self.optimizer, self.train_loader = accelerator.prepare(
            self.model, self.optimizer, self.train_loader
        )
        self.scheduler = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs)
        self.log_file = log_file

    def train_epoch(self):
        accelerator = Accelerator()
        self.model.train()
        total_loss = 0.0
        n_correct = 0
        n_samples = 0
        for x, y in self.train_loader:
            x = x.to(self.device)
            y = y.to(self.device)

            self.optimizer.zero_grad()
            logits = self.model(x)
            loss = self.criterion(logits, y)
            accelerator.backward(loss)
            self.optimizer.step()

            total_loss += loss.item() * x.size(0)
            n_correct += (logits.argmax(dim=1) == y).sum().item()
            n_samples += x.size(0)
        total_loss, n_correct, n_samples = accelerator.reduce(
            (total_loss, n_correct, n_samples), "sum"
        )
        return total_loss / n_samples, n_correct / n_samples

    def evaluate(self):
        accelerator = Accelerator()
        self.model.eval()
        total_loss = 0.0
        n_correct = 0
        n_samples = 0
        evaluation_loader = accelerator.prepare_evaluation(self.val_loader)
        with torch.no_grad():
            for x, y in evaluation_loader:
                x = x.to(self.device)
                y = y.to(self.device)
                logits = self.model(x)
                loss = self.criterion(logits, y)

                total_loss += loss.item() * x.size(0)
                n_correct += (logits.argmax(dim=1) == y).sum().item()
                n_samples += x.size(0)
            total_loss, n_correct, n_samples = accelerator.merge(
                evaluation_loader, total_loss, n_correct, n_samples
            )
        return total_loss / n_samples, n_correct / n_samples

    def fit(self):
        if PartialState().is_main_process:
            with open(self.log_file, "w", newline="") as f:
                csv.writer(f).writerow(["epoch", "lr", "train_loss", "train_acc", "val_loss", "val_acc"])

        for epoch in range(1, self.epochs + 1):
            lr = self.optimizer.param_groups[0]["lr"]
            train_loss, train_acc = self.train_epoch()
            val_loss, val_acc = self.evaluate()
            self.scheduler.step()

            PartialState().print("Epoch %d: train loss %.4f acc %.3f | val loss %.4f acc %.3f" % (
                epoch, train_loss, train_acc, val_loss, val_acc))

            # one line per epoch, so that a crash loses nothing
            if PartialState().is_main_process:
                with open(self.log_file, "a", newline="") as f:
                    csv.writer(f).writerow([epoch, lr, train_loss, train_acc, val_loss, val_acc])

    def save(self, path):
        accelerator = Accelerator()
        accelerator.save(self.model.state_dict(), path)


def make_loaders(batch_size):
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    y = torch.tensor(digits.target)
    train_set = TensorDataset(x[:215], y[:215])
    val_set = TensorDataset(x[215:362], y[215:362])
    return (
        DataLoader(train_set, batch_size=batch_size, shuffle=True),
        DataLoader(val_set, batch_size=2 * batch_size),
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    accelerator = Accelerator()
    train_loader, val_loader = make_loaders(batch_size=60)
    trainer = Trainer(MLP(), train_loader, val_loader)
    trainer.fit()
    trainer.save("mlp.pt")
