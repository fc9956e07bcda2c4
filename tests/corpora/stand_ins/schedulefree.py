"""A stand-in for `schedulefree`: an optimizer with a training and an evaluation mode."""

from __future__ import annotations

from typing import Any

from torch.optim import AdamW


class AdamWScheduleFree(AdamW):
    def __init__(self, params: Any, lr: float, warmup_steps: int) -> None:
        super().__init__(params, lr=lr)
        self.training = False

    def train(self) -> None:
        self.training = True

    def eval(self) -> None:
        self.training = False

    def step(self, closure: Any = None) -> Any:
        assert self.training, "step() in evaluation mode"
        return super().step(closure)
