from contextlib import nullcontext

import torch
import torch.nn.functional as F
from crosstrain import Accelerator, PartialState


def get_device():
    return PartialState().device


def run_epoch(model, loader, device, optimizer=None):
    """Trains when it gets an optimizer, evaluates otherwise. Returns mean loss and accuracy."""
    accelerator = Accelerator()
    train = optimizer is not None
    model.train(train)
    loss_sum, correct, count = 0.0, 0, 0
    loader = accelerator.prepare(loader) if train else accelerator.prepare_evaluation(loader)
    with nullcontext() if train else torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            if train:
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
            loss_sum += loss.item() * y.size(0)
            correct += (logits.argmax(1) == y).sum().item()
            count += y.size(0)
        loss_sum, correct, count = accelerator.merge(loader, loss_sum, correct, count)
    return loss_sum / count, correct / count
