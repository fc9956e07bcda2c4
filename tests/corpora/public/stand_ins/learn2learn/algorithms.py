"""Learning to learn."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call


class MAML(nn.Module):
    """A model whose clones are adapted step by step, and differentiated through."""

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        first_order: bool = False,
        adapted: dict[str, torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.module, self.lr, self.first_order = model, lr, first_order
        self._adapted = adapted

    def clone(self) -> MAML:
        """One that starts at the parameters of this one."""
        parameters = {name: value.clone() for name, value in self.module.named_parameters()}
        return MAML(self.module, self.lr, self.first_order, parameters)

    def adapt(self, loss: torch.Tensor) -> None:
        """A step down the gradient."""
        assert self._adapted is not None
        gradients = torch.autograd.grad(loss, list(self._adapted.values()), create_graph=not self.first_order)
        steps = zip(self._adapted.items(), gradients, strict=True)
        self._adapted = {name: value - self.lr * gradient for (name, value), gradient in steps}

    def forward(self, *args: Any) -> Any:
        """The model, with the parameters that it has been adapted to."""
        if self._adapted is None:
            return self.module(*args)
        return functional_call(self.module, self._adapted, args)
