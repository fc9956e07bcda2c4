from contextlib import nullcontext

import torch
import torch.nn.functional as F


def get_device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def run_epoch(model, loader, accelerator, optimizer=None):
    """Trains when it gets an optimizer, evaluates otherwise. Returns mean loss and accuracy."""
    train = optimizer is not None
    model.train(train)
    loss_sum, correct, count = 0.0, 0, 0
    with nullcontext() if train else torch.no_grad():
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            if train:
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
            logits, y = accelerator.gather_for_metrics((logits, y))
            loss_sum += F.cross_entropy(logits, y).item() * y.size(0)
            correct += (logits.argmax(1) == y).sum().item()
            count += y.size(0)
    return loss_sum / count, correct / count
