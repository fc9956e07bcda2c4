"""What the scripts of these tests have in common takes them a line.

`<step LOSS>` is a step of a training: gradients are cleared, `LOSS.backward()`, and the optimizer steps; `<self.step LOSS>` one
with `self.optimizer`. `<step loss = LOSS>` binds the loss in between. `<loop LOSS>` is a loop over batches x and y of a
DataLoader with such steps. Without a LOSS it is the mean squared error of `model(x)` and y. `<model MODEL>` is a model, a
Linear(4, 2) where none is named, and its optimizer; `<net MODEL>`, `<self.model MODEL>` and `<self.net MODEL>` are so under
another name. `<torch>` is what such scripts import.
"""

import re

_LINE = re.compile(r"^([ \t]*)<(torch|loop|(?:self\.)?(?:model|net|step)) ?(.*)>$", re.MULTILINE)
_IMPORTS = """import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset"""
_MEAN = "torch.nn.functional.mse_loss(model(x), y)"


def filled(text: str) -> str:
    return _LINE.sub(lambda found: _lines(*found.groups()), text)


def by_the_accelerator(text: str) -> str:
    """The lines of a step as a conversion leaves them."""
    return re.sub(r"^( *)(.+)\.backward\(\)$", r"\1accelerator.backward(\2)", filled(text), flags=re.M)


def _lines(indent: str, kind: str, loss: str) -> str:
    return "\n".join(indent + line for line in _meant(kind, loss))


def _meant(kind: str, loss: str) -> list[str]:
    if kind == "torch":
        return _IMPORTS.splitlines()
    name = "self.optimizer" if kind.startswith("self.") else "optimizer"
    if kind.endswith(("model", "net")):
        model = loss or "torch.nn.Linear(4, 2)"
        return [f"{kind} = {model}", f"{name} = torch.optim.SGD({kind}.parameters(), lr=0.1)"]
    loss = loss or _MEAN
    backward = [loss, "loss.backward()"] if loss.startswith("loss = ") else [f"{loss}.backward()"]
    step = [f"{name}.zero_grad()", *backward, f"{name}.step()"]
    if kind == "loop":
        step = ["for x, y in DataLoader([], 8):", *(f"    {line}" for line in step)]
    return step
