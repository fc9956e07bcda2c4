"""CT307: NVIDIA apex becomes the accelerator's mixed precision."""

from __future__ import annotations

from .support import Case, Slots, converts, each, leaves, refuses

RULE = "CT307"
HALF = 'accelerator = Accelerator(mixed_precision="fp16" if {}torch.cuda.is_available() else "no")  # the fastest there is'
OPTION = (
    'parser = argparse.ArgumentParser()\nparser.add_argument("--half", action="store_true")\n'
    'parser.add_argument("--level", default="O1")\nargs = parser.parse_args()'
)
SCALED = "with amp.scale_loss(loss, optimizer) as scaled:\n    scaled.backward()"
ALWAYS = {
    "imports": "from apex import amp",
    "setup": 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
    "backward": SCALED,
}
ALWAYS_AFTER = {
    "imports": "",
    "device": HALF.format(""),
    "setup": "",
    "backward": "accelerator.backward(loss)",
}


def always(name: str, before: Slots, after: Slots) -> Case:
    return converts(
        RULE,
        name,
        {**ALWAYS, **before},
        {**ALWAYS_AFTER, **after},
        at="amp.initialize",
        findings=((RULE, "amp.initialize"),),
    )


POSITIVE = [
    always("always on", {}, {}),
    always(
        "a level that the command line names",
        {
            "imports": "import argparse\n\nfrom apex import amp",
            "options": OPTION,
            "setup": "model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)",
        },
        {"imports": "import argparse", "device": HALF.format('args.level != "O0" and ')},
    ),
    always(
        "a loss that is divided first",
        {"backward": SCALED.replace("(loss,", "(loss / 2,")},
        {"backward": "accelerator.backward(loss / 2)"},
    ),
    always(
        "clipping of apex's own parameters",
        {"step": "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\noptimizer.step()"},
        {"step": "accelerator.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()"},
    ),
    always(
        "branches with and without it become one",
        {
            "imports": "import argparse\n\nfrom apex import amp",
            "options": OPTION,
            "setup": "if args.half:\n    " + ALWAYS["setup"],
            "backward": "if args.half:\n"
            + "\n".join("    " + line for line in SCALED.split("\n"))
            + "\nelse:\n    loss.backward()",
        },
        {"imports": "import argparse", "device": HALF.format("args.half and ")},
    ),
]
NEGATIVE = [
    leaves(RULE, "another amp", {"imports": "from instruments import amp", "setup": "volume = amp"}),
]


def refused(name: str, before: Slots, at: str) -> Case:
    return refuses(RULE, name, {**ALWAYS, **before}, at)


REFUSED = [
    refused("its state in a checkpoint", {"end": 'torch.save(amp.state_dict(), "amp.pt")'}, "amp.state_dict"),
    refused("weights in half precision", {"setup": ALWAYS["setup"].replace("O1", "O3")}, "O3"),
    refused(
        "results under other names",
        {"setup": 'net, optimizer = amp.initialize(model, optimizer, opt_level="O1")'},
        "net, optimizer",
    ),
    refused(
        "a scaled loss that is used otherwise",
        {"backward": SCALED + "\n    print(scaled)"},
        "print(scaled)",
    ),
    refused(
        "unscaling put off",
        {"backward": SCALED.replace("optimizer)", "optimizer, delay_unscale=True)")},
        "delay_unscale",
    ),
    refused(
        "options of its own", {"setup": ALWAYS["setup"].replace('O1"', 'O1", loss_scale=128.0')}, "loss_scale"
    ),
]


@each(POSITIVE, NEGATIVE, REFUSED)
def test_apex(case: Case) -> None:
    case.check()
