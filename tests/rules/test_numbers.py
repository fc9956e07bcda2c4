"""CT602: every number that training prints, logs, sums up or decides by is the global one."""

from __future__ import annotations

from .support import SLOTS, Case, converts, each, leaves, migrate, refuses, script

RULE = "CT602"
LOSS = 'accelerator.reduce(loss, reduction="mean")'
DEVICE = "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"
COUNT = "len(accelerator.gather_for_metrics(y))"
METER = """\
class Meter:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n
"""
ENUMERATED = {"loop": "for i, (x, y) in enumerate(train_loader):"}


def step(name: str, before: str, after: str, **more: str) -> Case:
    """Something measured after each step."""
    return converts(RULE, name, {"after_step": before, **more}, {"after_step": after})


def summed(name: str, start: str, before: str, after: str, told: str, **more: str) -> Case:
    """Something summed up over an epoch and told after it."""
    return converts(
        RULE,
        name,
        {"after_step": before, "epoch": f"model.train()\n{start}", "after_epoch": f"print({told})", **more},
        {"after_step": after, "after_epoch": f"accelerator.print({told})"},
        at=next(line for line in before.split("\n") if line not in after.split("\n"))
        if before != after
        else "",
    )


STEP = """\
def run(model, batch, device):
    x, y = (t.to(device) for t in batch)
    out = model(x)
    return F.cross_entropy(out, y), len(x), (out.argmax(1) == y).sum().item()
"""
POSITIVE = [
    converts(
        RULE,
        "a function that returns the loss, the rows and the right answers",
        {
            "definitions": STEP,
            "epoch": "total, n, right = 0.0, 0, 0",
            "loop": "for batch in train_loader:",
            "batch": "",
            "loss": "loss, count, hits = run(model, batch, device)",
            "after_step": "total += loss.item() * count\nn += count\nright += hits",
            "after_epoch": "print(total / n, right / n)",
        },
        {
            "definitions": """\
def run(model, batch, accelerator):
    x, y = batch
    out = model(x)
    return F.cross_entropy(out, y), len(accelerator.gather_for_metrics(y)), accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()
""",
            "loss": "loss, count, hits = run(model, batch, accelerator)",
            "after_step": f"total += {LOSS}.item() * count\nn += count\nright += hits",
            "after_epoch": "accelerator.print(total / n, right / n)",
        },
        at="return F.cross",
        main=True,
    ),
    step("a loss printed", "print(loss.item())", f"accelerator.print({LOSS}.item())"),
    step(
        "a batch drawn for its size alone",
        "size = len(next(iter(train_loader))[0])\nprint(size)",
        "size = len(accelerator.gather_for_metrics(next(iter(train_loader))[0]))\naccelerator.print(size)",
    ),
    converts(
        RULE,
        "a loss from elsewhere",
        {
            "imports": "from losses import DiceLoss",
            "setup": "criterion = DiceLoss(smooth=1.0)",
            "loss": "loss = criterion(model(x), y)",
            "after_step": "print(loss.item())",
        },
        {"after_step": f"accelerator.print({LOSS}.item())"},
        at="print(loss.item())",
        findings=(("CT202", "loss.backward()"), (RULE, "print(loss.item())")),
    ),
    converts(
        RULE,
        "a loss whose class is chosen by name",
        {
            "setup": 'criterion = getattr(nn, "Cross" + "EntropyLoss")()',
            "loss": "loss = criterion(model(x), y)",
            "after_step": "print(loss.item())",
        },
        {"after_step": f"accelerator.print({LOSS}.item())"},
        at="print(loss.item())",
        findings=(("CT202", "loss.backward()"), (RULE, "print(loss.item())")),
    ),
    step("a tensor printed", "print(loss)", f"accelerator.print({LOSS})"),
    step(
        "its data printed",
        "print(loss.data)",
        'accelerator.print(accelerator.reduce(loss.data, reduction="mean"))',
    ),
    step("read by float", "print(float(loss))", f"accelerator.print(float({LOSS}))"),
    step(
        "inside an f-string, whose quotes stay legal",
        'print(f"loss {loss.item():.3f}")',
        "accelerator.print(f\"loss {accelerator.reduce(loss, reduction='mean').item():.3f}\")",
    ),
    step(
        "inside an f-string of the other quotes",
        "print(f'loss {loss.item():.3f}')",
        f"accelerator.print(f'loss {{{LOSS}.item():.3f}}')",
    ),
    step(
        "inside an f-string of three quotes",
        'print(f"""loss {loss.item()}""")',
        'accelerator.print(f"""loss {accelerator.reduce(loss, reduction=\'mean\').item()}""")',
    ),
    step(
        "formatted",
        'print("{:.3f}".format(loss.item()))',
        f'accelerator.print("{{:.3f}}".format({LOSS}.item()))',
    ),
    step(
        "formatted with percent", 'print("%.3f" % loss.item())', f'accelerator.print("%.3f" % {LOSS}.item())'
    ),
    step(
        "given to another function first",
        "print(math.exp(loss.item()))",
        f"accelerator.print(math.exp({LOSS}.item()))",
        imports="import math",
    ),
    step("collected", "losses.append(loss.item())", f"losses.append({LOSS}.item())", setup="losses = []"),
    step(
        "collected in a dictionary",
        'history["loss"].append(loss.item())',
        f'history["loss"].append({LOSS}.item())',
        setup='history = {"loss": []}',
    ),
    step(
        "logged",
        'logging.info("loss %f", loss.item())',
        f'logging.info("loss %f", {LOSS}.item())',
        imports="import logging",
    ),
    step(
        "written",
        'log.write(f"{loss.item()}")',
        'accelerator.print(f"{accelerator.reduce(loss, reduction=\'mean\').item()}", end="")',
        imports="import sys",
        setup="log = sys.stdout",
    ),
    converts(
        RULE,
        "a decision to stop",
        {"after_step": "if loss.item() > 100:  # lost\n    break"},
        {"after_step": f"if {LOSS}.item() > 100:  # lost\n    break"},
    ),
    step("a decision by a tensor", "if torch.isnan(loss):\n    break", f"if torch.isnan({LOSS}):\n    break"),
    step(
        "a decision by math",
        "if math.isnan(loss.item()):\n    break",
        f"if math.isnan({LOSS}.item()):\n    break",
        imports="import math",
    ),
    step(
        "a decision by all of it",
        "if not torch.isfinite(loss).all():\n    break",
        f"if not torch.isfinite({LOSS}).all():\n    break",
    ),
    converts(
        RULE,
        "the best loss",
        {"setup": "best = 1e9", "after_epoch": "if loss.item() < best:\n    best = loss.item()"},
        {"after_epoch": f"if {LOSS}.item() < best:\n    best = {LOSS}.item()"},
        at="if loss.item()",
    ),
    step(
        "the worst loss",
        "worst = max(worst, loss.item())",
        f"worst = max(worst, {LOSS}.item())",
        setup="worst = 0.0",
    ),
    summed(
        "losses by batch",
        "total = 0.0",
        "total += loss.item()",
        f"total += {LOSS}.item()",
        "total / len(train_loader)",
    ),
    summed(
        "losses by batch, on the device",
        "total = 0.0",
        "total += loss.detach()",
        'total += accelerator.reduce(loss.detach(), reduction="mean")',
        "total.item()",
    ),
    summed(
        "losses by sample",
        "total = 0.0",
        "total += loss.item() * x.size(0)",
        f"total += {LOSS}.item() * accelerator.gather_for_metrics(y).size(0)",
        "total / len(train_set)",
    ),
    summed(
        "losses by sample, by length",
        "total = 0.0",
        "total += loss.item() * len(x)",
        f"total += {LOSS}.item() * {COUNT}",
        "total / len(train_set)",
    ),
    converts(
        RULE,
        "right answers and how many",
        {
            "epoch": "model.train()\nright, seen = 0, 0",
            "after_step": "right += (out.argmax(1) == y).sum().item()\nseen += y.size(0)",
            "after_epoch": "print(right / seen)",
        },
        {
            "after_step": (
                "out, y = accelerator.gather_for_metrics((out, y))\n"
                "right += (out.argmax(1) == y).sum().item()\nseen += y.size(0)"
            ),
            "after_epoch": "accelerator.print(right / seen)",
        },
        at="right += ",
    ),
    converts(
        RULE,
        "right answers through a variable",
        {
            "epoch": "model.train()\nright, seen = 0, 0",
            "after_step": "_, guess = torch.max(out.data, 1)\nseen += y.size(0)\nright += (guess == y).sum().item()",
            "after_epoch": "print(right / seen)",
        },
        {
            "after_step": (
                "_, guess = torch.max(out.data, 1)\n"
                "guess, y = accelerator.gather_for_metrics((guess, y))\n"
                "seen += y.size(0)\nright += (guess == y).sum().item()"
            ),
            "after_epoch": "accelerator.print(right / seen)",
        },
        at="seen += ",
    ),
    converts(
        RULE,
        "a size that was read into a variable before the rows are gathered",
        {
            "epoch": "model.train()\nright, seen = 0, 0",
            "loss": "n = x.size(0)\nout = model(x)\nloss = F.cross_entropy(out, y)",
            "after_step": "right += (out.argmax(1) == y).sum().item()\nseen += n",
            "after_epoch": "print(right / seen)",
        },
        {
            "after_step": (
                "out, y = accelerator.gather_for_metrics((out, y))\n"
                "right += (out.argmax(1) == y).sum().item()\nseen += len(y)"
            ),
            "after_epoch": "accelerator.print(right / seen)",
        },
        at="right += ",
    ),
    step(
        "a measuring function of the script's own",
        "print(accuracy(out, y))",
        "out, y = accelerator.gather_for_metrics((out, y))\naccelerator.print(accuracy(out, y))",
        definitions="def accuracy(out, y):\n    return (out.argmax(1) == y).float().mean().item()\n",
    ),
    converts(
        RULE,
        "a meter",
        {
            "definitions": METER,
            "epoch": "model.train()\nmeter = Meter()",
            "after_step": "meter.update(loss.item(), x.size(0))",
        },
        {"after_step": f"meter.update({LOSS}.item(), accelerator.gather_for_metrics(y).size(0))"},
        at="meter.update",
    ),
    step("progress", "print(i * len(x))", f"accelerator.print(i * {COUNT})", **ENUMERATED),
    step(
        "every now and then",
        "if i % 10 == 0:\n    print(loss.item())",
        f"if i % 10 == 0:\n    accelerator.print({LOSS}.item())",
        **ENUMERATED,
    ),
    summed("samples seen", "seen = 0", "seen += len(x)", f"seen += {COUNT}", "seen"),
    converts(
        RULE,
        "two losses and their sum",
        {
            "loss": "out = model(x)\na = F.cross_entropy(out, y)\nb = out.pow(2).mean()\nloss = a + 0.1 * b",
            "after_step": "print(a.item(), b.item(), loss.item())",
        },
        {
            "after_step": (
                'accelerator.print(accelerator.reduce(a, reduction="mean").item(), '
                f'accelerator.reduce(b, reduction="mean").item(), {LOSS}.item())'
            )
        },
        at="print(a.item()",
    ),
    step(
        "a sample of the batch",
        "print(out[0])",
        "accelerator.print(accelerator.gather_for_metrics(out)[0])",
    ),
    step(
        "right answers where the label counts",
        "keep = y != 0\nprint((out[keep].argmax(1) == y[keep]).float().mean().item())",
        "keep = y != 0\nout, keep, y = accelerator.gather_for_metrics((out, keep, y))\n"
        "accelerator.print((out[keep].argmax(1) == y[keep]).float().mean().item())",
    ),
    converts(
        RULE,
        "a sum that is printed is a sum over all processes",
        {
            "loss": 'out = model(x)\nloss = F.cross_entropy(out, y, reduction="sum")',
            "after_step": "print(loss.item())",
        },
        {
            "device": 'accelerator = Accelerator(loss_reduction="sum")  # the fastest there is',
            "after_step": "accelerator.print(accelerator.gather_for_metrics(loss).sum().item())",
        },
        at="print(loss.item())",
    ),
    step(
        "a number of the whole batch",
        "if torch.linalg.svdvals(out).max().item() > 9:\n    break",
        "if torch.linalg.svdvals(accelerator.gather_for_metrics(out)).max().item() > 9:\n    break",
    ),
]

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
    refuses(
        RULE,
        "sorted over the batch, then decided by",
        {"after_step": "order = out.t().sort(dim=1)[0]\nif order[0, 0].item() > 9:\n    break"},
        at="order = ",
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


@each(POSITIVE, NEGATIVE)
def test_numbers(case: Case) -> None:
    case.check()


def test_rows_that_a_training_function_needs_are_not_taken_from_it() -> None:
    """`total += step(x, y) * len(y)` counts the global rows, and trains on this process's."""
    slots = {
        **SLOTS,
        "definitions": "def step(model, optimizer, x, y):\n"
        "    optimizer.zero_grad()\n"
        "    loss = F.cross_entropy(model(x), y)\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    return loss.detach()\n",
        "epoch": "total, rows = 0.0, 0",
        "loss": "total += step(model, optimizer, x, y) * len(y)",
        "backward": "rows += len(y)",
        "step": "",
        "after_epoch": "print(total / rows)",
    }
    result = migrate(script(slots).replace("        optimizer.zero_grad()\n        total", "        total"))
    assert result.changed, result.findings
    assert "y = accelerator.gather" not in result.after
    assert result.after.count("len(accelerator.gather_for_metrics(y))") == 2
