# -*- coding: utf-8 -*-
# Validation croisée : deux modèles, chacun testé sur ce que l'autre a vu. 交叉验证
import statistics

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from sklearn.model_selection import KFold
from torch import nn
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

K = 2
ÉPOQUES = 2
BATCH = 80

accelerator = Accelerator()
device = accelerator.device


def reset_weights(m):
    """Chaque pli repart de zéro."""
    if hasattr(m, 'reset_parameters'):
        m.reset_parameters()


def train_fold(model, loader, optimizer, loss_fn):
    for epoch in range(ÉPOQUES):
        model.train()
        cumul = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            cumul += loss.item()
        cumul = accelerator.reduce(cumul, "mean")
        accelerator.print(f'  époque {epoch + 1} : perte {cumul / len(loader):.4f}')  # moyenne par lot


def score(model, loader):
    model.eval()
    bons, total = 0, 0
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            bons += (model(x).argmax(1) == y).sum().item()
            total += len(y)
        bons, total = accelerator.merge(loader, bons, total)
    return bons / total


torch.manual_seed(33)
données = load_digits()
dataset = TensorDataset(torch.tensor(données.data, dtype=torch.float32) / 16, torch.tensor(données.target))
dataset = Subset(dataset, range(295))

results = []
for fold, (train_ids, test_ids) in enumerate(KFold(n_splits=K, shuffle=True, random_state=0).split(range(len(dataset)))):
    accelerator.print(f'Pli {fold + 1} : {len(train_ids)} + {len(test_ids)} images')
    train_loader = DataLoader(dataset, batch_size=BATCH, sampler=SubsetRandomSampler(train_ids.tolist()))
    test_loader = DataLoader(Subset(dataset, test_ids.tolist()), batch_size=32)

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model.apply(reset_weights)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss_fn = nn.CrossEntropyLoss()

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    train_fold(model, train_loader, optimizer, loss_fn)
    accuracy = score(model, test_loader)
    accelerator.print(f'  exactitude {100 * accuracy:.2f} %')
    results.append(accuracy)
    accelerator.save(model.state_dict(), f'modele-pli-{fold + 1}.pt')

accelerator.print(f'moyenne {100 * statistics.mean(results):.2f} % ± {100 * statistics.stdev(results):.2f}')
