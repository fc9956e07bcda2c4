"""Contrastive pre-training on digits: two noisy views of an image find each other in the batch,
then a linear probe shows what the features are worth."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader, TensorDataset


def augment(x):
    # multiplicative noise and a few erased pixels
    x = x * (1 + 0.2 * torch.randn_like(x))
    keep = (torch.rand_like(x) > 0.1).float()
    return x * keep


def info_nce(z1, z2, temperature=0.2):
    """Row i of z1 must pick row i of z2 among all rows of the batch."""
    z1 = F.normalize(z1, dim=1)
    z2 = F.normalize(z2, dim=1)
    logits = z1 @ z2.t() / temperature
    labels = torch.arange(z1.size(0), device=z1.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


@torch.no_grad()
def extract(encoder, loader, device):
    accelerator = Accelerator()
    encoder.eval()
    features, labels = [], []
    loader = accelerator.prepare_evaluation(loader)
    for x, y in loader:
        features.append(encoder(x.to(device)).cpu())
        labels.append(y)
    features, labels = accelerator.merge(loader, features, labels)
    return torch.cat(features).numpy(), torch.cat(labels).cpu().numpy()


def main():
    accelerator = Accelerator()
    torch.manual_seed(77)
    device = accelerator.device

    digits = load_digits()
    X = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train_ds, test_ds = TensorDataset(X[:251], y[:251]), TensorDataset(X[251:398], y[251:398])
    train_dl = DataLoader(train_ds, batch_size=72, shuffle=True)

    encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 24)).to(device)
    projector = nn.Sequential(nn.ReLU(), nn.Linear(24, 12)).to(device)
    params = list(encoder.parameters()) + list(projector.parameters())
    optimizer = torch.optim.AdamW(params, lr=0.01)

    encoder, optimizer, train_dl = accelerator.prepare(encoder, optimizer, train_dl)
    for epoch in range(2):
        encoder.train()
        losses = []
        for x, _ in train_dl:
            x = x.to(device)
            z1 = projector(encoder(augment(x)))
            z2 = projector(encoder(augment(x)))
            loss = info_nce(z1, z2)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        losses = accelerator.merge(train_dl, losses)
        accelerator.print(f"epoch {epoch}: contrastive loss {sum(losses) / len(losses):.4f}")

    # linear probe
    train_f, train_y = extract(encoder, DataLoader(train_ds, batch_size=32), device)
    test_f, test_y = extract(encoder, DataLoader(test_ds, batch_size=32), device)
    probe = LogisticRegression(max_iter=500).fit(train_f, train_y)
    accelerator.print(f"linear probe on {len(test_y)} images: accuracy {probe.score(test_f, test_y):.4f}")


if __name__ == "__main__":
    main()
