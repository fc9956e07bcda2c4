"""CT203: clipping through the accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from tests.support.ranks import run_ranks

from .as_one import run
from .support import SLOTS, Case, check_invariants, converts, each, leaves, migrate, script

RULE = "CT203"
STEP = "optimizer.step()"


def clip(before: str, after: str, name: str, imports: str = "") -> Case:
    return converts(
        RULE,
        name,
        {"step": f"{before}\n{STEP}", "imports": imports},
        {"step": f"{after}\n{STEP}", "imports": ""},
    )


POSITIVE = [
    clip(
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        "by norm",
    ),
    clip(
        "torch.nn.utils.clip_grad_value_(model.parameters(), clip_value=0.5)",
        "accelerator.clip_grad_value_(model.parameters(), clip_value=0.5)",
        "by value",
    ),
    clip(
        "nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0, norm_type=2)",
        "accelerator.clip_grad_norm_(model.parameters(), max_norm=1.0, norm_type=2)",
        "through an alias of torch.nn",
    ),
    clip(
        "torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)",
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        "the old spelling without the underscore",
    ),
    clip(
        "clip_grad_norm_(model.parameters(), 1.0)",
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        "imported by name",
        "from torch.nn.utils import clip_grad_norm_",
    ),
    clip(
        "clip(model.parameters(), 1.0)",
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
        "imported under another name",
        "from torch.nn.utils.clip_grad import clip_grad_norm_ as clip",
    ),
    clip(
        "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nprint(norm.item())",
        "norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)\naccelerator.print(norm.item())",
        "a norm that is printed is the global one already",
    ),
    clip(
        "torch.nn.utils.clip_grad_norm_(\n    model.parameters(),  # all of them\n    1.0,\n)",
        "accelerator.clip_grad_norm_(\n    model.parameters(),  # all of them\n    1.0,\n)",
        "over several lines with a comment",
    ),
    clip(
        "torch.nn.utils.clip_grad_value_(model.parameters(), 1.0, foreach=True)",
        "accelerator.clip_grad_value_(model.parameters(), 1.0, foreach=True)",
        "by value, all tensors at once",
    ),
]

NEGATIVE = [
    leaves(RULE, "a limit that nothing clips by", {"options": "max_norm = 1.0"}),
    leaves(
        RULE,
        "the norm of the weights",
        {"setup": "norm = nn.utils.get_total_norm([p.detach() for p in model.parameters()])"},
    ),
    leaves(
        RULE,
        "a function of the script's own with that name",
        {
            "definitions": (
                "def clip_grad_norm_(parameters, limit):\n"
                "    for p in parameters:\n"
                "        p.grad.clamp_(-limit, limit)\n"
            ),
            "step": f"clip_grad_norm_(model.parameters(), 1.0)\n{STEP}",
        },
    ),
    leaves(
        RULE,
        "a tensor that is clipped",
        {"loss": "out = model(x.clip(-1.0, 1.0))\nloss = F.cross_entropy(out, y)"},
    ),
    leaves(
        RULE,
        "clamping gradients by hand, element by element",
        {"step": f"for p in model.parameters():\n    p.grad.data.clamp_(-1.0, 1.0)\n{STEP}"},
    ),
    leaves(
        RULE,
        "weights clipped after the step",
        {"after_step": "for p in model.parameters():\n    p.data.clamp_(-0.01, 0.01)"},
    ),
    leaves(
        RULE,
        "a name in a string or a comment",
        {
            "step": f"# torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nnote = 'clip_grad_norm_'\n{STEP}"
        },
    ),
    leaves(
        RULE,
        "another function of torch.nn.utils",
        {"end": "vector = torch.nn.utils.parameters_to_vector(model.parameters())"},
    ),
    leaves(RULE, "an import that nothing uses", {"imports": "from torch.nn.utils import clip_grad_norm_"}),
]
ALL_ARGUMENTS = "clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True, foreach=False)"


@each(POSITIVE, NEGATIVE)
def test_clipping(case: Case) -> None:
    case.check()


def test_accelerate_takes_fewer_arguments() -> None:
    """How it is computed can be left out, and what is to be an error cannot."""
    strict = script({**SLOTS, "step": f"torch.nn.utils.{ALL_ARGUMENTS}\n{STEP}"})
    result = migrate_text(Path("train.py"), strict, Options(runtime="accelerate"))
    assert [f.rule for f in result.findings] == ["CT203"]
    lenient = strict.replace("error_if_nonfinite=True, ", "")
    result = migrate_text(Path("train.py"), lenient, Options(runtime="accelerate"))
    assert "accelerator.clip_grad_norm_(model.parameters(), 1.0)\n" in result.after


def test_a_norm_that_is_not_finite_is_an_error_on_every_rank() -> None:
    text = script({**SLOTS, "step": f"torch.nn.utils.{ALL_ARGUMENTS}\n{STEP}"})
    result = migrate(text)
    check_invariants(text, result)
    assert f"accelerator.{ALL_ARGUMENTS}\n" in result.after
    infinite = result.after.replace("accelerator.backward(loss)", "accelerator.backward(loss * float('inf'))")
    with pytest.raises(RuntimeError, match="non-finite"):
        run_ranks(run, 2, infinite + "\nweights = []\n")
