"""Encoder-decoder that spells numbers backwards: "4071" -> "1704"."""
import random

import torch
import torch.nn as nn
import torch.optim as optim
from crosstrain import Accelerator
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, SOS, EOS = 10, 11, 12
VOCAB = 13

SEED = 4321
random.seed(SEED)
torch.manual_seed(SEED)

accelerator = Accelerator()
device = accelerator.device


class ReverseDataset(Dataset):
    def __init__(self, size, seed):
        rng = random.Random(seed)
        self.pairs = []
        for _ in range(size):
            digits = [rng.randint(0, 9) for _ in range(rng.randint(3, 8))]
            self.pairs.append((torch.tensor(digits + [EOS]), torch.tensor([SOS] + digits[::-1] + [EOS])))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def collate(batch):
    src, trg = zip(*batch)
    src_len = torch.tensor([len(s) for s in src])
    src = pad_sequence(src, batch_first=True, padding_value=PAD)
    trg = pad_sequence(trg, batch_first=True, padding_value=PAD)
    return src, src_len, trg


class Encoder(nn.Module):
    def __init__(self, emb_dim, hid_dim):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb_dim, padding_idx=PAD)
        self.rnn = nn.LSTM(emb_dim, hid_dim, batch_first=True)

    def forward(self, src, src_len):
        packed = pack_padded_sequence(self.embedding(src), src_len.cpu(), batch_first=True, enforce_sorted=False)
        _, (hidden, cell) = self.rnn(packed)
        return hidden, cell


class Decoder(nn.Module):
    def __init__(self, emb_dim, hid_dim):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb_dim, padding_idx=PAD)
        self.rnn = nn.LSTM(emb_dim, hid_dim, batch_first=True)
        self.project = nn.Linear(hid_dim, VOCAB)

    def forward(self, token, hidden, cell):
        output, (hidden, cell) = self.rnn(self.embedding(token.unsqueeze(1)), (hidden, cell))
        return self.project(output.squeeze(1)), hidden, cell


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder, device):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.device = device

    def forward(self, src, src_len, trg, teacher_forcing_ratio=0.5):
        batch_size, trg_len = trg.shape
        outputs = torch.zeros(batch_size, trg_len, VOCAB, device=self.device)
        hidden, cell = self.encoder(src, src_len)
        token = trg[:, 0]
        for t in range(1, trg_len):
            output, hidden, cell = self.decoder(token, hidden, cell)
            outputs[:, t] = output
            # show it the right answer, or let it go on with its own
            token = trg[:, t] if random.random() < teacher_forcing_ratio else output.argmax(1)
        return outputs


def train(model, batches, optimizer, criterion, clip):
    model.train()
    total = 0
    for src, src_len, trg in batches:
        src, trg = src.to(device), trg.to(device)
        optimizer.zero_grad()
        output = model(src, src_len, trg)
        # position 0 holds the start symbol and is never predicted
        loss = criterion(output[:, 1:].reshape(-1, VOCAB), trg[:, 1:].reshape(-1))
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        total += loss.item()
    total = accelerator.reduce(total, "mean")
    return total / len(batches)


def evaluate(model, batches, criterion):
    model.eval()
    total = 0
    tokens_right = 0
    tokens = 0
    batches = accelerator.prepare_evaluation(batches)
    with torch.no_grad():
        for src, src_len, trg in batches:
            src, trg = src.to(device), trg.to(device)
            output = model(src, src_len, trg, 0)  # no teacher forcing
            gold = trg[:, 1:]
            total += criterion(output[:, 1:].reshape(-1, VOCAB), gold.reshape(-1)).item()
            mask = gold != PAD
            tokens_right += ((output[:, 1:].argmax(-1) == gold) & mask).sum().item()
            tokens += mask.sum().item()
        total, tokens_right, tokens = accelerator.merge(batches, total, tokens_right, tokens)
    return total / len(batches), tokens_right / tokens


train_iter = DataLoader(ReverseDataset(111, 1), batch_size=32, shuffle=True, collate_fn=collate)
valid_iter = DataLoader(ReverseDataset(47, 2), batch_size=32, collate_fn=collate)

model = Seq2Seq(Encoder(16, 32), Decoder(16, 32), device).to(device)


for weight in model.parameters():
    nn.init.uniform_(weight, -0.1, 0.1)
accelerator.print('weights to train:', sum(p.numel() for p in model.parameters() if p.requires_grad))

optimizer = optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)

best_valid_loss = float('inf')
model, optimizer, train_iter = accelerator.prepare(model, optimizer, train_iter)
for epoch in range(2):
    train_loss = train(model, train_iter, optimizer, criterion, clip=1)
    valid_loss, valid_acc = evaluate(model, valid_iter, criterion)
    if valid_loss < best_valid_loss:
        best_valid_loss = valid_loss
        accelerator.save(model.state_dict(), 'seq2seq.pt')
    accelerator.print(f'epoch {epoch + 1}: train {train_loss:.3f}, valid {valid_loss:.3f}, tokens right {valid_acc:.3f}')
