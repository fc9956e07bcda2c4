"""CT206: a backward pass that no step follows does not average its gradients."""

from __future__ import annotations

import pytest

from .as_one import check_two_are_one
from .support import SLOTS, check_invariants, migrate, script

STEP = "if {test}:\n    optimizer.step()\n    optimizer.zero_grad()"


def by_hand(test: str, **more: str) -> str:
    """A script whose loop steps under a test alone."""
    loop = "for i, (x, y) in enumerate(train_loader):"
    return script({**SLOTS, "loop": loop, "zero": "", "step": STEP.format(test=test), **more})


@pytest.mark.parametrize("test", ["(i + 1) % 4 == 0", "(i + 1) % 4 == 0 or i + 1 == len(train_loader)"])
def test_gradients_are_averaged_before_the_step(test: str) -> None:
    text = by_hand(test)
    result = migrate(text)
    assert (
        f"        steps_now = {test}\n"
        "        with nullcontext() if steps_now else accelerator.no_sync(model):\n"
        "            accelerator.backward(loss)\n"
        f"        if {test}:\n"
    ) in result.after
    assert "from contextlib import nullcontext\n" in result.after
    check_invariants(text, result)


@pytest.mark.parametrize(
    "text",
    [
        by_hand("epoch > 0"),
        by_hand("(i + 1) % 4 == 0", after_step="print(model.weight.grad.sum().item())"),
        by_hand("(i + 1) % 4 == 0", after_step="nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        by_hand("(i + 1) % 4 == 0", after_epoch="print(model.weight.grad.sum().item())"),
        by_hand(
            "(i + 1) % 4 == 0",
            after_epoch="nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
        ),
        by_hand("n % 4 == 0", setup="n = 0", backward="loss.backward()\nn += 1"),
        by_hand("(i + 1) % 4 == 0", after_step="optimizer.step()"),
        script(
            {
                **SLOTS,
                "loop": "for i, (x, y) in enumerate(train_loader):",
                "step": STEP.format(test="i % 4 == 3"),
            }
        ),
    ],
    ids=[
        "no counter",
        "gradients read",
        "clipped",
        "gradients read behind the loop",
        "clipped behind the loop",
        "counted on before the step",
        "stepped again",
        "cleared each time",
    ],
)
def test_what_is_averaged_in_every_batch(text: str) -> None:
    result = migrate(text)
    assert result.changed and "no_sync" not in result.after


def test_what_is_left_over_counts() -> None:
    """Six batches by four: two of them are averaged in the next epoch's first step."""
    text = by_hand("(i + 1) % 4 == 0", end="weights = model.weight.flatten().tolist()")
    check_two_are_one(
        f"import torch\ntorch.manual_seed(0)\n{text}".replace("torch.ones(48, 8)", "torch.randn(48, 8)")
    )
