"""A masked language model: some masks are drawn where batches are put together, some in the step."""
import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, MASK, IGNORED = 40, 0, -100


class Sentences(Dataset):
    """Sentences in which each word follows from the one before it, most of the time."""

    def __init__(self, n, length):
        generator = random.Random(1)
        self.items = []
        for _ in range(n):
            words = [generator.randrange(1, VOCABULARY)]
            while len(words) < length:
                jump = 1 if generator.random() < 0.8 else generator.randrange(1, VOCABULARY)
                words.append((words[-1] + jump) % (VOCABULARY - 1) + 1)
            self.items.append(torch.tensor(words))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(batch):
    tokens = torch.stack(batch)
    chosen = torch.rand(tokens.shape) < 0.15
    chosen[:, 0] = True
    labels = tokens.masked_fill(~chosen, IGNORED)
    return tokens.masked_fill(chosen, MASK), labels


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.mix = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        hidden, _ = self.mix(self.words(tokens))
        return self.head(hidden)


def train(model, loader, optimizer, device, epoch):
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORED)
    model.train()
    for i, (tokens, labels) in enumerate(loader):
        tokens, labels = tokens.to(device), labels.to(device)
        # a tenth of all words is replaced by any other, as in BERT
        noise = torch.randint(1, VOCABULARY, tokens.shape, device=device)
        swapped = torch.rand(tokens.shape, device=device) < 0.1
        tokens = torch.where(swapped, noise, tokens)
        logits = model(tokens)
        loss = criterion(logits.view(-1, VOCABULARY), labels.view(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if i % 10 == 0:
            print("epoch %d step %d loss %.4f" % (epoch, i, loss.item()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()

    use_cuda = not args.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    torch.manual_seed(7)

    data = Sentences(320, 12)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    model = Encoder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(1, args.epochs + 1):
        train(model, loader, optimizer, device, epoch)


if __name__ == "__main__":
    main()
