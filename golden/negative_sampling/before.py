"""Matrix factorisation for implicit feedback; the negatives are drawn anew in each epoch."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.utils.data as data

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--num_ng", type=int, default=3, help="negatives for each positive")
args = parser.parse_args()

USERS, ITEMS = 60, 80
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class Interactions(data.Dataset):
    def __init__(self, positives, num_ng):
        super().__init__()
        self.positives = positives
        self.known = set(positives)
        self.num_ng = num_ng
        self.samples, self.labels = list(positives), [1] * len(positives)

    def ng_sample(self):
        negatives = []
        for user, _ in self.positives:
            for _ in range(self.num_ng):
                item = np.random.randint(ITEMS)
                while (user, item) in self.known:
                    item = np.random.randint(ITEMS)
                negatives.append((user, item))
        self.samples = self.positives + negatives
        self.labels = [1] * len(self.positives) + [0] * len(negatives)

    def __len__(self):
        return (self.num_ng + 1) * len(self.positives)

    def __getitem__(self, idx):
        user, item = self.samples[idx]
        return user, item, np.float32(self.labels[idx])


class MF(nn.Module):
    def __init__(self, factors=8):
        super().__init__()
        self.user = nn.Embedding(USERS, factors)
        self.item = nn.Embedding(ITEMS, factors)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        self.drop = nn.Dropout(0.1)

    def forward(self, user, item):
        return (self.drop(self.user(user)) * self.item(item)).sum(-1)


np.random.seed(5)
torch.manual_seed(5)
positives = sorted({(u, (u * 7 + k * k) % ITEMS) for u in range(USERS) for k in range(6)})
train_dataset = Interactions(positives, args.num_ng)
train_loader = data.DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True, num_workers=0)

model = MF()
model.to(device)
loss_function = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

for epoch in range(args.epochs):
    model.train()
    start_time = time.time()
    train_loader.dataset.ng_sample()
    for user, item, label in train_loader:
        user = user.to(device)
        item = item.to(device)
        label = label.to(device)

        model.zero_grad()
        prediction = model(user, item)
        loss = loss_function(prediction, label)
        loss.backward()
        optimizer.step()
    print("epoch {:02d} loss {:.4f}".format(epoch, loss.item()))
