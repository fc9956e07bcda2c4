"""CT602: every number that training prints, logs, sums up or decides by is the global one."""

from __future__ import annotations

from .numbers import COUNT, ENUMERATED, LOSS, METER, RULE, WEIGHTED, step, summed
from .support import SLOTS, Case, converts, each, migrate, script

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
    return F.cross_entropy(out, y), accelerator.global_rows(x), accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()
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
        "size = accelerator.global_rows(next(iter(train_loader))[0])\naccelerator.print(size)",
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
    summed(
        "collected", "losses = []", "losses.append(loss.item())", f"losses.append({LOSS}.item())", "losses"
    ),
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
        {"setup": "best = 1e9", "after_epoch": "best = min(best, loss.item())"},
        {"after_epoch": f"best = min(best, {LOSS}.item())"},
        at="min(best",
    ),
    summed(
        "the worst loss",
        "worst = 0.0",
        "worst = max(worst, loss.item())",
        f"worst = max(worst, {LOSS}.item())",
        "worst",
    ),
    summed(
        "losses by batch",
        "total = 0.0",
        "total += loss.item()",
        f"total += {WEIGHTED}",
        "total / len(train_loader)",
    ),
    summed(
        "losses by batch, on the device",
        "total = 0.0",
        "total += loss.detach()",
        "total += accelerator.weighted(loss.detach())",
        "total.item()",
    ),
    summed(
        "losses by sample",
        "total = 0.0",
        "total += loss.item() * x.size(0)",
        f"total += {WEIGHTED} * {COUNT}",
        "total / len(train_set)",
    ),
    summed(
        "losses by sample, by length",
        "total = 0.0",
        "total += loss.item() * len(x)",
        f"total += {WEIGHTED} * {COUNT}",
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
                "right += accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()\n"
                "seen += accelerator.global_rows(y)"
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
                "seen += accelerator.global_rows(y)\n"
                "right += accelerator.gather_for_metrics(guess == y).sum().item()"
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
            "loss": f"n = {COUNT}\nout = model(x)\nloss = F.cross_entropy(out, y)",
            "after_step": "right += accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()\nseen += n",
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
        {"after_step": f"meter.update({LOSS}.item(), {COUNT})"},
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
                'a, b, loss = accelerator.reduce((a, b, loss), reduction="mean")\n'
                "accelerator.print(a.item(), b.item(), loss.item())"
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
            "after_step": 'accelerator.print(accelerator.reduce(loss, reduction="sum").item())',
        },
        at="print(loss.item())",
    ),
    step(
        "a number of the whole batch",
        "if torch.linalg.svdvals(out).max().item() > 9:\n    break",
        "if torch.linalg.svdvals(accelerator.gather_for_metrics(out)).max().item() > 9:\n    break",
    ),
]


@each(POSITIVE)
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
    assert result.after.count("accelerator.global_rows(y)") == 2


def test_rows_that_only_an_elif_reads() -> None:
    """Nothing can stand above an `elif`: the rows are gathered where they are read."""
    told = "if epoch == 0:\n    first = 0\nelif (out.argmax(1) == y).float().mean().item() < 0.5:\n    worst = (out.argmax(1) == y).sum().item() / len(y)"
    result = migrate(script({**SLOTS, "after_step": told}))
    assert (
        "elif accelerator.gather_for_metrics((out.argmax(1) == y).float()).mean().item() < 0.5:"
        in result.after
    )
    assert "CT001" not in {f.rule for f in result.findings}
