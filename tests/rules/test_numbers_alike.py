"""CT602: numbers that are alike on every process, and what nobody reads, stay as they are."""

from __future__ import annotations

from .numbers import DEVICE, ENUMERATED, METER, RULE
from .support import Case, each, leaves

NEGATIVE = [
    leaves(
        RULE,
        "a loss from elsewhere that nothing reads",
        {
            "imports": "from losses import DiceLoss",
            "setup": "criterion = DiceLoss(smooth=1.0)",
            "loss": "loss = criterion(model(x), y)",
        },
        findings=[("CT202", "loss.backward()")],
    ),
    leaves(
        "CT602",
        "a shape that is printed",
        {"after_step": "print(x.shape, out.shape[1])"},
        {"after_step": "accelerator.print(x.shape, out.shape[1])"},
        findings=[("CT602", "print(x.shape")],
    ),
    leaves(
        RULE,
        "the name of a class",
        {"setup": "names = ['a', 'b', 'c']", "after_epoch": "print(names[0])"},
        {"after_epoch": "accelerator.print(names[0])"},
    ),
    leaves(
        RULE,
        "how many weights there are",
        {"end": "print(sum(p.numel() for p in model.parameters()))"},
        {"end": "accelerator.print(sum(p.numel() for p in model.parameters()))"},
    ),
    leaves(
        RULE,
        "the number of epochs",
        {"after_epoch": "print(epoch + 1)"},
        {"after_epoch": "accelerator.print(epoch + 1)"},
    ),
    leaves(
        RULE,
        "the value of a constant tensor",
        {"setup": "one = torch.ones(())", "after_step": "assert one.item() == 1"},
    ),
    leaves(RULE, "a rate that decays", {"after_epoch": "rate = 0.1 * 0.5**epoch\nassert rate > 0"}),
    leaves(RULE, "a loss that nobody reads", {}),
    leaves(RULE, "the rate", {"after_step": 'rate = optimizer.param_groups[0]["lr"]'}),
    leaves(
        RULE,
        "a weight",
        {"after_step": "print(model.weight.mean().item())"},
        {"after_step": "accelerator.print(model.weight.mean().item())"},
    ),
    leaves(
        RULE,
        "the norm of averaged gradients",
        {
            "after_step": "norm = sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5\nprint(norm.item())"
        },
        {
            "after_step": (
                "norm = sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5\naccelerator.print(norm.item())"
            )
        },
    ),
    leaves(
        RULE,
        "fixed noise is the same everywhere and is not gathered",
        {"setup": "fixed = torch.ones(4, 8).to(device)", "after_epoch": "print(model(fixed).mean().item())"},
        {"device": DEVICE, "after_epoch": "accelerator.print(model(fixed).mean().item())"},
    ),
    leaves(
        RULE,
        "fixed noise through a function is not gathered",
        {
            "definitions": "def sample(net, noise):\n    with torch.no_grad():\n        return net(noise)\n",
            "setup": "fixed = torch.ones(4, 8).to(device)",
            "after_epoch": "print(sample(model, fixed).shape)",
        },
        {"device": DEVICE, "after_epoch": "accelerator.print(sample(model, fixed).shape)"},
    ),
    leaves(
        RULE,
        "the number of batches",
        {"after_epoch": "print(len(train_loader))"},
        {"after_epoch": "accelerator.print(len(train_loader))"},
    ),
    leaves(
        RULE,
        "the size of the data set",
        {"after_epoch": "print(len(train_loader.dataset))"},
        {"after_epoch": "accelerator.print(len(train_loader.dataset))"},
    ),
    leaves(
        RULE,
        "the time",
        {"imports": "import time", "after_epoch": "print(time.time())"},
        {"after_epoch": "accelerator.print(time.time())"},
    ),
    leaves(
        RULE,
        "the number of the batch",
        {**ENUMERATED, "after_step": "print(i, epoch)"},
        {"after_step": "accelerator.print(i, epoch)"},
    ),
    leaves(RULE, "a shape's second entry", {"after_step": "width = x.size(1)\nassert width == 8"}),
    leaves(
        RULE,
        "whether anything is on a GPU",
        {"after_step": "assert not x.is_cuda or torch.cuda.is_available()"},
    ),
    leaves(RULE, "the type of a batch", {"after_step": "assert x.dtype is torch.float32"}),
    leaves(RULE, "its number of dimensions", {"after_step": "assert x.dim() == 2"}),
    leaves(RULE, "an intermediate value", {"after_step": "kept = out.detach() * 2"}),
    leaves(RULE, "the mode of the model", {"after_step": "assert model.training"}),
    leaves(RULE, "a setting", {"setup": "limit = 3.0", "after_step": "if epoch > limit:\n    break"}),
    leaves(
        RULE,
        "the state of an object",
        {"definitions": METER, "setup": "meter = Meter()", "after_epoch": "print(meter.count)"},
        {"after_epoch": "accelerator.print(meter.count)"},
    ),
    leaves(
        RULE,
        "memory",
        {"after_epoch": "print(torch.cuda.max_memory_allocated())"},
        {"after_epoch": "accelerator.print(torch.cuda.max_memory_allocated())"},
    ),
    leaves(RULE, "a reshaped batch", {"batch": "x = x.view(len(x), -1)"}),
    leaves(
        RULE,
        "a mask for the loss",
        {
            "loss": 'out = model(x)\nmask = (y >= 0).float()\nloss = (F.cross_entropy(out, y, reduction="none") * mask).mean()'
        },
    ),
    leaves(
        RULE,
        "noise of the batch's size",
        {"loss": "noise = torch.randn_like(x)\nloss = F.cross_entropy(model(x + noise), y)"},
        findings=[("CT904", "torch.randn_like")],
    ),
    leaves(
        RULE,
        "a step counter",
        {"setup": "steps = 0", "after_step": "steps += 1", "end": "print(steps)"},
        {"end": "accelerator.print(steps)"},
    ),
    leaves(
        RULE,
        "a gradient that is looked at",
        {"after_step": "print(model.weight.grad.abs().max().item())"},
        {"after_step": "accelerator.print(model.weight.grad.abs().max().item())"},
    ),
    leaves(RULE, "a name in a string", {"after_step": 'note = "loss.item()"  # loss.item()'}),
    leaves(RULE, "zeroed and stepped", {"step": "optimizer.step()\noptimizer.zero_grad()"}),
    leaves(RULE, "a device mesh of the author's own words", {"after_step": "note = str(type(loss))"}),
    leaves(
        RULE,
        "the words of the options",
        {"options": 'words = ["a"]', "after_epoch": "print(words)"},
        {"after_epoch": "accelerator.print(words)"},
    ),
    leaves(
        RULE,
        "sorted over the batch, then decided by",
        {"after_step": "order = out.t().sort(dim=1)[0]\nif order[0, 0].item() > 9:\n    break"},
        {
            "accelerator": "from crosstrain import Accelerator\nfrom crosstrain.utils import broadcast_object_list",
            "after_step": "order = out.t().sort(dim=1)[0]\n"
            "if broadcast_object_list([bool(order[0, 0].item() > 9)])[0]:\n    break",
        },
        findings=[(RULE, "if order")],
    ),
    leaves(
        RULE,
        "a metric of a fixed batch",
        {"setup": "probe = torch.ones(2, 8)", "after_epoch": "print(probe.mean().item())"},
        {"after_epoch": "accelerator.print(probe.mean().item())"},
    ),
    leaves(
        RULE,
        "a buffer of losses that only training reads",
        {"setup": "scale = 1.0", "loss": "loss = F.cross_entropy(model(x), y) * scale"},
    ),
    leaves(
        RULE,
        "the average of the weights",
        {"after_epoch": "mean = sum(p.mean() for p in model.parameters())"},
    ),
    leaves(RULE, "an assertion on the author's side", {"after_step": "assert epoch < 100"}),
    leaves(RULE, "a hidden state that is detached", {"after_step": "hidden = out.detach()"}),
    leaves(RULE, "frozen", {"after_step": "with torch.no_grad():\n    model.weight.clamp_(-1, 1)"}),
]


@each(NEGATIVE)
def test_numbers_that_are_alike(case: Case) -> None:
    case.check()
