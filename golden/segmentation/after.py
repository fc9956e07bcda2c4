import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

N_CLASSES = 3  # background, thin stroke, thick stroke


class NoisyStrokes(Dataset):
    """Digits under noise; the target says for every pixel how dark it really is."""

    def __init__(self, start, stop, noise=0.2, seed=0):
        clean = load_digits().images[start:stop] / 16.0
        rng = np.random.RandomState(seed)
        self.images = (clean + noise * rng.randn(*clean.shape)).astype(np.float32)
        self.masks = np.digitize(clean, [0.25, 0.75]).astype(np.int64)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        return {"image": torch.from_numpy(self.images[idx]).unsqueeze(0), "mask": torch.from_numpy(self.masks[idx])}


def double_conv(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1),
        nn.GroupNorm(4, c_out),
        nn.ReLU(inplace=True),
        nn.Conv2d(c_out, c_out, 3, padding=1),
        nn.GroupNorm(4, c_out),
        nn.ReLU(inplace=True),
    )


class MiniUNet(nn.Module):
    def __init__(self, n_classes, width=8):
        super().__init__()
        self.down = double_conv(1, width)
        self.bottom = double_conv(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge = double_conv(2 * width, width)
        self.head = nn.Conv2d(width, n_classes, 1)

    def forward(self, x):
        skip = self.down(x)
        x = self.bottom(F.max_pool2d(skip, 2))
        x = self.merge(torch.cat([skip, self.up(x)], dim=1))
        return self.head(x)


def confusion(pred, mask, n):
    """n x n counts: rows are the truth, columns the prediction."""
    return torch.bincount(n * mask.flatten() + pred.flatten(), minlength=n * n).reshape(n, n)


def evaluate(net, loader, device):
    accelerator = Accelerator()
    net.eval()
    hist = torch.zeros(N_CLASSES, N_CLASSES, dtype=torch.long, device=device)
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for batch in loader:
            image = batch["image"].to(device)
            mask = batch["mask"].to(device)
            pred = net(image).argmax(dim=1)
            hist += confusion(pred, mask, N_CLASSES)
        hist = accelerator.merge(loader, hist)
    net.train()

    tp = hist.diag().float()
    iou = tp / (hist.sum(0) + hist.sum(1) - tp).clamp(min=1)
    pixel_acc = (tp.sum() / hist.sum()).item()
    return pixel_acc, iou.tolist()


def main():
    accelerator = Accelerator()
    parser = argparse.ArgumentParser("segmentation")
    parser.add_argument("-e", "--epochs", type=int, default=10)
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("-l", "--learning-rate", type=float, default=0.3)
    parser.add_argument("-n", "--num-train", type=int, default=1400)
    args = parser.parse_args()

    torch.manual_seed(1)
    device = accelerator.device

    train_set = NoisyStrokes(0, args.num_train, seed=1)
    val_set = NoisyStrokes(-147, None, seed=2)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    net = MiniUNet(N_CLASSES)
    net.to(device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    net, optimizer, train_loader = accelerator.prepare(net, optimizer, train_loader)
    for epoch in range(args.epochs):
        epoch_loss = 0
        for batch in train_loader:
            images = batch["image"].to(device=device, dtype=torch.float32)
            true_masks = batch["mask"].to(device=device, dtype=torch.long)

            masks_pred = net(images)
            loss = criterion(masks_pred, true_masks)
            epoch_loss += loss.item()

            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        epoch_loss = accelerator.reduce(epoch_loss, "mean")

        pixel_acc, iou = evaluate(net, val_loader, device)
        accelerator.print(f"Epoch {epoch + 1}: loss {epoch_loss / len(train_loader):.4f}, pixel accuracy {pixel_acc:.4f}, "
                          f"mean IoU {np.mean(iou):.4f} ({', '.join('%.3f' % v for v in iou)})")


if __name__ == "__main__":
    main()
