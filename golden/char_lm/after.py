"""Character-level language model with a GRU, on a text that fits in this file."""
import argparse
import math

import torch
import torch.nn as nn
from crosstrain import Accelerator
from torch.utils.data import DataLoader, Dataset

TEXT = """
The harbour wakes before the town. Ropes creak, a gull complains, and the first boat
slips out past the light with its engine turned low. On the quay two men mend a net
and do not talk. By the time the baker lifts his shutters the fish are already on ice,
the decks are washed, and the water lies flat and grey as if nobody had crossed it.
At noon the children come to count the masts. They never agree on the number, and the
harbour master, who knows it, never tells them.
""".strip()


class CharDataset(Dataset):
    """Windows of `seq_len` characters and the same windows one character later."""

    def __init__(self, text, chars, seq_len, stride):
        stoi = {c: i for i, c in enumerate(chars)}
        self.ids = torch.tensor([stoi[c] for c in text])
        self.seq_len = seq_len
        self.starts = range(0, len(self.ids) - seq_len - 1, stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        return self.ids[s:s + self.seq_len], self.ids[s + 1:s + 1 + self.seq_len]


class CharGRU(nn.Module):
    def __init__(self, vocab_size, emb_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.embed = nn.Embedding(vocab_size, emb_size)
        self.gru = nn.GRU(emb_size, hidden_size, batch_first=True)
        self.decoder = nn.Linear(hidden_size, vocab_size)

    def forward(self, x, hidden):
        out, hidden = self.gru(self.embed(x), hidden)
        return self.decoder(out), hidden

    def init_hidden(self, batch_size, device):
        return torch.zeros(1, batch_size, self.hidden_size, device=device)


def train_epoch(model, loader, criterion, optimizer, device, clip):
    accelerator = Accelerator()
    model.train()
    total = 0.
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        hidden = model.init_hidden(x.size(0), device)
        logits, hidden = model(x, hidden)
        loss = criterion(logits.reshape(-1, logits.size(-1)), y.reshape(-1))
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        total += loss.item() * x.size(0)
        accelerator.print(f"    batch {step}: loss {accelerator.reduce(loss, 'mean').item():.4f}")
    total = accelerator.reduce(total, "sum")
    return total / len(loader.dataset)


def eval_epoch(model, loader, criterion, device):
    accelerator = Accelerator()
    model.eval()
    total = 0.
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            hidden = model.init_hidden(x.size(0), device)
            logits, _ = model(x, hidden)
            loss = criterion(logits.reshape(-1, logits.size(-1)), y.reshape(-1))
            total += loss.item() * x.size(0)
        total = accelerator.merge(loader, total)
    return total / len(loader.dataset)


def generate(model, chars, prompt, length, device):
    """The most likely next character, again and again."""
    model.eval()
    stoi = {c: i for i, c in enumerate(chars)}
    hidden = model.init_hidden(1, device)
    x = torch.tensor([[stoi[c] for c in prompt]], device=device)
    out = prompt
    with torch.no_grad():
        for _ in range(length):
            logits, hidden = model(x, hidden)
            nxt = logits[0, -1].argmax().item()
            out += chars[nxt]
            x = torch.tensor([[nxt]], device=device)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--seq_len", type=int, default=24)
    parser.add_argument("--emb", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--cuda", action="store_true", help="use the GPU")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    if torch.cuda.is_available() and not args.cuda:
        print("WARNING: there is a CUDA device, you could run with --cuda")
    accelerator = Accelerator(cpu=not args.cuda)
    device = accelerator.device

    chars = sorted(set(TEXT))
    split = int(0.75 * len(TEXT))
    train_data = CharDataset(TEXT[:split], chars, args.seq_len, stride=5)
    valid_data = CharDataset(TEXT[split:], chars, args.seq_len, stride=3)
    train_loader = DataLoader(train_data, batch_size=args.batch_size, shuffle=True)
    valid_loader = DataLoader(valid_data, batch_size=args.batch_size)
    accelerator.print(f"{len(chars)} characters, {len(train_data)} training and {len(valid_data)} validation windows")

    model = CharGRU(len(chars), args.emb, args.hidden).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(1, args.epochs + 1):
        train_loss = train_epoch(model, train_loader, criterion, optimizer, device, args.clip)
        valid_loss = eval_epoch(model, valid_loader, criterion, device)
        accelerator.print(f"epoch {epoch:3d} | train loss {train_loss:.3f} | valid loss {valid_loss:.3f} "
                          f"| perplexity {math.exp(valid_loss):.2f}")

    accelerator.print("sample:", repr(generate(model, chars, "The ", 20, device)))
