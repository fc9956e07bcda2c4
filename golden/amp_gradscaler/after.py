import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.fc = nn.Linear(channels * 4 * 4, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = F.avg_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc(torch.flatten(x, 1))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--channels", type=int, default=12)
    parser.add_argument("--no-amp", action="store_true", help="train in full precision")
    return parser.parse_args()


def main():
    accelerator = Accelerator()
    args = parse()
    torch.manual_seed(2)

    device = accelerator.device
    # half precision only makes sense on a GPU
    use_amp = torch.cuda.is_available() and not args.no_amp

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    train_loader = DataLoader(TensorDataset(x[:1450], y[:1450]), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(x[1450:], y[1450:]), batch_size=args.batch_size)

    model = ConvNet(args.channels).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scaler = GradScaler(enabled=use_amp)

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    test_loader = accelerator.prepare_evaluation(test_loader)
    for epoch in range(args.epochs):
        model.train()
        train_loss = 0.0
        for images, labels in train_loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)

            optimizer.zero_grad()
            with autocast(enabled=use_amp):
                logits = model(images)
                loss = F.cross_entropy(logits, labels)

            accelerator.backward(scaler.scale(loss))

            # gradients must be unscaled before they can be clipped
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

            scaler.step(optimizer)
            scaler.update()

            train_loss += loss.item() * images.size(0)
        train_loss = accelerator.reduce(train_loss, "sum")
        train_loss /= len(train_loader.dataset)

        model.eval()
        correct = 0
        with torch.no_grad(), autocast(enabled=use_amp):
            for images, labels in test_loader:
                images, labels = images.to(device), labels.to(device)
                correct += (model(images).argmax(dim=1) == labels).sum().item()
            correct = accelerator.merge(test_loader, correct)
        accelerator.print(f"epoch {epoch + 1}: train loss {train_loss:.4f}, test accuracy {correct / len(test_loader.dataset):.4f}")

        accelerator.save({
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scaler": scaler.state_dict(),
        }, "amp_checkpoint.pt")


if __name__ == "__main__":
    main()
