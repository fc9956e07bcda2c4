"""One epoch of training, one pass of evaluation."""
import sys

import torch
from crosstrain import Accelerator

from utils import MetricSums


def train_one_epoch(model, criterion, data_loader, optimizer, scheduler, device, epoch, max_norm=0.0):
    accelerator = Accelerator()
    model.train()
    sums = MetricSums()

    for samples, targets in data_loader:
        samples = samples.to(device, non_blocking=True)
        targets = targets.to(device, non_blocking=True)

        outputs = model(samples)
        loss = criterion(outputs, targets)
        loss_value = loss.item()

        if not torch.isfinite(loss):
            accelerator.print(f"Loss is {loss_value}, stopping training")
            sys.exit(1)

        optimizer.zero_grad()
        accelerator.backward(loss)
        if max_norm > 0:
            accelerator.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        scheduler.step()

        sums.add(n=len(targets), loss=loss_value * len(targets))

    accelerator.print(f"epoch {epoch}: lr {optimizer.param_groups[0]['lr']:.5f}")
    return sums.means()


@torch.no_grad()
def evaluate(model, criterion, data_loader, device):
    model.eval()
    sums = MetricSums()
    for samples, targets in data_loader:
        samples = samples.to(device, non_blocking=True)
        targets = targets.to(device, non_blocking=True)
        outputs = model(samples)
        loss = criterion(outputs, targets)
        hits = (outputs.argmax(1) == targets).sum().item()
        sums.add(n=len(targets), loss=loss.item() * len(targets), acc=hits)
    return sums.means()
