"""A small transformer reads a string of digits and says which one is the most frequent."""
import argparse
import random
from collections import Counter
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

PAD_ID = 10


@dataclass
class Config:
    vocab_size: int = 11
    max_len: int = 12
    dim: int = 16
    heads: int = 2
    layers: int = 2
    classes: int = 10


class MostFrequent(Dataset):
    def __init__(self, size, cfg, seed):
        rng = random.Random(seed)
        self.examples = []
        while len(self.examples) < size:
            ids = [rng.randint(0, 3) for _ in range(rng.randint(5, cfg.max_len))]
            (first, n1), *rest = Counter(ids).most_common(2)
            if not rest or rest[0][1] < n1:  # a tie has no answer
                self.examples.append({"input_ids": ids, "label": first})

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        return self.examples[i]


class Collator:
    def __init__(self, max_len):
        self.max_len = max_len

    def __call__(self, examples):
        ids = torch.full((len(examples), self.max_len), PAD_ID)
        for row, e in enumerate(examples):
            ids[row, : len(e["input_ids"])] = torch.tensor(e["input_ids"])
        return {
            "input_ids": ids,
            "attention_mask": ids != PAD_ID,
            "labels": torch.tensor([e["label"] for e in examples]),
        }


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False)
        self.out = nn.Linear(cfg.dim, cfg.dim)

    def forward(self, x, mask):
        n, t, d = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        return self.out(y.transpose(1, 2).reshape(n, t, d))


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln1 = nn.LayerNorm(cfg.dim)
        self.attn = Attention(cfg)
        self.ln2 = nn.LayerNorm(cfg.dim)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(), nn.Linear(4 * cfg.dim, cfg.dim))

    def forward(self, x, mask):
        x = x + self.attn(self.ln1(x), mask)
        return x + self.mlp(self.ln2(x))


class Classifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.tok = nn.Embedding(cfg.vocab_size, cfg.dim)
        self.pos = nn.Embedding(cfg.max_len, cfg.dim)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.ln = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.classes)

    def forward(self, input_ids, attention_mask, labels=None):
        pos = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.tok(input_ids) + self.pos(pos)
        for layer in self.layers:
            x = layer(x, attention_mask)
        m = attention_mask.unsqueeze(-1).float()
        pooled = (self.ln(x) * m).sum(1) / m.sum(1)
        out = {"logits": self.head(pooled)}
        if labels is not None:
            out["loss"] = F.cross_entropy(out["logits"], labels)
        return out


def to_device(obj, device):
    if torch.is_tensor(obj):
        return obj.to(device)
    if isinstance(obj, dict):
        return {k: to_device(v, device) for k, v in obj.items()}
    if isinstance(obj, (list, tuple)):
        return type(obj)(to_device(v, device) for v in obj)
    return obj


def get_optimizer(model, lr, weight_decay):
    # no weight decay for biases, norms and embeddings
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}], lr=lr
    )


def get_linear_schedule(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return max(0.0, (total - step) / max(1, total - warmup))

    return LambdaLR(optimizer, factor)


def main():
    accelerator = Accelerator()
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_train_epochs", type=int, default=10)
    parser.add_argument("--per_device_batch_size", type=int, default=32)
    parser.add_argument("--train_size", type=int, default=2000)
    parser.add_argument("--learning_rate", type=float, default=5e-3)
    parser.add_argument("--warmup_steps", type=int, default=3)
    parser.add_argument("--max_grad_norm", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = accelerator.device
    cfg = Config()
    model = Classifier(cfg).to(device)

    collate = Collator(cfg.max_len)
    train_dataloader = DataLoader(
        MostFrequent(args.train_size, cfg, seed=1), shuffle=True, collate_fn=collate,
        batch_size=args.per_device_batch_size,
    )
    eval_dataloader = DataLoader(MostFrequent(147, cfg, seed=2), collate_fn=collate, batch_size=32)

    optimizer = get_optimizer(model, args.learning_rate, 0.01)
    max_train_steps = args.num_train_epochs * len(train_dataloader)
    lr_scheduler = get_linear_schedule(optimizer, args.warmup_steps, max_train_steps)

    accelerator.print(f"{len(train_dataloader.dataset)} examples, {max_train_steps} steps")

    completed_steps = 0
    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, lr_scheduler
    )
    eval_dataloader = accelerator.prepare_evaluation(eval_dataloader)
    for epoch in range(args.num_train_epochs):
        model.train()
        total_loss = 0
        for batch in train_dataloader:
            batch = to_device(batch, device)
            outputs = model(**batch)
            loss = outputs["loss"]
            total_loss += loss.detach().float()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            completed_steps += 1
        total_loss = accelerator.reduce(total_loss, "mean")

        model.eval()
        eval_loss = 0
        right = 0
        for batch in eval_dataloader:
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.no_grad():
                outputs = model(**batch)
            eval_loss += outputs["loss"].item() * len(batch["labels"])
            right += (outputs["logits"].argmax(dim=-1) == batch["labels"]).sum().item()
        eval_loss, right = accelerator.merge(eval_dataloader, eval_loss, right)
        n = len(eval_dataloader.dataset)
        accelerator.print(f"epoch {epoch}: step {completed_steps} train_loss {total_loss.item() / len(train_dataloader):.4f} "
                          f"eval_loss {eval_loss / n:.4f} accuracy {right / n:.4f} lr {lr_scheduler.get_last_lr()[0]:.2e}")

    accelerator.save(model.state_dict(), "classifier.bin")


if __name__ == "__main__":
    main()
