"""Hogwild: several processes change the same weights in shared memory, without locks."""
import argparse

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def dataset():
    x, y = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y))


def train(rank, args, model, device):
    torch.manual_seed(args.seed + rank)
    loader = DataLoader(torch.utils.data.Subset(dataset(), range(230)), batch_size=60, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"process {rank} epoch {epoch} loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    model.share_memory()  # gradients are allocated lazily, so they are not shared here

    if args.num_processes == 1:
        train(0, args, model, device)
        return

    mp.set_start_method("spawn", force=True)
    processes = []
    for rank in range(args.num_processes):
        p = mp.Process(target=train, args=(rank, args, model, device))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()


if __name__ == "__main__":
    main()
