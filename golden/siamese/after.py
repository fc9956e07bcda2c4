import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, Dataset


class PairDataset(Dataset):
    """Pairs of digits and whether they show the same one (half of them do)."""

    def __init__(self, images, targets, n_pairs, seed):
        self.images = images
        rng = random.Random(seed)
        by_class = {}
        for i, t in enumerate(targets.tolist()):
            by_class.setdefault(t, []).append(i)
        self.pairs = []
        for k in range(n_pairs):
            same = k % 2 == 0
            c1 = rng.randrange(10)
            c2 = c1 if same else rng.choice([c for c in range(10) if c != c1])
            self.pairs.append((rng.choice(by_class[c1]), rng.choice(by_class[c2]), float(same)))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        i, j, same = self.pairs[k]
        return self.images[i], self.images[j], torch.tensor(same)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.fc1 = nn.Linear(8 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 16)

    def forward_once(self, x):
        x = F.max_pool2d(torch.relu(self.conv(x)), 2)
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)

    def forward(self, a, b):
        return self.forward_once(a), self.forward_once(b)


class ContrastiveLoss(nn.Module):
    """Same pairs are pulled together, others are pushed apart up to the margin."""

    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, e1, e2, same):
        distance = F.pairwise_distance(e1, e2)
        loss = same * distance.pow(2) + (1 - same) * F.relu(self.margin - distance).pow(2)
        return loss.mean()


def train(args, model, device, train_loader, criterion, optimizer, epoch):
    accelerator = Accelerator()
    model.train()
    seen = 0
    for batch_idx, (img1, img2, same) in enumerate(train_loader):
        img1, img2, same = img1.to(device), img2.to(device), same.to(device)
        optimizer.zero_grad()
        e1, e2 = model(img1, img2)
        loss = criterion(e1, e2, same)
        accelerator.backward(loss)
        optimizer.step()
        seen += len(img1)
        if batch_idx % args.log_interval == 0:
            accelerator.print(
                'epoch {}: {} of {} pairs, loss {:.6f}'.format(
                    epoch, accelerator.reduce(seen, "sum"), len(train_loader.dataset),
                    accelerator.reduce(loss, "mean").item()
                )
            )
        if args.dry_run:
            break


def test(args, model, device, test_loader, criterion):
    accelerator = Accelerator()
    model.eval()
    test_loss = 0
    correct = 0
    distances = []
    test_loader = accelerator.prepare_evaluation(test_loader)
    with torch.no_grad():
        for (img1, img2, same) in test_loader:
            img1, img2, same = img1.to(device), img2.to(device), same.to(device)
            e1, e2 = model(img1, img2)
            test_loss += criterion(e1, e2, same).item() * len(same)
            d = F.pairwise_distance(e1, e2)
            pred = torch.where(d < args.threshold, 1, 0)
            correct += pred.eq(same.view_as(pred)).sum().item()
            distances.append(d)
        test_loss, correct, distances = accelerator.merge(test_loader, test_loss, correct, distances)

    distances = torch.cat(distances)
    n = len(test_loader.dataset)
    accelerator.print('test: loss {:.4f}, {} of {} pairs right ({:.1f}%), median distance {:.4f}'.format(
        test_loss / n, correct, n, 100. * correct / n, distances.median().item()))


def main():
    accelerator = Accelerator()
    parser = argparse.ArgumentParser()
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--test-batch-size', type=int, default=256)
    parser.add_argument('--epochs', type=int, default=14)
    parser.add_argument('--pairs', type=int, default=4000)
    parser.add_argument('--lr', type=float, default=0.1)
    parser.add_argument('--gamma', type=float, default=0.9)
    parser.add_argument('--threshold', type=float, default=0.1)
    parser.add_argument('--dry-run', action='store_true', help='one batch per epoch, to see that everything works')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--log-interval', type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    if torch.cuda.is_available():
        device = accelerator.device
    elif torch.backends.mps.is_available():
        device = accelerator.device
    else:
        device = accelerator.device

    digits = load_digits()
    images = torch.tensor(digits.images).float().unsqueeze(1) / 16
    train_data = PairDataset(images[:1400], digits.target[:1400], args.pairs, seed=10)
    test_data = PairDataset(images[1400:], digits.target[1400:], 147, seed=11)
    train_loader = DataLoader(train_data, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_data, batch_size=args.test_batch_size)

    model = SiameseNetwork().to(device)
    criterion = ContrastiveLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    scheduler = ExponentialLR(optimizer, gamma=args.gamma)

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, criterion, optimizer, epoch)
        test(args, model, device, test_loader, criterion)
        scheduler.step()

    accelerator.save(model.state_dict(), "siamese_network.pt")


if __name__ == '__main__':
    main()
