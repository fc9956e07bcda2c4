"""CT203: clipping through the accelerator."""

from __future__ import annotations

from .support import Case, converts, each, leaves, refuses

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
]

NEGATIVE = [
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
    refuses(
        RULE,
        "an argument without a counterpart",
        {"step": f"torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)\n{STEP}"},
        at="error_if_nonfinite",
    ),
]


@each(POSITIVE, NEGATIVE)
def test_clipping(case: Case) -> None:
    case.check()
