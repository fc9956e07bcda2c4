"""A training function, an evaluation and a `__main__` block, with a measure that the trained loss uses as well."""

from __future__ import annotations

from crosstrain_migrate.results import Severity

from .support import check_invariants, migrate

SCRIPT = """\
import argparse
import logging

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


def overlap(guess, mask):
    assert guess.size() == mask.size()
    both = 2 * (guess * mask).sum(dim=(-1, -2))
    return (both / (guess.sum(dim=(-1, -2)) + mask.sum(dim=(-1, -2)) + 1)).mean()


def overlap_loss(guess, mask):
    measure = overlap
    return 1 - measure(guess, mask)


def evaluate(net, loader, device):
    net.eval()
    score = 0
    with torch.no_grad():
        for images, masks in loader:
            images, masks = images.to(device), masks.to(device)
            score += overlap((net(images) > 0).float(), masks)
    net.train()
    return score / len(loader)


def train(net, device, epochs):
    images = torch.rand(60, 1, 8, 8)
    train_loader = DataLoader(TensorDataset(images, images.round()), batch_size=4, shuffle=True)
    valid_loader = DataLoader(TensorDataset(images, images.round()), batch_size=4)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for epoch in range(epochs):
        with tqdm(total=60) as bar:
            for batch in train_loader:
                images, masks = batch
                images, masks = images.to(device), masks.to(device)
                guess = net(images)
                loss = F.binary_cross_entropy_with_logits(guess, masks)
                loss += overlap_loss(torch.sigmoid(guess), masks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                bar.update(images.shape[0])
                bar.set_postfix(loss=loss.item())
        logging.info(f"score {evaluate(net, valid_loader, device)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    net = nn.Conv2d(1, 1, 3, padding=1)
    net.to(device)
    train(net, device, epochs=2)
"""


def test_training_and_evaluation_share_a_measure() -> None:
    """The measure stays as it is for the loss, which each process computes of its own share."""
    result = migrate(SCRIPT)
    assert result.changed, result.findings
    assert "gather" not in result.after.split("def evaluate")[0]
    assert "bar.set_postfix(loss=loss.item())" in result.after
    check_invariants(SCRIPT, result)


def test_the_accelerator_of_a_main_block_knows_the_options() -> None:
    """Above the log, which it silences on the other processes, and below the options that it is made from."""
    block = migrate(SCRIPT).after.split("__main__")[1]
    assert block.index("parse_args()") < block.index("accelerator = Accelerator(cpu=args.cpu)")
    assert block.index("accelerator =") < block.index("logging.basicConfig(")


def test_rows_are_counted_by_the_smallest_part_of_a_batch() -> None:
    assert "bar.update(accelerator.global_rows(" in migrate(SCRIPT).after


TERMS = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
data = torch.rand(64, 8)
loader, test = DataLoader(data[:48], 8, shuffle=True), DataLoader(data[48:], 8)


def elbo(out, x):
    bce = F.binary_cross_entropy_with_logits(out, x, reduction="sum")
    kld = out.pow(2).sum()
    return bce + kld, {"bce": bce.item(), "kld": kld.item()}


for epoch in range(2):
    net.train()
    for x in loader:
        x = x.to(device)
        loss, terms = elbo(net(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item() / len(x), terms)
    net.eval()
    total = 0
    with torch.no_grad():
        for i, x in enumerate(test):
            x = x.to(device)
            out = net(x)
            total += elbo(out, x)[0].item()
            if i == 0:
                torch.save(torch.cat([x[:8], out[:8]]), "first.pt")
    print(total / len(test.dataset))
"""


def test_terms_of_a_loss_that_a_whole_evaluation_reads_too_stay_own() -> None:
    """Summed over processes, those of the evaluation would count once for each; so they are not, and a note says so."""
    result = migrate(TERMS)
    check_invariants(TERMS, result)
    assert '{"bce": bce.item(), "kld": kld.item()}' in result.after
    said = [f for f in result.findings if "`bce`, `kld` stay local to each process" in f.reason]
    assert [f.severity for f in said] == [Severity.NOTE]
    # What is read together with them is no mixture: a loss of all processes by the rows of one.
    assert "accelerator.print(loss.item() / len(x), terms)" in result.after
