"""A training function, an evaluation and a `__main__` block, with a measure that the trained loss uses as well."""

from __future__ import annotations

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
